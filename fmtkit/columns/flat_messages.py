"""The messages of a column of conversations, end to end, and which row each belongs to."""

from functools import cached_property
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa

from fmtkit.core import buffers
from fmtkit.core.buffers import Bools, Int64s
from fmtkit.core.data_classes import dataclass

Messages = TypeVar("Messages")


@dataclass(frozen=True, eq=False)
class FlatMessages(Generic[Messages]):
    """Messages in the order of their rows: row i has `sizes[i]` of them; a null conversation has none."""

    messages: Messages
    sizes: Int64s
    valid: Bools
    """Which conversations are not null."""

    @cached_property
    def starts(self) -> Int64s:
        """Return for each row the index of its first message."""
        return buffers.ends(self.sizes)[:-1]

    @cached_property
    def rows(self) -> Int64s:
        """Return for each message the row of its conversation, ascending."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    @property
    def is_first(self) -> Bools:
        """Return which messages begin their conversation."""
        found: Bools = np.diff(self.rows, prepend=-1) != 0
        return found

    @property
    def is_last(self) -> Bools:
        """Return which messages end their conversation."""
        found: Bools = np.diff(self.rows, append=len(self.sizes)) != 0
        return found

    def rows_with(self, mask: Bools) -> Bools:
        """Return for each row whether one of these messages is in it."""
        found = np.zeros(len(self.sizes), np.bool_)
        found[self.rows[mask]] = True
        return found


def flatten(column: pa.Array | pa.ChunkedArray) -> FlatMessages[pa.StructArray]:
    """Put the messages of a column of lists of them end to end; a null list that has some makes a copy."""
    lists = buffers.whole(column)
    valid, offsets = buffers.validity(lists), buffers.offsets_of(lists)
    sizes = np.where(valid, np.diff(offsets), 0)
    first, count = int(offsets[0]), int(sizes.sum())
    # `flatten` would copy them wherever there is a null.
    is_dense = count == int(offsets[-1]) - first
    messages = lists.values.slice(first, count) if is_dense else lists.flatten()
    return FlatMessages(messages, sizes, valid)


def keys_of(messages: pa.StructArray) -> dict[str, pa.Array]:
    """Return the values that messages have under each of their keys."""
    return dict(zip(messages.type.names, messages.flatten(), strict=True))


def lists_of(messages: pa.StructArray, sizes: Int64s, valid: Bools | None = None) -> pa.Array:
    """Make a column of conversations of messages that lie end to end."""
    offsets, dtype = buffers.ends(sizes), pa.large_list(messages.type)
    if int(offsets[-1]) <= buffers.MAX_INT32:
        offsets, dtype = offsets.astype(np.int32), pa.list_(messages.type)
    parts = [buffers.bits(valid), pa.py_buffer(offsets)]
    return pa.Array.from_buffers(dtype, len(sizes), parts, children=[messages])
