"""A bound column: a parameter of a converter, and where in the rows of a source its values are."""

import re
from collections.abc import Mapping
from typing import Any

from fmtkit.columns import image_values
from fmtkit.columns.kinds import Kind, ListKind, RecordKind
from fmtkit.columns.strict_kinds import absent, judge, unwrapped
from fmtkit.core.data_classes import dataclass
from fmtkit.sources.marks import Duplicated, Fault, Media, duplicate, marks

Row = Mapping[str, Any]
MEDIA = frozenset(
    {*image_values.COLUMNS, image_values.REJECTED, "audio", "audios", "video", "videos"}
)
"""Columns of media: a row with a value there is refused, unless it is an image that the type carries."""
_CONTAINER = re.compile(
    r"(?!data:)[a-z0-9][\w.-]*(?::\d+)?(?:/[\w.-]+)*(?::[\w.-]+|@sha256:[0-9a-f]+)$"
)
"""A container's name with its tag, which columns of agent traces called `image` hold: `owner/name:latest`."""
EACH = "[]."
"""What stands in a path between a list of objects and the field that is read of each."""
_OBJECT = (dict, Mapping)
"""The most common types of objects first: only the check for Mapping runs Python code."""


@dataclass(frozen=True)
class BoundColumn:
    """A parameter, the path of its column, and the shape of its values in a typed source."""

    name: str
    path: tuple[str, ...]
    """Empty if the parameter is the whole row."""
    kind: Kind
    required: bool
    shape: str | None
    """None if the first block has no such column, or rows with different shapes."""
    field: str = ""
    """The field that is read of each object of a list (text of `replies[].text`); empty for whole items."""

    @classmethod
    def at(cls, name: str, path: str, kind: Kind, *, required: bool) -> "BoundColumn":
        """Return a parameter whose values are at a dotted path, or in a field of each object of a list."""
        outer, _, field = path.partition(EACH)
        if field and isinstance(kind, ListKind):
            kind = ListKind(RecordKind({field: kind.item}))
            return cls(name, tuple(outer.split(".")), kind, required, None, field)
        return cls(name, tuple(path.split(".")), kind, required, None)

    @property
    def read_from(self) -> tuple[str, tuple[str, ...], Kind, bool]:
        """Return everything but the shape."""
        return self.name, self.path, self.kind, self.required

    def shaped(self, shape: str | None) -> "BoundColumn":
        """Return the column with a shape (`dataclasses.replace` takes ten times as long)."""
        return BoundColumn(self.name, self.path, self.kind, self.required, shape, self.field)

    @property
    def label(self) -> str:
        """Return the column's name as the user wrote it."""
        return ".".join(self.path)

    @property
    def top(self) -> str | None:
        """Return the top-level column of the source that holds it; None for the whole row."""
        return self.path[0] if self.path else None

    def lookup(self, row: Row) -> Any:
        """Return the value in a row; None if it is null or missing."""
        value: Any = row
        for key in self.path:
            if not isinstance(value, _OBJECT):
                return None
            value = value.get(key)
        return unwrapped(self.kind, value) if isinstance(value, str) else value


def top_of(path: str) -> str:
    """Return the column of the source that a path begins with: of `replies[].text` it is replies."""
    return path.partition(".")[0].removesuffix("[]")


def is_media(name: str, value: Any) -> bool:
    """Return whether a column of a row holds images, sounds or videos: [] and [null] are none.

    Nor is the name of the container in which an agent worked.
    """
    if isinstance(value, Media):
        return True
    if isinstance(value, str):
        return name in MEDIA and bool(value) and not _CONTAINER.match(value)
    if isinstance(value, list):
        return any(isinstance(i, Media) or (name in MEDIA and i is not None) for i in value)
    return name in MEDIA and bool(value)


def column_faults(column: BoundColumn, row: Row) -> list[Fault]:
    """Return the faults of the value of a column, or of its absence."""
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
    return found + judge(column.kind, unwrapped(column.kind, holder), column.label)


def kept_faults(column: BoundColumn, row: Row) -> list[Fault]:
    """Return the faults of a kept value.

    The kind was chosen to fit all values, apart from NaN and the like. Others appear only if the source
    changes during the run.
    """
    name = column.path[0]
    value = row.get(name)
    found = marks(value, name)
    if isinstance(row, Duplicated) and name in row.twice:
        found.append(duplicate(name, name))
    if not found and value is not None:
        return judge(column.kind, value, name)
    return found
