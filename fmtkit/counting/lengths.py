"""Statistics of lengths in tokens: exact for any number of rows, with only the histogram in memory.

The Nth percentile is the smallest length that at least N percent of the rows do not exceed: truncated to
it, that share of the rows is complete.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fmtkit.core.data_classes import dataclass

Ints = npt.NDArray[np.int64]


class Counter(Protocol):
    """Counts the tokens or characters of strings."""

    def count(self, texts: pa.Array) -> Ints:
        """Return the count of each string; 0 for a null."""
        ...

    def count_joined(self, left: pa.Array, right: pa.Array, counts: Ints) -> Ints:
        """Return the count of `left + right` in each row; `counts` are the sums for the two."""
        ...


class CharacterCounter:
    """Counts characters, for use without a tokenizer."""

    def count(self, texts: pa.Array) -> Ints:
        """Return the number of characters of each string; 0 for a null."""
        counts: Ints = pc.fill_null(pc.utf8_length(texts), 0).to_numpy(zero_copy_only=False)
        return counts.astype(np.int64)

    def count_joined(self, left: pa.Array, right: pa.Array, counts: Ints) -> Ints:  # noqa: ARG002
        """Return `counts`, since characters do not merge."""
        return counts


PERCENTILES = (50, 90, 95, 99)
BINS = 40


@dataclass
class Tally:
    """The number of rows of each length."""

    counts: dict[int, int] = field(default_factory=dict)

    def add(self, lengths: Ints) -> None:
        """Add the lengths of more rows."""
        values, times = np.unique(lengths, return_counts=True)
        for value, number in zip(values.tolist(), times.tolist(), strict=True):
            self.counts[value] = self.counts.get(value, 0) + number

    def absorb(self, other: "Tally") -> None:
        """Add the counts of another tally."""
        for value, number in other.counts.items():
            self.counts[value] = self.counts.get(value, 0) + number

    def sorted(self) -> tuple[Ints, Ints]:
        """Return the distinct lengths, ascending, and the number of rows of each."""
        table = np.array(sorted(self.counts.items()), dtype=np.int64).reshape(-1, 2)
        return table[:, 0], table[:, 1]

    def longer_than(self, limit: int) -> int:
        """Return the number of longer rows."""
        return sum(number for length, number in self.counts.items() if length > limit)

    def beyond(self, limit: int) -> int:
        """Return the number of tokens beyond a limit."""
        return sum((length - limit) * n for length, n in self.counts.items() if length > limit)


@dataclass(frozen=True)
class Bin:
    """Rows with a length of at least `start` and less than `end`."""

    start: int
    end: int
    rows: int


@dataclass(frozen=True)
class Lengths:
    """The statistics of one column, or of prompt and reply together."""

    name: str
    rows: int
    tokens: int
    mean: float
    p50: int
    p90: int
    p95: int
    p99: int
    max: int
    bins: tuple[Bin, ...]
    logarithmic: bool
    """Whether the bins are logarithmic, since the tail is long."""


def summarize(name: str, tally: Tally, axis: Tally | None = None) -> Lengths | None:
    """Return the statistics of a tally; None if it is empty.

    The bins cover the range of `axis`, a tally of all lengths that are drawn on the same axis.
    """
    values, times = tally.sorted()
    if len(values) == 0:
        return None
    rows, tokens = int(times.sum()), int((values * times).sum())
    p50, p90, p95, p99 = _percentiles(values, times)
    longest = int(values[-1])
    edges, logarithmic = _edges(axis or tally)
    heights = np.add.reduceat(np.append(times, 0), np.searchsorted(values, edges[:-1]))
    filled = np.searchsorted(values, edges[1:]) > np.searchsorted(values, edges[:-1])
    bins = tuple(
        Bin(start, end, height if is_filled else 0)
        for start, end, height, is_filled in zip(
            edges[:-1].tolist(), edges[1:].tolist(), heights.tolist(), filled.tolist(), strict=True
        )
    )
    return Lengths(
        name, rows, tokens, tokens / rows, p50, p90, p95, p99, longest, bins, logarithmic
    )


AXES = (("prompt+chosen", "prompt+rejected"), ("chosen", "rejected"))
"""Sequences that are compared with each other, so that their histograms have the same bins."""


def summarize_all(tallies: Sequence[tuple[str, Tally]]) -> tuple[Lengths, ...]:
    """Return the statistics of tallies by name; those of one of AXES have the same bins."""
    axes: dict[str, Tally] = {}
    for names in AXES:
        both = Tally()
        for name, tally in tallies:
            if name in names:
                both.absorb(tally)
                axes[name] = both
    figures = (summarize(name, tally, axes.get(name)) for name, tally in tallies)
    return tuple(figure for figure in figures if figure is not None)


def _percentiles(values: Ints, times: Ints) -> list[int]:
    ranks = np.ceil(np.array(PERCENTILES) * times.sum() / 100).astype(np.int64)
    percentiles: list[int] = values[np.searchsorted(np.cumsum(times), ranks)].tolist()
    return percentiles


def _edges(axis: Tally) -> tuple[Ints, bool]:
    """Return the edges of the bins of an axis, and whether they are logarithmic."""
    values, times = axis.sorted()
    shortest, longest = int(values[0]), int(values[-1])
    logarithmic = longest > 6 * max(_percentiles(values, times)[0], 1)
    if logarithmic:
        edges = np.geomspace(max(shortest, 1), longest + 1, BINS + 1)
        edges[0] = shortest
    else:
        edges = np.linspace(shortest, longest + 1, min(BINS, longest + 1 - shortest) + 1)
    return np.unique(np.ceil(edges).astype(np.int64)), logarithmic


JOINT = {
    "chosen": "prompt+chosen",
    "rejected": "prompt+rejected",
    "completion": "prompt+completion",
    "ground_truth": "prompt+ground_truth",
}
"""Reply -> the name of the sequence that the model reads: the prompt and that reply."""


@dataclass(frozen=True)
class RowLengths:
    """Tokens of each row of a batch, by column and joint."""

    columns: Mapping[str, Ints]

    @property
    def sides(self) -> tuple[str, ...]:
        """Return the names of the sequences of a row that the model reads."""
        joint = tuple(name for name in self.columns if "+" in name)
        return joint or tuple(self.columns)[:1]

    @property
    def longest(self) -> Ints:
        """Return the length of each row's longest sequence."""
        longest: Ints = np.max([self.columns[side] for side in self.sides], axis=0)
        return longest


def count_columns(texts: Mapping[str, pa.Array], counter: Counter) -> RowLengths:
    """Count the tokens of text columns, and those of prompt and reply tokenized together."""
    found = {name: counter.count(array) for name, array in texts.items()}
    joint: dict[str, Ints] = {}
    if "prompt" in texts:
        for reply in JOINT.keys() & texts.keys():
            added = found["prompt"] + found[reply]
            joint[JOINT[reply]] = counter.count_joined(texts["prompt"], texts[reply], added)
    return RowLengths({**found, **{name: joint[name] for name in JOINT.values() if name in joint}})


def count_lists(texts: pa.ListArray, counter: Counter) -> Ints:
    """Count the tokens of a column of lists of strings (steps, contents), each string separately."""
    lists = texts.cast(pa.large_list(pa.large_string()))
    counts = counter.count(lists.flatten())
    rows = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
    total: Ints = np.bincount(rows, weights=counts, minlength=len(lists)).astype(np.int64)
    return total
