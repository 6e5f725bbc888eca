"""The plan by which the blocks of a source are read: what is bound to its columns, and which it has."""

from collections.abc import Iterable
from dataclasses import dataclass

import polars as pl

from fmtkit.columns.typed_kinds import dtype_of, read
from fmtkit.converting.binding import Binding
from fmtkit.converting.bound_column import Row
from fmtkit.sources.marks import is_unicode

MOST_NAMES = 256
"""Of the columns that a source shows: more are data."""


@dataclass(frozen=True)
class ReadPlan:
    """How the rows of a source become what a converter sees."""

    binding: Binding
    seen: tuple[str, ...] = ()
    """The columns of the first block."""

    @classmethod
    def of(cls, binding: Binding, sample: Iterable[Row]) -> "ReadPlan":
        """Plan the reading of a source from the rows of its first block."""
        seen: dict[str, None] = {}
        for row in sample:
            if len(seen) <= MOST_NAMES:
                seen |= dict.fromkeys(filter(is_unicode, row))
        return cls(binding, tuple(seen))

    @property
    def ignored(self) -> tuple[str, ...]:
        """Return the columns of the first block that the type does not use."""
        if self.binding.converter.takes_rows:
            return ()
        used = {column.top for column in (*self.binding.columns, *self.binding.kept)}
        return tuple(name for name in self.seen if name not in used)

    def select(self, batch: pl.DataFrame, numbers: pl.Series) -> pl.DataFrame:
        """Turn the columns of a typed source into the frame that the converter sees."""
        expressions = []
        absent = {name for name, dtype in batch.schema.items() if dtype == pl.Null}
        for column in self.binding.every:
            if column in self.binding.watched and column.path[0] in absent:
                expressions.append(pl.lit([], dtype=dtype_of(column.kind)).alias(column.name))
            elif column.shape is None:
                expressions.append(pl.lit(None, dtype=dtype_of(column.kind)).alias(column.name))
            else:
                seen = read(column.kind, column.parsed(), column.shape)
                expressions.append(seen.alias(column.name))
        frame = batch.select(expressions) if expressions else pl.DataFrame()
        if frame.height != len(numbers):
            frame = batch.with_columns(expressions).select(c.name for c in self.binding.every)
        return frame.with_columns(numbers.alias("__row"))
