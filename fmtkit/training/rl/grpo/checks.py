"""What would stop an online run, found before a model is loaded; neither torch nor TRL is imported."""

import os
from collections.abc import Sequence

from fmtkit.errors import OptionError
from fmtkit.training import gpus
from fmtkit.training.planning import Plan
from fmtkit.training.rl.grpo import async_plan
from fmtkit.training.rl.imports import places_of
from fmtkit.training.rl.nemo_gym import naming
from fmtkit.training.rl.rewards import entries, options
from fmtkit.training.rl.rollouts import loading


def check_device(plan: Plan) -> None:
    """Raise OptionError where TRL's asynchronous trainer would find no GPU."""
    if async_plan.is_async(plan.runner) and not gpus.visible(os.environ):
        raise OptionError(
            "trl.backend: async needs a CUDA device, since its attention is the FlashAttention-3 kernel, "
            "and none is visible; nothing was loaded. trl.backend: sync trains everywhere, and with "
            "trl.async_prefetch it makes answers ahead"
        )


def check_users_names(plan: Plan) -> None:
    """Raise OptionError for a reward, tool, rollout or environment that is not where it is said to be."""
    if "rl" not in plan.runner.sections:
        return
    section = {argument.name: argument.value for argument in plan.resolution.of("rl").values()}
    places = places_of(plan.config.source)
    # The reward of a Gym is named, but stands in no module.
    rewards = entries.read(naming.others(section.get("reward_funcs")), places)
    entries.check(rewards)
    weights = plan.resolution.trainer.get("reward_weights")
    if "rewards" in plan.runner.needs and not plan.config.is_true("nemo_gym_enabled"):
        entries.check_weights(weights.value if weights else None, rewards)
    options.read_options(section)
    loading.check_names(section, places)


def reward_models(plan: Plan) -> list[str]:
    """Return the folders and hub ids of the reward models that a run loads."""
    if "rl" not in plan.runner.sections:
        return []
    named = naming.others(plan.config.get("trl.reward_funcs"))
    found = entries.read(named, places_of(plan.config.source))
    return [entry.model for entry in found if entry.model]


def answers_prompts(plan: Plan) -> bool:
    """Tell whether TRL answers the prompts of the rows; a rollout function may take them otherwise."""
    config = plan.config
    own = config.get("trl.rollout_func") or config.is_true("nemo_gym_multi_turn")
    return "rl" in plan.runner.sections and not own


def check_prompts(files: Sequence[str]) -> None:
    """Raise OptionError for prompts that end with an answer, which the model would answer again.

    TRL begins the assistant's turn after every prompt, whoever spoke last.
    """
    import polars as pl

    for file in files:
        frame = pl.scan_parquet(file)
        kind = frame.collect_schema().get("prompt")
        if not isinstance(kind, pl.List):
            continue
        role = pl.col("prompt").list.last().struct.field("role")
        found = (
            frame.with_row_index("row").filter(role == "assistant").select("row").collect()["row"]
        )
        if len(found):
            raise OptionError(
                f"{len(found)} prompts end with the assistant's turn, to which TRL would add another "
                f"(first: row {found[0]} of {file}); drop that turn, or keep it as the column that "
                "the reward compares with"
            )
