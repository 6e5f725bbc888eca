"""The two conversations of each row: their common turns, whether they are equal, and joining them.

An expression cannot compare two lists item by item, and polars' own concat_list of messages takes 20
times as long, so these are functions over whole columns. A null conversation has no messages; the marks in
`train` are not part of what is said.
"""

from collections.abc import Sequence

import numpy as np
import polars as pl
import pyarrow as pa
from polars import Expr

from fmtkit.columns.flat_messages import FlatMessages, flatten, lists_of
from fmtkit.columns.message_rules import same_message
from fmtkit.columns.turn_sources import PROMPT_END_ROLES
from fmtkit.core import buffers
from fmtkit.core.buffers import Bools, Int64s
from fmtkit.core.data_classes import dataclass
from fmtkit.core.message_keys import MARKS


def shared_turns(one: Expr, other: Expr) -> Expr:
    """Count the messages that both conversations begin with, up to the last one that asks for a reply."""
    return pl.map_batches([one, other], _shared, return_dtype=pl.Int64, is_elementwise=True)


def same_conversation(one: Expr, other: Expr) -> Expr:
    """Return whether two conversations hold the same messages; null where there is none to compare."""
    return pl.map_batches([one, other], _same, return_dtype=pl.Boolean, is_elementwise=True)


def begins_with(conversation: Expr, turns: Expr, where: Expr) -> Expr:
    """Return whether a conversation begins with these turns; true where the mask leaves a row out."""
    return pl.map_batches(
        [conversation, turns, where], _begins, return_dtype=pl.Boolean, is_elementwise=True
    )


def joined(first: Expr, second: Expr, where: Expr) -> Expr:
    """Append the second conversation to the first in some rows; elsewhere keep only the second."""
    # Both are lists of the same messages; polars takes the dtype of the input, since none is given.
    return pl.map_batches([second, first, where], _joined, is_elementwise=True)


def distinct_conversations(conversations: pl.Series) -> Int64s:
    """Number conversations so that two have one number if, and only if, they hold the same messages."""
    found = _flat(conversations)
    names = [name for name in found.messages.struct.fields if name not in MARKS]
    messages = _numbered(found.messages.struct.unnest().select(names)).to_arrow()
    lists = pl.from_arrow(lists_of(messages, found.sizes))
    assert isinstance(lists, pl.Series)
    # As text, since polars does not group by lists.
    keys = lists.cast(pl.List(pl.String)).list.join(" ")
    return _numbered(keys.alias("said").to_frame()).to_numpy()


def _flat(conversations: pl.Series) -> FlatMessages[pl.Series]:
    flat = flatten(conversations.to_arrow(compat_level=pl.CompatLevel.newest()))
    messages = pl.from_arrow(flat.messages)
    assert isinstance(messages, pl.Series)
    return FlatMessages(messages, flat.sizes, flat.valid)


def _numbered(frame: pl.DataFrame) -> pl.Series:
    """Return for each row the number of the first row with the same values."""
    own = frame.with_columns(__place=pl.int_range(pl.len()))
    return own.select(pl.col("__place").first().over(frame.columns)).to_series()


@dataclass(frozen=True)
class _Beginnings:
    """The first messages of two conversations, side by side: `sizes` of each row."""

    sizes: Int64s
    within: Int64s
    """For each pair of messages, its index in its row."""
    equal: Bools
    asks: Bools
    """Whether the first conversation's message asks for a reply."""

    @classmethod
    def of(
        cls, one: FlatMessages[pl.Series], other: FlatMessages[pl.Series], sizes: Int64s
    ) -> "_Beginnings":
        within = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        pairs = pl.DataFrame(
            {
                "one": one.messages.gather(np.repeat(one.starts, sizes) + within),
                "other": other.messages.gather(np.repeat(other.starts, sizes) + within),
            }
        )
        layout = pairs.schema["one"]
        assert isinstance(layout, pl.Struct)
        flags = pairs.select(
            equal=same_message(pl.col("one"), pl.col("other"), layout),
            asks=pl.col("one")
            .struct.field("role")
            .is_in(list(PROMPT_END_ROLES))
            .fill_null(value=False),
        )
        return cls(sizes, within, flags["equal"].to_numpy(), flags["asks"].to_numpy())

    def common(self) -> Int64s:
        """Return for each row how many messages are equal before the first one that is not."""
        counts = self.sizes.copy()
        rows = np.flatnonzero(self.sizes)
        if len(rows):
            firsts = (np.cumsum(self.sizes) - self.sizes)[rows]
            differs = np.where(self.equal, np.repeat(self.sizes, self.sizes), self.within)
            counts[rows] = np.minimum.reduceat(differs, firsts)
        return counts


def _shared(columns: Sequence[pl.Series]) -> pl.Series:
    one, other = map(_flat, columns)
    both = _Beginnings.of(one, other, np.minimum(one.sizes, other.sizes))
    counts = both.common()
    rows = np.flatnonzero(both.sizes)
    if len(rows):
        firsts = (np.cumsum(both.sizes) - both.sizes)[rows]
        asking = both.asks & (both.within < np.repeat(counts, both.sizes))
        counts[rows] = np.maximum.reduceat(np.where(asking, both.within + 1, 0), firsts)
    return pl.Series(columns[0].name, counts)


def _same(columns: Sequence[pl.Series]) -> pl.Series:
    one, other = map(_flat, columns)
    even = one.sizes == other.sizes
    sizes = np.where(even, one.sizes, 0)
    same = even & (_Beginnings.of(one, other, sizes).common() == sizes)
    return _flags(columns[0].name, same, one.valid & other.valid)


def _begins(columns: Sequence[pl.Series]) -> pl.Series:
    asked = columns[2].fill_null(value=False).to_numpy()
    name = columns[0].name
    if not asked.any():
        return _flags(name, ~asked, np.ones(len(asked), np.bool_))
    one, other = map(_flat, columns[:2])
    long_enough = one.sizes >= other.sizes
    sizes = np.where(long_enough & asked, other.sizes, 0)
    same = long_enough & (_Beginnings.of(one, other, sizes).common() == sizes)
    return _flags(name, same | ~asked, (one.valid & other.valid) | ~asked)


def _joined(columns: Sequence[pl.Series]) -> pl.Series:
    second, first = map(_flat, columns[:2])
    both = columns[2].to_numpy()
    lead = np.where(both, first.sizes, 0)
    sizes = lead + second.sizes
    within = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    places = np.repeat(len(first.messages) + second.starts - lead, sizes) + within
    places = np.where(
        within < np.repeat(lead, sizes), np.repeat(first.starts, sizes) + within, places
    )
    laid = pl.concat([first.messages, second.messages], rechunk=False).gather(places)
    messages = laid.to_arrow(compat_level=pl.CompatLevel.newest())
    made = pl.from_arrow(lists_of(messages, sizes, second.valid & (first.valid | ~both)))
    assert isinstance(made, pl.Series)
    return made.alias(columns[0].name)


def _flags(name: str, flags: Bools, valid: Bools) -> pl.Series:
    packed = pa.py_buffer(np.packbits(flags, bitorder="little"))
    made = pl.from_arrow(
        pa.Array.from_buffers(pa.bool_(), len(flags), [buffers.bits(valid), packed])
    )
    assert isinstance(made, pl.Series)
    return made.alias(name)
