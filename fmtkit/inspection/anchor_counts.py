"""How many blocks strided EBFT would generate in tokenised rows, and how much of them: by columns.

The same anchors as fmtkit.counting.anchors.row_anchors places row by row; a test compares the two.
"""

from dataclasses import field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fmtkit.core.data_classes import dataclass
from fmtkit.counting.anchors import AnchorRule
from fmtkit.counting.lengths import Lengths, Tally, summarize

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Placed:
    """What was found in each row of a batch."""

    tokens: Ints
    """Without padding."""
    anchors: Ints
    generated: Ints
    """Tokens that are in a window; those of two windows count once."""
    padded_first: Bools
    """Whether padding comes before a token."""


@dataclass(frozen=True)
class AnchorSummary:
    """The windows of all rows, as strided EBFT would generate them."""

    rule: AnchorRule
    rows: int
    rows_without: int
    """Rows that hold no window."""
    anchors: int
    per_row: Lengths
    """Anchors of a row; its `tokens` are anchors."""
    tokens: int
    generated: int
    """Tokens that are in a window."""


@dataclass
class AnchorTally:
    """Collect what batches hold."""

    per_row: Tally = field(default_factory=Tally)
    tokens: int = 0
    generated: int = 0

    def add(self, placed: Placed) -> None:
        """Count the rows of a batch."""
        self.per_row.add(placed.anchors)
        self.tokens += int(placed.tokens.sum())
        self.generated += int(placed.generated.sum())

    def absorb(self, other: "AnchorTally") -> None:
        """Add the counts of another tally."""
        self.per_row.absorb(other.per_row)
        self.tokens += other.tokens
        self.generated += other.generated

    def summary(self, rule: AnchorRule) -> AnchorSummary | None:
        """Return the figures; None where no row has tokens."""
        found = summarize("anchors", self.per_row)
        if found is None:
            return None
        without = self.per_row.counts.get(0, 0)
        return AnchorSummary(
            rule, found.rows, without, found.tokens, found, self.tokens, self.generated
        )


def place_anchors(rule: AnchorRule, table: pa.Table) -> Placed:
    """Place the windows of a batch of a Tokens table.

    Of n rows with A candidates in all: candidates are numbers and rows of shape (A,), figures (n,).
    """
    attended = _Flags.of(table["attention_mask"])
    tokens = attended.between(attended.starts, attended.ends)
    padded_first = attended.between(attended.starts, attended.starts + tokens) != tokens
    prompts = table["prompt_length"].to_numpy().astype(np.int64)
    first = np.maximum(prompts + rule.min_completion_prefix, rule.context_length)
    room = np.where(padded_first, -1, tokens - rule.generate_max_len - first)
    counts = np.where(room >= 0, room // rule.stride + 1, 0)
    rows = np.repeat(np.arange(table.num_rows), counts)
    steps = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    anchors = first[rows] + steps * rule.stride
    if "anchor_mask" in table.column_names:
        unmasked = pc.is_null(table["anchor_mask"].combine_chunks()).to_numpy(zero_copy_only=False)
        inside = _inside(rule, _Flags.of(table["anchor_mask"]), rows, anchors) | unmasked[rows]
        rows, anchors = rows[inside], anchors[inside]
    found = np.bincount(rows, minlength=table.num_rows)
    return Placed(tokens, found, _covered(rule, rows, anchors, table.num_rows), padded_first)


@dataclass(frozen=True, eq=False)
class _Flags:
    """A column of lists of 0 and 1, by where each list begins and ends among all values."""

    sums: Ints
    starts: Ints
    ends: Ints

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> "_Flags":
        lists = column.combine_chunks()
        sizes = pc.fill_null(pc.list_value_length(lists), 0).to_numpy().astype(np.int64)
        values = pc.list_flatten(lists).to_numpy().astype(np.int64)
        ends = np.cumsum(sizes)
        return cls(np.append(0, np.cumsum(values != 0)), ends - sizes, ends)

    def between(self, starts: Ints, ends: Ints) -> Ints:
        """Count the ones between places among all values."""
        found: Ints = self.sums[ends] - self.sums[starts]
        return found


def _inside(rule: AnchorRule, mask: _Flags, rows: Ints, anchors: Ints) -> Bools:
    """Return which windows hold only ones."""
    starts = np.minimum(mask.starts[rows] + anchors, mask.ends[rows])
    ends = np.minimum(starts + rule.generate_max_len, mask.ends[rows])
    inside: Bools = mask.between(starts, ends) == ends - starts
    return inside


def _covered(rule: AnchorRule, rows: Ints, anchors: Ints, count: int) -> Ints:
    """Count the tokens in the windows of each row: a window reaches at most to the next anchor."""
    gaps = np.full(len(anchors), rule.generate_max_len, dtype=np.int64)
    same = rows[1:] == rows[:-1]
    gaps[:-1][same] = np.minimum(np.diff(anchors)[same], rule.generate_max_len)
    covered: Ints = np.bincount(rows, weights=gaps, minlength=count).astype(np.int64)
    return covered
