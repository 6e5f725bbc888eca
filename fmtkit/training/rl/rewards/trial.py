"""`fmtkit rewards test`: a configuration's reward functions on rows of its datasets, without a model."""

import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fmtkit.errors import OptionError
from fmtkit.training import config as configs
from fmtkit.training import planning
from fmtkit.training.planning import Plan
from fmtkit.training.rl.imports import places_of
from fmtkit.training.rl.rewards import entries, trial_rows
from fmtkit.training.rl.rewards.entries import KEY, Entry
from fmtkit.training.rl.rewards.loading import Rewards
from fmtkit.training.rl.rewards.options import RewardOptions, read_options
from fmtkit.training.rl.rewards.trial_rows import Tried
from fmtkit.training.rl.rewards.verdicts import RewardError, Value


@dataclass(frozen=True)
class Outcome:
    """What one function did: its rewards, or the error that it ended with."""

    name: str
    label: str
    weight: float
    seconds: float = 0.0
    rewards: tuple[Value, ...] | None = None
    error: str | None = None
    trace: str = ""
    logged: Mapping[str, Any] | None = None

    @property
    def is_model(self) -> bool:
        """Tell whether this is a reward model, which is not run."""
        return self.rewards is None and self.error is None


@dataclass(frozen=True)
class Trial:
    """Completions, what each function gave them, and what looks wrong."""

    tried: tuple[Tried, ...]
    outcomes: tuple[Outcome, ...]
    remarks: tuple[str, ...]

    @property
    def totals(self) -> list[Value]:
        """The weighted sums, as TRL makes them: None counts nothing; None where all are."""
        given = [(o.weight, o.rewards) for o in self.outcomes if o.rewards is not None]
        columns = [
            [(weight, rewards[i]) for weight, rewards in given] for i in range(len(self.tried))
        ]
        sums = [[weight * value for weight, value in row if value is not None] for row in columns]
        return [sum(row) if row else None for row in sums]

    @property
    def exit_code(self) -> int:
        """0, or 1 if a function ended with an error or there is no reward at all."""
        failed = any(outcome.error for outcome in self.outcomes)
        ran = any(outcome.rewards is not None for outcome in self.outcomes)
        return int(failed or (ran and all(total is None for total in self.totals)))

    def to_json(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        named = [o for o in self.outcomes if o.rewards is not None]
        return {
            "completions": [
                {
                    "row": one.row,
                    "prompt": one.prompt,
                    "kind": one.kind,
                    "completion": one.completion,
                    "rewards": {o.name: (o.rewards or ())[i] for o in named},
                    "total": total,
                }
                for i, (one, total) in enumerate(zip(self.tried, self.totals, strict=True))
            ],
            "functions": [_function(outcome) for outcome in self.outcomes],
            "remarks": list(self.remarks),
        }


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
    section = {a.name: a.value for a in plan.resolution.of("rl").values()}
    found = entries.read(section.get("reward_funcs"), places_of(plan.config.source))
    if not found or not plan.datasets:
        raise OptionError(f"{plan.source}: {'datasets' if found else KEY}: nothing to run")
    weights = plan.resolution.trainer.get("reward_weights")
    entries.check_weights(weights.value if weights else None, found)
    entries.check(found)
    first, remarks = trial_rows.first_rows(plan, rows)
    tried = trial_rows.given(first, completions) if completions else trial_rows.tried(first)
    ids, said = _ids(plan, tried)
    numbers = weights.value if weights and isinstance(weights.value, list) else [1.0] * len(found)
    outcomes = _outcomes(found, numbers, read_options(section), tried, ids)
    return Trial(tuple(tried), outcomes, (*remarks, *said, *_remarks(outcomes, tried)))


def _outcomes(
    found: Sequence[Entry],
    weights: Sequence[float],
    options: RewardOptions,
    tried: Sequence[Tried],
    ids: Sequence[Sequence[int]],
) -> tuple[Outcome, ...]:
    # What the user's modules print is no result.
    with redirect_stdout(sys.stderr):
        names = Rewards(found, RewardOptions()).names
    here = RewardOptions(seconds=options.seconds)
    return tuple(
        Outcome(name, entry.label, float(weight))
        if entry.model
        else _outcome(name, float(weight), Rewards([entry], here, judged=False), tried, ids)
        for name, entry, weight in zip(names, found, weights, strict=True)
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
    from fmtkit import tokens

    folder = Path(plan.config.text("tokenizer_config") or plan.model or "").expanduser()
    if not (folder / "tokenizer.json").is_file():
        words = [list(range(len(one.text.split()))) for one in tried]
        return words, ["completion_ids are counted in words: base_model is no folder here"]
    backend = tokens.load(str(folder)).backend
    return [backend.encode(one.text, add_special_tokens=False).ids for one in tried], []


def _remarks(outcomes: Sequence[Outcome], tried: Sequence[Tried]) -> list[str]:
    said = []
    for outcome in outcomes:
        values = [value for value in outcome.rewards or () if value is not None]
        if outcome.is_model:
            said.append(f"{outcome.label} is a reward model, which is not run here")
        elif outcome.error is None and not values:
            said.append(f"{outcome.label} gives no completion a reward: it returns None for all")
        elif outcome.error is None and len(values) > 1 and len(set(values)) == 1:
            said.append(
                f"{outcome.label} gives every completion {values[0]:g}: nothing is learnt from that"
            )
        elif outcome.rewards is not None:
            said += _beaten(outcome, tried)
    return said


def _beaten(outcome: Outcome, tried: Sequence[Tried]) -> list[str]:
    """Say for how many rows the reference is worth less than saying nothing."""
    pairs = zip(tried, outcome.rewards or (), strict=True)
    count = sum(
        one.row == other.row
        and (one.kind, other.kind) == ("reference", "empty")
        and value is not None
        and empty is not None
        and value < empty
        for (one, value), (other, empty) in pairwise(pairs)
    )
    few = f"{outcome.label} gives the reference less than the empty completion in {count} rows"
    return [few] if count else []


def _function(outcome: Outcome) -> dict[str, Any]:
    values = [value for value in outcome.rewards or () if value is not None]
    count = len(outcome.rewards or ())
    mean = sum(values) / len(values) if values else None
    return {
        "name": outcome.name,
        "function": outcome.label,
        "weight": outcome.weight,
        "is_model": outcome.is_model,
        "seconds": round(outcome.seconds, 6),
        "mean": mean,
        "min": min(values, default=None),
        "max": max(values, default=None),
        "none": count - len(values),
        "error": outcome.error,
        "trace": outcome.trace,
        "logged": outcome.logged or {},
    }
