"""The messages of a column of conversations as one flat frame, with the row of each."""

from dataclasses import replace

import numpy as np
import polars as pl
import pyarrow as pa
from polars import Expr

from fmtkit.columns.flat_messages import FlatMessages, flatten, keys_of, lists_of
from fmtkit.columns.message_rules import WIDE
from fmtkit.core.buffers import Bools, Int64s
from fmtkit.core.data_classes import dataclass


@dataclass(frozen=True, eq=False)
class TurnTable(FlatMessages[pl.DataFrame]):
    """The wide messages of a column of conversations: a row for each, a column for each of its keys."""

    @classmethod
    def of(cls, column: pa.ChunkedArray | pa.Array) -> "TurnTable":
        """Flatten a column of lists of messages; keys that they lack are null."""
        found = flatten(column)
        there = keys_of(found.messages)
        count = len(found.messages)
        flat = {
            entry.name: pl.from_arrow(there[entry.name])
            if entry.name in there
            else pl.Series(entry.name, [None], dtype=entry.dtype).new_from_index(0, count)
            for entry in WIDE.fields
        }
        return cls(pl.DataFrame(flat), found.sizes, found.valid)

    def where(self, condition: Expr) -> Bools:
        """Return for each message whether something is true of it; null is false."""
        found: Bools = self.messages.select(condition.fill_null(value=False)).to_series().to_numpy()
        return found

    def has(self, key: str) -> bool:
        """Return whether any message has a key."""
        return self.messages.get_column(key).null_count() < self.messages.height

    def last(self, mask: Bools) -> Int64s:
        """Return for each row the index of the last of these messages, -1 if it has none."""
        found = np.full(len(self.sizes), -1, np.int64)
        places = np.flatnonzero(mask)
        found[self.rows[places]] = places
        return found

    def only(self, mask: Bools) -> "TurnTable":
        """Return the table with only these messages."""
        if mask.all():
            return self
        sizes = np.bincount(self.rows[mask], minlength=len(self.sizes))
        return TurnTable(self.messages.filter(pl.Series(mask)), sizes, self.valid)

    def replaced(self, **keys: Expr) -> "TurnTable":
        """Return the table with other values under these keys."""
        return replace(self, messages=self.messages.with_columns(**keys))

    def of_rows(self, kept: Bools) -> "TurnTable":
        """Return the conversations of only these rows, which are numbered anew."""
        flat = self.messages.filter(pl.Series(kept[self.rows]))
        return TurnTable(flat, self.sizes[kept], self.valid[kept])

    def after(self, first: "TurnTable") -> "TurnTable":
        """Append these messages to those of the same rows of another table."""
        order = np.argsort(np.concatenate((first.rows, self.rows)), kind="stable")
        flat = pl.concat([first.messages, self.messages], rechunk=False)[order]
        return TurnTable(flat, first.sizes + self.sizes, first.valid | self.valid)

    def column(self) -> pl.Series:
        """Return the conversations as a column of lists again."""
        messages = self.messages.select(pl.struct(pl.all())).to_series()
        made = pl.from_arrow(
            lists_of(messages.to_arrow(compat_level=pl.CompatLevel.newest()), self.sizes)
        )
        assert isinstance(made, pl.Series)
        return made
