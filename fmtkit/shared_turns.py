"""The turns that two dialogs share: where a pair with tool calls is cut into prompt and replies.

An expression cannot compare two lists item by item, so this is a function over whole columns.
"""

from collections.abc import Sequence

import numpy as np
import polars as pl
from polars import Expr

from fmtkit.buffers import Bools, Int64s

ASKING = ("user", "tool")
"""Roles after whose turn the assistant speaks."""


def shared_turns(one: Expr, other: Expr) -> Expr:
    """Count the messages that both dialogs begin with, up to the last one that asks for a reply."""
    return pl.map_batches([one, other], _count, return_dtype=pl.Int64, is_elementwise=True)


def _count(columns: Sequence[pl.Series]) -> pl.Series:
    one, other = columns
    sizes = np.minimum(_sizes(one), _sizes(other))
    rows = np.flatnonzero(sizes)
    firsts = np.cumsum(sizes) - sizes
    within = np.arange(int(sizes.sum())) - np.repeat(firsts, sizes)
    ours = _messages(one, np.repeat(_starts(one), sizes) + within)
    theirs = _messages(other, np.repeat(_starts(other), sizes) + within)
    asks = ours.struct.field("role").is_in(list(ASKING)).fill_null(value=False).to_numpy()
    counts = np.zeros(len(one), np.int64)
    if len(rows):
        differs = np.where(_equal(ours, theirs), sizes.max(), within)
        common = np.minimum.reduceat(differs, firsts[rows])
        asking = np.where(asks & (within < np.repeat(common, sizes[rows])), within + 1, 0)
        counts[rows] = np.maximum.reduceat(asking, firsts[rows])
    return pl.Series(one.name, counts)


def _sizes(dialogs: pl.Series) -> Int64s:
    return dialogs.list.len().fill_null(0).cast(pl.Int64).to_numpy()


def _starts(dialogs: pl.Series) -> Int64s:
    sizes = _sizes(dialogs)
    starts: Int64s = np.cumsum(sizes) - sizes
    return starts


def _messages(dialogs: pl.Series, places: Int64s) -> pl.Series:
    """Return the messages at these places of all dialogs laid end to end."""
    return dialogs.filter(dialogs.list.len() > 0).list.explode().gather(places)


def _equal(ours: pl.Series, theirs: pl.Series) -> Bools:
    same = np.ones(len(ours), np.bool_)
    for name in ours.struct.fields:
        if name != "train":
            same &= ours.struct.field(name).eq_missing(theirs.struct.field(name)).to_numpy()
    return same
