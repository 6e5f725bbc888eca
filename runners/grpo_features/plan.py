"""The plan of what fmtkit's trainers of GRPO and RLOO do beyond TRL's: checks of its keys.

It imports neither torch nor TRL, since a dry run uses it.
"""

from collections.abc import Iterator

from fmtkit.core.errors import OptionError, near_match
from fmtkit.core.section import read
from fmtkit.training.config.config import Config
from fmtkit.training.config.problems import Problem
from fmtkit.training.config.user_objects import places_of
from fmtkit.training.online.conversations import naming
from fmtkit.training.online.rewards import entries
from fmtkit.training.planning.check import Run, check_config, check_run
from fmtkit.training.planning.images import has_images
from fmtkit.training.planning.run_plan import Plan

from .settings import GrpoSettings


def settings_of(config: Config) -> GrpoSettings:
    """Return the settings of a configuration; raise OptionError for values that no run can use."""
    return read(GrpoSettings, {name: config.get(name) for name in config.settings}, "trl.")


def features(config: Config) -> Iterator[str]:
    """Yield what the keys of `_OWN` do not say: that batches without a signal are to be skipped."""
    name = "trl.skip_zero_advantage_batches"
    if config.is_true(name) and config.method() != "rloo":
        yield name


def whole_groups(config: Config) -> Iterator[str]:
    """Yield the keys that need all answers to a prompt in one process."""
    settings = settings_of(config)
    if settings.replays:
        yield "trl.replay_buffer_size"
    if settings.rerolls:
        yield "trl.reroll_start_fraction"


@check_config(
    "grpo_settings",
    "config",
    "values of replay, re-rolling and dynamic sampling that no run can use",
    section="grpo_features",
    keys=("trl.*",),
)
def _settings(plan: Plan) -> None:
    settings_of(plan.config)


@check_config(
    "sampling_metric",
    "config",
    "a metric of dynamic sampling that is not a reward",
    section="grpo_features",
    keys=("trl.dynamic_sampling_metric",),
)
def _metric(plan: Plan) -> str | None:
    """Refuse a metric of dynamic sampling that is not a reward of the run; environments add theirs later."""
    config, chosen = plan.config, plan.runner
    names = settings_of(config).dynamic_sampling_metric
    elsewhere = config.get("trl.environment_factory") or "rewards" in chosen.provided(config)
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
    "replay_reference",
    "config",
    "a replay buffer with `sync_ref_model`",
    section="grpo_features",
    keys=("trl.replay_buffer_size",),
)
def _replay(plan: Plan) -> str | None:
    moves = plan.arguments.value("sync_ref_model") is True
    if not settings_of(plan.config).replays or not moves:
        return None
    return (
        "trl.replay_buffer_size: groups are kept with the reference's log-probabilities, which "
        "sync_ref_model changes; leave one of them out"
    )


UNKEPT_IMAGES = "trl.replay_buffer_size: groups with images cannot be kept; set it to 0"


@check_run(
    "image_replay",
    "files",
    "a replay buffer for rows with images",
    concerns=lambda run: "grpo_features" in run.plan.runner.sections,
)
def _images(run: Run) -> Problem | None:
    if not settings_of(run.plan.config).replays or not has_images(run):
        return None
    return Problem("", UNKEPT_IMAGES, "trl.replay_buffer_size", OptionError)
