"""What a plan says of GRPO and its kin: groups, what each method has no use for, and defaults of ours.

Imports nothing heavy: a dry run reads it.
"""

from dataclasses import replace

from fmtkit.runner import OUR_FEATURES, Runner, methods
from fmtkit.training.config import Config
from fmtkit.training.launch import Launch, processes_of
from fmtkit.training.refusals import RefusalError
from fmtkit.training.resolve import Resolution
from fmtkit.training.rl.grpo import async_plan, group_rule
from fmtkit.training.rl.grpo.settings import GrpoSettings, read_settings
from fmtkit.training.rl.imports import places_of
from fmtkit.training.rl.nemo_gym import naming
from fmtkit.training.rl.rewards import entries

IDLE: dict[str, object] = {
    "async_prefetch": False,
    "vllm_sync_interval": 1,
    "vllm_lora_sync": False,
    "replay_buffer_size": 0,
    "reroll_start_fraction": 1.0,
}
"""Features of fmtkit's own GRPO trainer -> the value that asks for nothing."""


def derive(config: Config, chosen: Runner, out: Resolution, launching: Launch) -> None:
    """Check the keys of an online method; set what fmtkit decides otherwise than TRL.

    Raises RefusalError or OptionError for what no run can do.
    """
    named = config.get("trl.reward_funcs")
    if "nemo_gym" not in chosen.sections:
        naming.check(named, enabled=False, multi_turn=False)
    rewards = naming.others(named)
    out.notes += entries.missing(rewards, places_of(config.source))
    functions = out.of("rl").get("reward_funcs")
    if functions is not None:
        out.of("rl")["reward_funcs"] = replace(functions, value=entries.resolved(functions.value))
    if async_plan.is_async(chosen):
        async_plan.derive(config, out)
        return
    if config.text("trl.backend") == "async":
        able = methods(lambda one: any(map(async_plan.is_async, one.variants.values())))
        raise RefusalError(
            "async_method",
            f"trl.backend: async: TRL has it for {able} alone, not for {chosen.method}",
        )
    given = {argument.name: argument.value for argument in out.of("rl").values()}
    settings = read_settings(given)
    _check_features(chosen, given)
    if chosen.group and not _is_open(config, out):
        numbers = group_rule.batches_of(chosen, out, processes_of(config, launching))
        group_rule.check(numbers, _whole_groups(chosen, settings))
    _check_replay(settings, out)
    used = out.trainer.get("use_vllm")
    if used is not None and used.value is True:
        # TRL's own default is colocate; the documents' flow is a server in a second terminal.
        out.default("vllm_mode", "server", "default of fmtkit")


def _is_open(config: Config, out: Resolution) -> bool:
    """Tell whether a fragment leaves the size of its batches to the rest of the configuration."""
    return config.text("base_model") is None and "per_device_train_batch_size" not in out.trainer


def _whole_groups(chosen: Runner, settings: GrpoSettings) -> str | None:
    if chosen.whole_groups:
        return chosen.method
    if settings.replays:
        return "trl.replay_buffer_size"
    return "trl.reroll_start_fraction" if settings.rerolls else None


def _check_features(chosen: Runner, given: dict[str, object]) -> None:
    for name in sorted(OUR_FEATURES - chosen.features):
        value = given.get(name)
        if value is not None and value != IDLE.get(name):
            able = methods(lambda one: name in one.features)  # noqa: B023 - called at once
            raise RefusalError(
                "online_feature",
                f"trl.{name}: TRL's trainer for {chosen.method} has nothing of the kind; it is for "
                f"{able}",
            )


def _check_replay(settings: GrpoSettings, out: Resolution) -> None:
    moving = out.trainer.get("sync_ref_model")
    if settings.replays and moving is not None and moving.value is True:
        raise RefusalError(
            "replay_reference",
            "trl.replay_buffer_size: groups are kept with the reference's log-probabilities, which "
            "sync_ref_model changes; leave one of them out",
        )
