"""The messages of a column of conversations as one flat frame, with the row of each."""

from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa
from polars import Expr

from fmtkit.columns.messages import WIDE
from fmtkit.core import buffers
from fmtkit.core.buffers import Bools, Int64s


@dataclass(frozen=True)
class TurnTable:
    """The wide messages of a column of conversations, end to end, in order."""

    flat: pl.DataFrame
    """One row for each message, one column for each key of a wide message."""
    row: Int64s
    """For each message, the row of its conversation, ascending."""
    rows: int

    @classmethod
    def of(cls, column: pa.ChunkedArray | pa.Array) -> "TurnTable":
        """Flatten a column of lists of messages; keys that they lack are null."""
        lists = buffers.whole(column)
        sizes = np.where(buffers.validity(lists), np.diff(buffers.offsets_of(lists)), 0)
        messages = lists.flatten()
        fields = dict(zip(messages.type.names, messages.flatten(), strict=True))
        flat = pl.DataFrame(
            {
                entry.name: pl.from_arrow(fields[entry.name])
                if entry.name in fields
                else pl.Series(entry.name, [None], dtype=entry.dtype).new_from_index(
                    0, len(messages)
                )
                for entry in WIDE.fields
            }
        )
        return cls(flat, np.repeat(np.arange(len(sizes)), sizes), len(sizes))

    def where(self, condition: Expr) -> Bools:
        """Return for each message whether something is true of it; null is false."""
        found: Bools = self.flat.select(condition.fill_null(value=False)).to_series().to_numpy()
        return found

    def rows_of(self, mask: Bools) -> Bools:
        """Return for each row whether one of these messages is in it."""
        found = np.zeros(self.rows, np.bool_)
        found[self.row[mask]] = True
        return found

    def has(self, key: str) -> bool:
        """Return whether any message has a key."""
        return self.flat.get_column(key).null_count() < self.flat.height

    @property
    def sizes(self) -> Int64s:
        """Return the number of messages of each row."""
        return np.bincount(self.row, minlength=self.rows)

    @property
    def leads(self) -> Bools:
        """Return for each message whether it is the first of its row."""
        found: Bools = np.diff(self.row, prepend=-1) != 0
        return found

    @property
    def ends(self) -> Bools:
        """Return for each message whether it is the last of its row."""
        found: Bools = np.diff(self.row, append=self.rows) != 0
        return found

    def last(self, mask: Bools) -> Int64s:
        """Return for each row the index of the last of these messages, -1 if it has none."""
        found = np.full(self.rows, -1, np.int64)
        places = np.flatnonzero(mask)
        found[self.row[places]] = places
        return found

    def only(self, mask: Bools) -> "TurnTable":
        """Return the table with only these messages."""
        if mask.all():
            return self
        return TurnTable(self.flat.filter(pl.Series(mask)), self.row[mask], self.rows)

    def replaced(self, **keys: Expr) -> "TurnTable":
        """Return the table with other values under these keys."""
        return TurnTable(self.flat.with_columns(**keys), self.row, self.rows)

    def of_rows(self, kept: Bools) -> "TurnTable":
        """Return the conversations of only these rows, which are numbered anew."""
        mask = kept[self.row]
        numbers = np.cumsum(kept) - 1
        flat = self.flat.filter(pl.Series(mask))
        return TurnTable(flat, numbers[self.row[mask]], int(kept.sum()))

    def after(self, first: "TurnTable") -> "TurnTable":
        """Append these messages to those of the same rows of another table."""
        row = np.concatenate((first.row, self.row))
        order = np.argsort(row, kind="stable")
        flat = pl.concat([first.flat, self.flat], rechunk=False)[order]
        return TurnTable(flat, row[order], self.rows)

    def column(self) -> pl.Series:
        """Return the conversations as a column of lists again."""
        messages = self.flat.select(pl.struct(pl.all())).to_series()
        values = messages.to_arrow(compat_level=pl.CompatLevel.newest())
        offsets = pa.py_buffer(buffers.ends(self.sizes))
        dtype = pa.large_list(values.type)
        made = pl.from_arrow(
            pa.Array.from_buffers(dtype, self.rows, [None, offsets], children=[values])
        )
        assert isinstance(made, pl.Series)
        return made
