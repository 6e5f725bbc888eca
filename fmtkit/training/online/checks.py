"""Checks of an online run before a model is loaded; neither torch nor TRL is imported."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fmtkit.core.errors import OptionError
from fmtkit.training.config.user_objects import places_of
from fmtkit.training.online.conversations import naming
from fmtkit.training.online.rewards import call_limits, entries
from fmtkit.training.online.rollouts import loading
from fmtkit.training.planning.check import Run, check_run

if TYPE_CHECKING:
    from fmtkit.training.planning.run_plan import Plan


def is_online(run: Run) -> bool:
    """Return whether the method samples answers, and so calls the user's code."""
    return "rl" in run.plan.runner.sections


@check_run(
    "user_code",
    "modules",
    "rewards, rollouts, tools and environments that do not exist",
    concerns=is_online,
)
def check_users_names(run: Run) -> None:
    """Raise OptionError for a reward, tool, rollout or environment that cannot be found."""
    plan = run.plan
    section = plan.arguments.values("rl")
    places = places_of(plan.config.source)
    # An environment's reward may be named, but is not in a module.
    rewards = entries.read(naming.others(section.get("reward_funcs")), places)
    entries.check(rewards)
    if "rewards" in plan.runner.needs and "rewards" not in plan.runner.provided(plan.config):
        entries.check_weights(plan.arguments.reward_weights, rewards)
    call_limits.read_options(section)
    loading.check_names(section, places)


def models(plan: "Plan") -> list[tuple[str, str]]:
    """Return the folders and hub ids of the reward models that a run loads, each with its key."""
    named = naming.others(plan.config.get("trl.reward_funcs"))
    try:
        rewards = entries.read(named, places_of(plan.config.source))
    except OptionError:
        # Errors in their names are reported by check_users_names.
        return []
    return [(entries.KEY, entry.model) for entry in rewards if entry.model]


def answers_prompts(run: Run) -> bool:
    """Return whether TRL generates answers to the rows' prompts, and no rollout function does."""
    config, provided = run.plan.config, run.plan.runner.provided(run.plan.config)
    return is_online(run) and not (config.get("trl.rollout_func") or "answers" in provided)


@check_run(
    "answered_prompts",
    "data",
    "prompts that end with an answer",
    concerns=answers_prompts,
    promise="no prompt holds its answer",
)
def find_prompts(run: Run) -> Iterator[str]:
    """Yield a line for each file with prompts that end with an assistant turn.

    TRL begins an assistant turn after every prompt, whatever its last role.
    """
    import polars as pl

    for file in (file for source in (*run.train, *run.evaluation) for file in source.files):
        frame = pl.scan_parquet(file)
        kind = frame.collect_schema().get("prompt")
        if not isinstance(kind, pl.List):
            continue
        role = pl.col("prompt").list.last().struct.field("role")
        rows = (
            frame.with_row_index("row").filter(role == "assistant").select("row").collect()["row"]
        )
        if len(rows):
            yield (
                f"{len(rows)} prompts end with the assistant's turn, to which TRL would add another "
                f"(first: row {rows[0]} of {file}); drop that turn, or keep it as the column that "
                "the reward compares with"
            )
