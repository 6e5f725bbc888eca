"""The plan of GRPO and related methods: checks of groups and of keys that a method lacks, and defaults.

It imports neither torch nor TRL, since a dry run uses it.
"""

from collections.abc import Iterator
from dataclasses import replace

from fmtkit.core.errors import near_match
from fmtkit.core.runner import OUR_FEATURES, TRL_FEATURES, Runner, methods
from fmtkit.training.config.config import Config
from fmtkit.training.config.imports import places_of
from fmtkit.training.planning.check import Subject, check_config
from fmtkit.training.planning.launch import processes_of
from fmtkit.training.planning.types import Launch, Resolution
from fmtkit.training.rl.dialogs import naming
from fmtkit.training.rl.grpo import async_plan, group_rule
from fmtkit.training.rl.grpo.settings import GrpoSettings, read_settings
from fmtkit.training.rl.rewards import entries, options
from fmtkit.training.rl.rollouts import settings as rollouts

IDLE: dict[str, object] = {
    "async_prefetch": False,
    "vllm_sync_interval": 1,
    "vllm_lora_sync": False,
    "vllm_sync": "nccl",
    "replay_buffer_size": 0,
    "reroll_start_fraction": 1.0,
    "dynamic_sampling": False,
    "max_failed_share": 0,
}
"""Features of fmtkit's own GRPO trainer -> the value that turns each off."""


def features(config: Config) -> list[str]:
    """Return the keys that are set and that TRL's own trainers do not know."""
    names = sorted(OUR_FEATURES - TRL_FEATURES)
    values = {f"trl.{name}": (config.get(f"trl.{name}"), IDLE.get(name)) for name in names}
    return [key for key, (value, idle) in values.items() if value not in (None, idle)]


def derive(config: Config, chosen: Runner, out: Resolution, launching: Launch) -> None:
    """Set fmtkit's defaults where they differ from TRL's; report rewards that are missing."""
    del launching
    named = config.get("trl.reward_funcs")
    naming.check(named, config, chosen)
    out.notes += entries.missing(naming.others(named), places_of(config.source))
    functions = out.of("rl").get("reward_funcs")
    if functions is not None:
        out.of("rl")["reward_funcs"] = replace(functions, value=entries.resolved(functions.value))
    if async_plan.is_async(chosen):
        async_plan.derive(out)


def _given(out: Resolution) -> dict[str, object]:
    return {argument.name: argument.value for argument in out.of("rl").values()}


@check_config(
    "async_method", "config", "the asynchronous trainer with a method other than grpo", section="rl"
)
def _method(subject: Subject) -> str | None:
    chosen = subject.runner
    if subject.config.text("trl.backend") != "async" or async_plan.is_async(chosen):
        return None
    able = methods(lambda one: any(map(async_plan.is_async, one.variants.values())))
    return f"trl.backend: async: TRL has it only for {able}, not for {chosen.method}"


@check_config(
    "online_feature",
    "config",
    "keys of fmtkit's GRPO trainer with a method of a different trainer",
    section="rl",
)
def _features(subject: Subject) -> Iterator[str]:
    chosen, given = subject.runner, _given(subject.resolution)
    if async_plan.is_async(chosen):
        return
    for name in sorted(OUR_FEATURES - chosen.features):
        value = given.get(name)
        if value is not None and value != IDLE.get(name):
            able = methods(lambda one: name in one.features)  # noqa: B023 - called at once
            yield (
                f"trl.{name}: TRL's trainer for {chosen.method} has no such feature; it is for "
                f"{able}"
            )


@check_config(
    "online_settings",
    "config",
    "invalid values of the keys of `trl` that only fmtkit has",
    section="rl",
)
def _settings(subject: Subject) -> None:
    given = _given(subject.resolution)
    read_settings(given)
    options.read_options(given)
    rollouts.read_settings(given, run="")


@check_config(
    "sampling_metric", "config", "a metric of dynamic sampling that is not a reward", section="rl"
)
def _metric(subject: Subject) -> str | None:
    """Refuse a metric of dynamic sampling that is not a reward of the run; environments add theirs later."""
    given, config, chosen = _given(subject.resolution), subject.config, subject.runner
    names = read_settings(given).dynamic_sampling_metric
    elsewhere = given.get("environment_factory") or "rewards" in chosen.provided(config)
    if not names or elsewhere or "rewards" not in chosen.needs:
        return None
    places = places_of(config.source)
    rewards = entries.read(naming.others(config.get("trl.reward_funcs")), places)
    known = {name for entry in rewards for name in (entry.label, entry.name)}
    wrong = next((name for name in names if name not in known), None)
    if wrong is None:
        return None
    near = near_match(wrong, known)
    advice = f"did you mean {near!r}?" if near else f"there are {', '.join(sorted(known))}"
    return f"trl.dynamic_sampling_metric: no reward named {wrong!r}; {advice}"


@check_config(
    "groups",
    "config",
    "batches that cannot be divided into groups of answers to a prompt",
    section="rl",
)
def _groups(subject: Subject) -> None:
    chosen, out = subject.runner, subject.resolution
    if not chosen.group or async_plan.is_async(chosen) or _is_open(subject.config, out):
        return
    processes = processes_of(subject.config, subject.launching)
    numbers = group_rule.batches_of(chosen, out, processes)
    group_rule.check(numbers, _whole_groups(chosen, read_settings(_given(out))))


@check_config("replay_reference", "config", "a replay buffer with `sync_ref_model`", section="rl")
def _replay(subject: Subject) -> str | None:
    moving = subject.resolution.trainer.get("sync_ref_model")
    replays = read_settings(_given(subject.resolution)).replays
    if async_plan.is_async(subject.runner) or not replays or not moving or moving.value is not True:
        return None
    return (
        "trl.replay_buffer_size: groups are kept with the reference's log-probabilities, which "
        "sync_ref_model changes; leave one of them out"
    )


@check_config(
    "reward_weights",
    "config",
    "a number of weights that differs from the number of rewards",
    section="rl",
)
def _weights(subject: Subject) -> None:
    config, chosen = subject.config, subject.runner
    rewards = naming.listed(config.get("trl.reward_funcs"))
    provided = chosen.provided(config)
    if "rewards" in chosen.needs and rewards and "rewards" not in provided:
        entries.check_weights(config.get("trl.reward_weights"), rewards)


def _is_open(config: Config, out: Resolution) -> bool:
    """Return whether a fragment leaves its batch sizes open."""
    return config.text("base_model") is None and "per_device_train_batch_size" not in out.trainer


def _whole_groups(chosen: Runner, settings: GrpoSettings) -> str | None:
    if chosen.whole_groups:
        return chosen.method
    if settings.replays:
        return "trl.replay_buffer_size"
    return "trl.reroll_start_fraction" if settings.rerolls else None
