"""`fmtkit rewards test`: a configuration's reward functions on rows of its datasets, without a model."""

import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fmtkit.core.errors import OptionError
from fmtkit.training.config import config as configs
from fmtkit.training.config.user_objects import places_of
from fmtkit.training.online.conversations import naming
from fmtkit.training.online.rewards import entries, trial_rows
from fmtkit.training.online.rewards.call_limits import RewardOptions, read_options
from fmtkit.training.online.rewards.entries import KEY, Entry
from fmtkit.training.online.rewards.loading import Rewards
from fmtkit.training.online.rewards.trial_outcome import Outcome, Trial, remarks_on
from fmtkit.training.online.rewards.trial_rows import Tried
from fmtkit.training.online.rewards.verdicts import RewardError
from fmtkit.training.planning import plan as planning
from fmtkit.training.planning.run_plan import Plan


def run(
    config: str | Path | Mapping[str, object],
    *,
    rows: int = 8,
    completions: str | None = None,
    overrides: Sequence[str] = (),
) -> Trial:
    """Run the reward functions of a configuration on the first rows of each of its datasets.

    Raises OptionError for what cannot be loaded, SourceError and NothingWrittenError for rows.
    """
    plan = planning.plan(configs.load(config, overrides), partial=True)
    section = plan.arguments.values("rl")
    rewards, weights, remarks = _functions(plan, section.get("reward_funcs"))
    if not rewards or not plan.datasets:
        raise OptionError(f"{plan.source}: {'datasets' if rewards else KEY}: nothing to run")
    entries.check(rewards)
    first, notes = trial_rows.first_rows(plan, rows)
    remarks += notes
    tried = (
        trial_rows.read_completions(first, completions)
        if completions
        else trial_rows.own_completions(first)
    )
    ids, notes = _ids(plan, tried)
    outcomes = _outcomes(rewards, weights, read_options(section), tried, ids)
    return Trial(tuple(tried), outcomes, (*remarks, *notes, *remarks_on(outcomes, tried)))


def _functions(plan: Plan, value: object) -> tuple[tuple[Entry, ...], list[float], list[str]]:
    """Return the functions to run, their weights, and what cannot be run: the reward of an environment."""
    named = naming.listed(value)
    kept = [number for number, item in enumerate(named) if naming.others([item])]
    rewards = entries.read([named[number] for number in kept], places_of(plan.config.source))
    elsewhere = "rewards" in plan.runner.provided(plan.config)
    weights = plan.arguments.reward_weights
    if not elsewhere:
        entries.check_weights(weights, named)
    listed = weights if isinstance(weights, list) else [1.0] * len(named)
    remarks = ["the environment's reward is not run here"] if elsewhere else []
    return rewards, [float(listed[number]) for number in kept], remarks


def _outcomes(
    rewards: Sequence[Entry],
    weights: Sequence[float],
    options: RewardOptions,
    tried: Sequence[Tried],
    ids: Sequence[Sequence[int]],
) -> tuple[Outcome, ...]:
    # What the user's modules print is not a result.
    with redirect_stdout(sys.stderr):
        names = Rewards(rewards, RewardOptions()).names
    here = RewardOptions(seconds=options.seconds)
    return tuple(
        Outcome(name, entry.label, weight)
        if entry.model
        else _outcome(name, weight, Rewards([entry], here, judged=False), tried, ids)
        for name, entry, weight in zip(names, rewards, weights, strict=True)
    )


def _outcome(
    name: str, weight: float, rewards: Rewards, tried: Sequence[Tried], ids: Sequence[Sequence[int]]
) -> Outcome:
    columns = trial_rows.columns_of(one.columns for one in tried)
    rewards.check_columns(columns)
    logged: dict[str, Any] = {}
    arguments = {key: [one.columns.get(key) for one in tried] for key in columns}
    context = {
        # What a function may read of the trainer at its first step.
        "trainer_state": SimpleNamespace(global_step=0, epoch=0.0, max_steps=1, log_history=[]),
        "log_extra": lambda column, values: logged.update({str(column): list(values)}),
        "log_metric": lambda name, value: logged.update({str(name): value}),
    }
    (label,) = rewards.labels
    prompts, completions = [one.prompt for one in tried], [one.completion for one in tried]
    started = time.perf_counter()
    try:
        with redirect_stdout(sys.stderr):
            (values,) = rewards.score(prompts, completions, ids, **arguments, **context)
    except RewardError as error:
        seconds = time.perf_counter() - started
        return Outcome(name, label, weight, seconds, None, str(error), error.trace, logged)
    return Outcome(name, label, weight, time.perf_counter() - started, tuple(values), logged=logged)


def _ids(plan: Plan, tried: Sequence[Tried]) -> tuple[list[list[int]], list[str]]:
    """Return the completions' tokens, by the model's tokenizer where it is a folder here."""
    from fmtkit.tokenizers import tokens

    folder = Path(plan.tokenizer or "").expanduser()
    if not (folder / "tokenizer.json").is_file():
        words = [list(range(len(one.text.split()))) for one in tried]
        return words, ["completion_ids are counted in words: base_model is not a local folder"]
    backend = tokens.load(str(folder)).backend
    return [backend.encode(one.text, add_special_tokens=False).ids for one in tried], []
