"""A bound column: a parameter of a converter, and where in the rows of a source its values are."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl
from polars import Expr

from fmtkit.columns.kinds import Kind
from fmtkit.columns.strict_kinds import absent, judge
from fmtkit.sources.marks import Duplicated, Fault, duplicate, marks

Row = Mapping[str, Any]
MEDIA = frozenset({"image", "images", "audio", "audios", "video", "videos"})
"""Columns of media, which are not converted: a row with a value there is refused."""
_OBJECT = (dict, Mapping)
"""The most common types of objects first: only the check for Mapping runs Python code."""


@dataclass(frozen=True)
class BoundColumn:
    """A parameter, the place of its column, and the shape that a typed column of it has."""

    name: str
    path: tuple[str, ...]
    """Empty for the whole row."""
    kind: Kind
    required: bool
    shape: str | None
    """None where the source's first block has no such column, or only rows of mixed shapes."""

    @property
    def read_from(self) -> tuple[str, tuple[str, ...], Kind, bool]:
        """Return everything but the shape."""
        return self.name, self.path, self.kind, self.required

    def shaped(self, shape: str | None) -> "BoundColumn":
        """Return the column with a shape (`dataclasses.replace` takes ten times as long)."""
        return BoundColumn(self.name, self.path, self.kind, self.required, shape)

    @property
    def label(self) -> str:
        """Return the column's name as the user wrote it."""
        return ".".join(self.path)

    @property
    def top(self) -> str | None:
        """Return the column of the source that it is in; None for the whole row."""
        return self.path[0] if self.path else None

    def lookup(self, row: Row) -> Any:
        """Return the value in a row; None if it is null or not there."""
        value: Any = row
        for key in self.path:
            if not isinstance(value, _OBJECT):
                return None
            value = value.get(key)
        return value

    def parsed(self) -> Expr:
        """Return the expression over a typed source."""
        expression = pl.col(self.path[0])
        for key in self.path[1:]:
            expression = expression.struct.field(key)
        return expression


def column_faults(column: BoundColumn, row: Row) -> list[Fault]:
    """Return what is wrong with the value of a column, or with its absence."""
    holder: Any = row
    found: list[Fault] = []
    for i, key in enumerate(column.path):
        label = ".".join(column.path[: i + 1])
        if not isinstance(holder, _OBJECT):
            return [
                *found,
                Fault("type_error", label, f"{'.'.join(column.path[:i])} is not an object"),
            ]
        if isinstance(holder, Duplicated) and key in holder.twice:
            found.append(duplicate(key, label))
        if holder.get(key) is None:
            return [*found, absent(label, key, holder)] if column.required else found
        holder = holder[key]
    return found + judge(column.kind, holder, column.label)


def kept_faults(column: BoundColumn, row: Row) -> list[Fault]:
    """Return what is wrong with a kept value.

    Its kind was chosen to hold all of them, so that only a source that changes meanwhile can have
    others; NaN and what is like it had no say in the choice.
    """
    name = column.path[0]
    value = row.get(name)
    found = marks(value, name)
    if isinstance(row, Duplicated) and name in row.twice:
        found.append(duplicate(name, name))
    if not found and value is not None:
        return judge(column.kind, value, name)
    return found
