"""The plan of GRPO and related methods: checks of groups and of keys that a method lacks, and defaults.

It imports neither torch nor TRL, since a dry run uses it.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from fmtkit.core import section
from fmtkit.core.runner import PROVIDES, TRL_FEATURES, Runner, methods, our_features
from fmtkit.training.config.config import Config
from fmtkit.training.config.user_objects import places_of
from fmtkit.training.online import group_rule
from fmtkit.training.online.conversations import naming
from fmtkit.training.online.rewards import call_limits, entries
from fmtkit.training.planning import hooks
from fmtkit.training.planning.check import advise, check_config
from fmtkit.training.planning.run_plan import Plan
from fmtkit.training.planning.types import Arguments
from fmtkit.training.vllm import rollout_settings as rollouts


def features(config: Config) -> list[str]:
    """Return the keys that are set and that TRL's own trainers do not know."""
    values = {
        f"trl.{name}": (config.get(f"trl.{name}"), idle) for name, idle in our_features().items()
    }
    return sorted(key for key, (value, idle) in values.items() if value not in (None, idle))


def derive(plan: Plan) -> None:
    """Set fmtkit's defaults where they differ from TRL's; report rewards that are missing."""
    config, out = plan.config, plan.arguments
    named = config.get("trl.reward_funcs")
    naming.check(named, config, plan.runner)
    out.notes += entries.missing(naming.others(named), places_of(config.source))
    functions = out.of("rl").get("reward_funcs")
    if functions is not None:
        out.of("rl")["reward_funcs"] = replace(functions, value=entries.resolved(functions.value))


@check_config(
    "async_method",
    "config",
    "the asynchronous trainer with a method other than grpo",
    section="rl",
    keys=("trl.backend",),
)
def _method(plan: Plan) -> str | None:
    chosen = plan.runner
    if plan.config.text("trl.backend") != "async" or chosen.own_sampler:
        return None
    able = methods(lambda one: "async" in one.variants)
    return f"trl.backend: async: TRL has it only for {able}, not for {chosen.method}"


@check_config(
    "online_feature",
    "config",
    "keys of fmtkit's GRPO trainer with a method of a different trainer",
    section="rl",
    keys=("of sections",),
)
def _features(plan: Plan) -> Iterator[str]:
    chosen, given = plan.runner, plan.arguments.values("rl")
    if chosen.own_sampler:
        return
    known = our_features()
    for name in sorted({*TRL_FEATURES, *known} - chosen.features):
        value = given.get(name)
        if value is not None and value != known.get(name):
            able = methods(lambda one: name in one.features)  # noqa: B023 - called at once
            yield (
                f"trl.{name}: TRL's trainer for {chosen.method} has no such feature; it is for "
                f"{able}"
            )


@check_config(
    "environment_answers",
    "config",
    "an environment that makes the answers, with a trainer that makes them itself",
    section="rl",
    keys=("of sections",),
)
def _answers(plan: Plan) -> Iterator[str]:
    chosen, config = plan.runner, plan.config
    if "rollout_func" in chosen.features or chosen.own_sampler:
        return
    for one in section.every():
        makes = any("answers" in part(config) for part in one.hooks(PROVIDES))
        if makes and one.name in chosen.sections:
            yield (
                f"{one.switch or one.name}: the trainer of {chosen.method} makes the answers itself: "
                f"{chosen.trainer.partition(':')[2]} takes no rollout function"
            )


@check_config(
    "online_settings",
    "config",
    "invalid values of the keys of `trl` that only fmtkit has",
    section="rl",
    keys=("of sections",),
)
def _settings(plan: Plan) -> None:
    given = plan.arguments.values("rl")
    call_limits.read_options(given)
    rollouts.read_settings(given, run="")


@check_config(
    "groups",
    "config",
    "batches that cannot be divided into groups of answers to a prompt",
    section="rl",
)
def _groups(plan: Plan) -> None:
    chosen, out = plan.runner, plan.arguments
    if not chosen.group or chosen.own_sampler or _is_open(plan.config, out):
        return
    group_rule.check(_batches(plan), _whole_groups(chosen, plan.config))


@advise("groups", "requires at least 2 generations per prompt", section="rl")
def _single_answer(plan: Plan) -> str | None:
    return _of_groups(plan, group_rule.single_answer)


@advise("groups", "must be divisible by num_generations", section="rl")
def _divided_batch(plan: Plan) -> str | None:
    return _of_groups(plan, group_rule.divided_batch)


@advise("groups", "must be divisible by the number of generations used for eval", section="rl")
def _divided_evaluation(plan: Plan) -> str | None:
    return _of_groups(plan, group_rule.divided_evaluation)


def _of_groups(plan: Plan, say: Callable[[group_rule.Batches], str]) -> str | None:
    return None if _is_open(plan.config, plan.arguments) else say(_batches(plan))


def _batches(plan: Plan) -> group_rule.Batches:
    return group_rule.batches_of(plan.runner, plan.arguments, plan.launch.processes)


@check_config(
    "reward_weights",
    "config",
    "a number of weights that differs from the number of rewards",
    section="rl",
    keys=("trl.reward_funcs",),
)
def _weights(plan: Plan) -> None:
    config, chosen = plan.config, plan.runner
    rewards = naming.listed(config.get("trl.reward_funcs"))
    provided = chosen.provided(config)
    if "rewards" in chosen.needs and rewards and "rewards" not in provided:
        entries.check_weights(config.get("trl.reward_weights"), rewards)


def _is_open(config: Config, out: Arguments) -> bool:
    """Return whether a fragment leaves its batch sizes open."""
    return config.is_fragment and "per_device_train_batch_size" not in out.trainer


def _whole_groups(chosen: Runner, config: Config) -> str | None:
    """Return what needs all answers to a prompt in one process: the method, or a key; None for nothing."""
    if chosen.whole_groups:
        return chosen.method
    return next((key for part in chosen.hooks(hooks.WHOLE_GROUPS) for key in part(config)), None)
