"""What a plan says of GRPO and its kin: groups, what each method has no use for, and defaults of ours.

Imports nothing heavy: a dry run reads it.
"""

from fmtkit.training.config import Config
from fmtkit.training.launch import Launch, processes_of
from fmtkit.training.refusals import RefusalError
from fmtkit.training.resolve import Resolution
from fmtkit.training.rl.grpo import async_plan, group_rule
from fmtkit.training.rl.grpo.settings import GrpoSettings, read_settings
from fmtkit.training.rl.imports import places_of
from fmtkit.training.rl.nemo_gym import naming
from fmtkit.training.rl.rewards import entries
from fmtkit.training.runner import Runner

FEATURES = {
    "tools": None,
    "rollout_func": None,
    "environment_factory": None,
    "async_prefetch": False,
    "vllm_sync_interval": 1,
    "vllm_lora_sync": False,
    "replay_buffer_size": 0,
    "reroll_start_fraction": 1.0,
}
"""Keys of `trl` that fmtkit's own GRPO trainer alone acts on -> the value that asks for nothing."""

_OWN_TRAINER = frozenset({"grpo", "gdpo", "ebft"})


def derive(config: Config, chosen: Runner, out: Resolution, launching: Launch) -> None:
    """Check the keys of an online method; set what fmtkit decides otherwise than TRL.

    Raises RefusalError or OptionError for what no run can do.
    """
    if "rl" not in chosen.sections:
        return
    rewards = naming.others(config.get("trl.reward_funcs"))
    out.notes += entries.missing(rewards, places_of(config.source))
    if async_plan.is_async(chosen):
        async_plan.derive(config, out)
        return
    if config.text("trl.backend") == "async":
        raise RefusalError(
            "async_method",
            f"trl.backend: async: TRL has it for grpo alone, not for {chosen.method}",
        )
    given = {argument.name: argument.value for argument in out.of("rl").values()}
    settings = read_settings(given)
    if chosen.method not in _OWN_TRAINER:
        _check_features(chosen.method, given)
    if chosen.method in group_rule.GROUP and not _is_open(config, out):
        numbers = group_rule.batches_of(chosen.method, out, processes_of(config, launching))
        group_rule.check(numbers, _whole_groups(chosen.method, settings))
    _check_replay(settings, out)
    used = out.trainer.get("use_vllm")
    if used is not None and used.value is True:
        # TRL's own default is colocate; the documents' flow is a server in a second terminal.
        out.default("vllm_mode", "server", "default of fmtkit")


def _is_open(config: Config, out: Resolution) -> bool:
    """Tell whether a fragment leaves the size of its batches to the rest of the configuration."""
    return config.text("base_model") is None and "per_device_train_batch_size" not in out.trainer


def _whole_groups(method: str, settings: GrpoSettings) -> str | None:
    if method == "ebft":
        return "ebft"
    if settings.replays:
        return "trl.replay_buffer_size"
    return "trl.reroll_start_fraction" if settings.rerolls else None


def _check_features(method: str, given: dict[str, object]) -> None:
    for name, idle in FEATURES.items():
        value = given.get(name)
        if value is not None and value != idle:
            raise RefusalError(
                "online_feature",
                f"trl.{name}: TRL's trainer for {method} has nothing of the kind; it is for grpo, "
                "gdpo and ebft",
            )


def _check_replay(settings: GrpoSettings, out: Resolution) -> None:
    moving = out.trainer.get("sync_ref_model")
    if settings.replays and moving is not None and moving.value is True:
        raise RefusalError(
            "replay_reference",
            "trl.replay_buffer_size: groups are kept with the reference's log-probabilities, which "
            "sync_ref_model changes; leave one of them out",
        )
