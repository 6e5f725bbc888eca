"""The outcome of a trial of reward functions: rewards, remarks, and both as plain values."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from fmtkit.core.data_classes import dataclass
from fmtkit.training.online.rewards.trial_rows import Tried
from fmtkit.training.online.rewards.verdicts import Value


@dataclass(frozen=True)
class Outcome:
    """The result of one function: its rewards, or its error."""

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
        """Return whether this is a reward model, which is not run."""
        return self.rewards is None and self.error is None


@dataclass(frozen=True)
class Trial:
    """Completions, their rewards by each function, and remarks."""

    tried: tuple[Tried, ...]
    outcomes: tuple[Outcome, ...]
    remarks: tuple[str, ...]

    @property
    def totals(self) -> list[Value]:
        """The weighted sums, as in TRL: a None is left out, and the sum of only None is None."""
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
        """Return the trial as plain values."""
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


def remarks_on(outcomes: Sequence[Outcome], tried: Sequence[Tried]) -> list[str]:
    """Return remarks on functions without a signal, or with a wrong one."""
    remarks = []
    for outcome in outcomes:
        values = [value for value in outcome.rewards or () if value is not None]
        if outcome.is_model:
            remarks.append(f"{outcome.label} is a reward model, which is not run here")
        elif outcome.error is None and not values:
            remarks.append(f"{outcome.label} gives no completion a reward: it returns None for all")
        elif outcome.error is None and len(values) > 1 and len(set(values)) == 1:
            remarks.append(
                f"{outcome.label} gives every completion {values[0]:g}: nothing is learned from that"
            )
        elif outcome.rewards is not None:
            remarks += _beaten(outcome, tried)
    return remarks


def _beaten(outcome: Outcome, tried: Sequence[Tried]) -> list[str]:
    """Return a remark if the reference of any row has a lower reward than an empty answer."""
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
