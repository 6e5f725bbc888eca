"""Kinds of column that hold values of other kinds: lists and records."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import polars as pl
import pyarrow as pa
from polars import Expr

from fmtkit.kinds import Kind, TextKind, absent
from fmtkit.number_kinds import NumberKind
from fmtkit.sources.marks import (
    Fault,
    faults,
)


@dataclass(frozen=True)
class ListKind(Kind):
    """A list of items of one kind; a null item is a fault."""

    item: Kind = field(default_factory=TextKind)
    letter: ClassVar[str] = "L"

    @property
    def nested(self) -> bool:  # type: ignore[override]
        return self.item.nested

    @property
    def open(self) -> bool:  # type: ignore[override]
        return self.item.open

    @property
    def words(self) -> str:  # type: ignore[override]
        return f"a list of {self.item.words}"

    def output(self) -> pl.DataType:
        return pl.List(self.item.output())

    def holds(self, value: Any) -> bool:
        return isinstance(value, list)

    def faults(self, value: Any, path: str) -> list[Fault]:
        if not isinstance(value, list):
            return [self._wrong(value, path)]
        found: list[Fault] = []
        for i, item in enumerate(value):
            here = f"{path}[{i}]"
            if item is None:
                found.append(Fault("null_field", here, f"{here} is null"))
            else:
                found += self.item.faults(item, here)
        return found

    def contents(self, value: Any) -> Iterator[Any]:
        return (content for item in value for content in self.item.contents(item))

    def value(self, value: Any) -> list[Any]:
        return [self.item.value(item) for item in value]

    def shape_of(self, value: Any) -> str | None:
        if not isinstance(value, list):
            return None
        shapes = {self.item.shape_of(item) for item in value if item is not None}
        return shapes.pop() if len(shapes) == 1 else (None if shapes else "plain")

    def read_type(self, shape: str, extra: pa.DataType | None) -> pa.DataType:
        inner = extra.value_type if extra is not None and pa.types.is_list(extra) else None
        return pa.list_(self.item.read_type(shape, inner))

    def read(self, parsed: Expr, shape: str) -> Expr:
        if type(self.item) in (TextKind, NumberKind):
            return parsed
        return parsed.list.eval(self.item.read(pl.element(), shape))

    def doubts(self, values: pa.Array, shape: str) -> bool:
        return self.item.doubts(values.flatten(), shape)


@dataclass(frozen=True)
class RecordKind(Kind):
    """An object with these fields; the `optional` may be absent or null, others are ignored."""

    fields: Mapping[str, Kind] = field(default_factory=dict)
    optional: frozenset[str] = frozenset()
    letter: ClassVar[str] = "R"
    words: ClassVar[str] = "an object"
    nested: ClassVar[bool] = True

    @property
    def open(self) -> bool:  # type: ignore[override]
        return any(kind.open for kind in self.fields.values())

    def output(self) -> pl.DataType:
        return pl.Struct({name: kind.output() for name, kind in self.fields.items()})

    def holds(self, value: Any) -> bool:
        return isinstance(value, dict)

    def faults(self, value: Any, path: str) -> list[Fault]:
        if not isinstance(value, dict):
            return [self._wrong(value, path)]
        found: list[Fault] = []
        for name, kind in self.fields.items():
            here = f"{path}.{name}"
            if value.get(name) is not None:
                found += kind.faults(value[name], here)
            elif name not in self.optional:
                found.append(absent(here, name, value))
        rest = {key: item for key, item in value.items() if key not in self.fields}
        marks = faults(_like(value, rest), path)
        return found + ([marks] if marks else [])

    def value(self, value: Any) -> dict[str, Any]:
        return {
            name: None if value.get(name) is None else kind.value(value[name])
            for name, kind in self.fields.items()
        }

    def contents(self, value: Any) -> Iterator[Any]:
        for name, kind in self.fields.items():
            if value.get(name) is not None:
                yield from kind.contents(value[name])

    def read_type(self, shape: str, extra: pa.DataType | None) -> pa.DataType:  # noqa: ARG002
        known = _struct_fields(extra)
        used = [
            pa.field(name, kind.read_type("plain", known.pop(name, None)))
            for name, kind in self.fields.items()
        ]
        return pa.struct([*used, *(pa.field(name, dtype) for name, dtype in known.items())])

    def read(self, parsed: Expr, shape: str) -> Expr:
        return pl.when(parsed.is_not_null()).then(
            pl.struct(
                kind.read(parsed.struct.field(name), shape).alias(name)
                for name, kind in self.fields.items()
            )
        )

    def shape_of(self, value: Any) -> str | None:
        if not isinstance(value, dict):
            return None
        plain = all(
            value.get(name) is None or kind.shape_of(value[name]) == "plain"
            for name, kind in self.fields.items()
        )
        return "plain" if plain else None

    def doubts(self, values: pa.Array, shape: str) -> bool:
        there = values.drop_null()
        return any(
            kind.doubts(there.field(name), shape)
            for name, kind in self.fields.items()
            if there.type.get_field_index(name) >= 0
        )


def _like(value: dict[str, Any], rest: dict[str, Any]) -> dict[str, Any]:
    """Keep the mark of a duplicated key on what is left of an object."""
    if type(value) is dict:
        return rest
    marked = type(value)(rest)
    marked.__dict__.update(value.__dict__)
    return marked


def _struct_fields(dtype: pa.DataType | None) -> dict[str, pa.DataType]:
    if dtype is None or not pa.types.is_struct(dtype):
        return {}
    return {dtype.field(i).name: dtype.field(i).type for i in range(dtype.num_fields)}
