"""A batch as TRL passes it to a reward function, its parts of complete groups, and what they log."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from itertools import pairwise
from typing import Any

from fmtkit.core.data_classes import dataclass

CONTEXT = frozenset({"trainer_state", "log_extra", "log_metric"})
"""Arguments that are not columns: one for the entire batch."""


@dataclass(frozen=True)
class Batch:
    """Prompts, completions and columns, row by row; `first` is the first row's place in the full batch."""

    prompts: Sequence[Any]
    completions: Sequence[Any]
    completion_ids: Sequence[Any] | None
    columns: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    context: Mapping[str, Any] = field(default_factory=dict)
    first: int = 0

    def __len__(self) -> int:
        """Return the number of completions."""
        return len(self.completions)

    def part(self, start: int, stop: int) -> "Batch":
        """Return some of the rows."""
        ids = None if self.completion_ids is None else self.completion_ids[start:stop]
        columns = {name: values[start:stop] for name, values in self.columns.items()}
        rows = self.prompts[start:stop], self.completions[start:stop]
        return Batch(*rows, ids, columns, self.context, self.first + start)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments as TRL passes them to a function."""
        named = {"prompts": self.prompts, "completions": self.completions}
        return {**named, "completion_ids": self.completion_ids, **self.columns, **self.context}


def batch_of(
    prompts: Sequence[Any],
    completions: Sequence[Any],
    completion_ids: Sequence[Any] | None,
    others: Mapping[str, Any],
) -> Batch:
    """Return the batch of one call, its columns separated from what is the same for all rows."""
    columns = {name: value for name, value in others.items() if name not in CONTEXT}
    context = {name: value for name, value in others.items() if name in CONTEXT}
    return Batch(prompts, completions, completion_ids, columns, context)


def group_starts(prompts: Sequence[Any], size: int | None) -> list[int]:
    """Return the starts of the groups: every `size` rows, or where the prompt changes.

    Rows that do not make complete groups count as one group, since no split is known to be safe.
    """
    if size is not None:
        return [0] if len(prompts) % size else list(range(0, len(prompts), size))
    return [row for row in range(len(prompts)) if not row or prompts[row] != prompts[row - 1]]


def parts(batch: Batch, starts: Sequence[int], groups: int) -> Iterator[Batch]:
    """Yield parts of that many groups each, in order; the last may have fewer."""
    bounds = [*starts[::groups], len(batch)]
    for start, stop in pairwise(bounds):
        yield batch.part(start, stop)


def groups_each(count: int, workers: int) -> int:
    """Return how many of the groups each worker takes."""
    return max(1, math.ceil(count / workers))


NAMES = ("log_extra", "log_metric")

Logged = tuple[str, tuple[Any, ...], Mapping[str, Any]]


class Recorder:
    """Replaces a logging function; its calls are appended to a list."""

    def __init__(self, name: str, logged: list[Logged]) -> None:
        """Record under this name."""
        self._name = name
        self._logged = logged

    def __call__(self, *arguments: Any, **named: Any) -> None:
        """Record a call."""
        self._logged.append((self._name, arguments, named))


def recording(context: Mapping[str, Any]) -> tuple[dict[str, Any], list[Logged]]:
    """Return the context with recorders instead of the logging functions, and the list of their calls."""
    logged: list[Logged] = []
    stand_ins = {name: Recorder(name, logged) for name in NAMES if name in context}
    return {**context, **stand_ins}, logged


def replay(context: Mapping[str, Any], logged: Sequence[Logged]) -> None:
    """Log the recorded calls."""
    for name, arguments, named in logged:
        context[name](*arguments, **named)
