"""Row expansion: a source row that makes several canonical rows."""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from fmtkit.problems import Column


@dataclass(frozen=True)
class Several(Column):
    """A column with a list for each source row: one value for each canonical row that it makes."""


def several(column: Column) -> Several:
    """Say that a column holds one value for each row that a source row makes."""
    return Several(column.value, column.problems, column.warnings, column.steps)


def expand(frame: pl.DataFrame, columns: Sequence[tuple[str, Column]]) -> pl.DataFrame:
    """Make one row of each item of the columns of several values; other columns are repeated."""
    names = [name for name, column in columns if isinstance(column, Several)]
    return frame.explode(names, empty_as_null=False, keep_nulls=False) if names else frame
