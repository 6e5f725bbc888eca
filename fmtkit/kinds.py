"""Kinds of source column: what a value may look like, and the one dtype it becomes.

A kind judges a value of a row that was parsed strictly (`faults`, `value`) and says how the fast
parser reads the column where a file keeps to one shape (`shape_of`, `read_type`, `read`). Both ways
end in the same dtype, so that a row means the same whoever parsed it.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import polars as pl
import pyarrow as pa
from polars import Expr

from fmtkit import buffers
from fmtkit.sources.strict import (
    Duplicated,
    Fault,
    NonFinite,
    Overflow,
    canonical,
    duplicate,
    faults,
    kind_of,
    marks,
)


@dataclass(frozen=True)
class Kind(ABC):
    """Base of every kind; `letter` is its name in the tables of docs/formats.md."""

    letter: ClassVar[str] = ""
    words: ClassVar[str] = ""
    dtype: ClassVar[pl.DataType] = pl.String()
    nested: ClassVar[bool] = False
    """Whether unknown keys may hide inside a value, where the fast parser must refuse them."""
    open: ClassVar[bool] = False
    """Whether only the strict parser can read it."""

    def output(self) -> pl.DataType:
        """Return the dtype of the column that converters see."""
        return self.dtype

    def faults(self, value: Any, path: str) -> list[Fault]:
        """Return what is wrong with a value that is there and not null."""
        marks = faults(value, path)
        found = [] if self.holds(value) else [self._wrong(value, path)]
        return found + ([marks] if marks else [])

    @abstractmethod
    def holds(self, value: Any) -> bool:
        """Tell whether a value is of this kind at all."""

    def value(self, value: Any) -> Any:
        """Return a sound value as converters see it."""
        return value

    def shape_of(self, value: Any) -> str | None:
        """Return which of the kind's shapes a sound value has; None if only row by row."""
        return "plain" if self.holds(value) else None

    @abstractmethod
    def read_type(self, shape: str, extra: pa.DataType | None) -> pa.DataType:
        """Return the type the fast parser reads; `extra` is what the file was seen to hold."""

    def read(self, parsed: Expr, shape: str) -> Expr:  # noqa: ARG002
        """Turn what the fast parser read into what converters see."""
        return parsed

    def doubts(self, values: pa.Array, shape: str) -> bool:  # noqa: ARG002
        """Tell whether parsed values hold any that the strict parser would refuse."""
        return False

    def _wrong(self, value: Any, path: str) -> Fault:
        return Fault("type_error", path, f"{path} holds {kind_of(value)}, not {self.words}")


@dataclass(frozen=True)
class TextKind(Kind):
    """Text; a number is never made one."""

    letter: ClassVar[str] = "T"
    words: ClassVar[str] = "text"

    def holds(self, value: Any) -> bool:
        return isinstance(value, str)

    def read_type(self, shape: str, extra: pa.DataType | None) -> pa.DataType:  # noqa: ARG002
        return pa.string()


_INT64_END = 2.0**63


def _numbers(values: pa.Array) -> np.ndarray:
    """Return the numbers that are there, as floats: NaN, infinity and beyond int64 stay visible."""
    found = values.drop_null().cast(pa.float64(), safe=False)
    # Not to_numpy(): it imports pandas where that is installed.
    return buffers.numbers(found.buffers()[1], np.float64, found.offset, len(found))


def holds_strange_numbers(values: pa.Array) -> bool:
    """Tell whether a number in parsed values, under a key that nobody uses, is NaN or beyond int64."""
    dtype = values.type
    if pa.types.is_floating(dtype):
        return bool((~(np.abs(_numbers(values)) < _INT64_END)).any())
    if not _has_floats(dtype):
        return False
    parts = values.flatten()
    return any(map(holds_strange_numbers, parts if pa.types.is_struct(dtype) else [parts]))


def _has_floats(dtype: pa.DataType) -> bool:
    if pa.types.is_struct(dtype):
        return any(_has_floats(dtype.field(i).type) for i in range(dtype.num_fields))
    if pa.types.is_list(dtype) or pa.types.is_large_list(dtype):
        return _has_floats(dtype.value_type)
    return bool(pa.types.is_floating(dtype))


@dataclass(frozen=True)
class FlagKind(Kind):
    """true, false, 0, 1, 0.0 or 1.0; texts only through `texts`, which maps them."""

    letter: ClassVar[str] = "F"
    words: ClassVar[str] = "true, false, 0 or 1"
    dtype: ClassVar[pl.DataType] = pl.Boolean()
    texts: Mapping[str, bool] = field(default_factory=dict)

    def holds(self, value: Any) -> bool:
        if isinstance(value, str):
            return value in self.texts
        return isinstance(value, bool) or (isinstance(value, int | float) and value in (0, 1))

    def value(self, value: Any) -> bool:
        return self.texts[value] if isinstance(value, str) else bool(value)

    def shape_of(self, value: Any) -> str | None:
        if not self.holds(value):
            return None
        if isinstance(value, bool):
            return "plain"
        return "text" if isinstance(value, str) else "number"

    def read_type(self, shape: str, extra: pa.DataType | None) -> pa.DataType:  # noqa: ARG002
        return {"plain": pa.bool_(), "number": pa.float64(), "text": pa.string()}[shape]

    def read(self, parsed: Expr, shape: str) -> Expr:
        if shape == "text":
            return parsed.replace_strict(dict(self.texts), default=None, return_dtype=pl.Boolean)
        return parsed.cast(pl.Boolean)

    def doubts(self, values: pa.Array, shape: str) -> bool:
        if shape == "text":
            return bool(set(values.unique().to_pylist()) - {None, *self.texts})
        if shape == "plain":
            return False
        numbers = _numbers(values)
        return bool(((numbers != 0) & (numbers != 1)).any())


@dataclass(frozen=True)
class NumberKind(Kind):
    """A number, as a float64."""

    letter: ClassVar[str] = "number"
    words: ClassVar[str] = "a number"
    dtype: ClassVar[pl.DataType] = pl.Float64()

    def faults(self, value: Any, path: str) -> list[Fault]:
        if isinstance(value, NonFinite | Overflow):
            # A number all the same: not a type_error.
            return marks(value, path)
        return super().faults(value, path)

    def holds(self, value: Any) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool)

    def value(self, value: Any) -> float:
        return float(value)

    def read_type(self, shape: str, extra: pa.DataType | None) -> pa.DataType:  # noqa: ARG002
        return pa.float64()

    def doubts(self, values: pa.Array, shape: str) -> bool:  # noqa: ARG002
        return bool((~(np.abs(_numbers(values)) < _INT64_END)).any())


@dataclass(frozen=True)
class LabelKind(NumberKind):
    """A step's label: true, false, or how likely it is right, from 0 to 1; as a float64."""

    letter: ClassVar[str] = "F or number"
    words: ClassVar[str] = "true, false or a number"

    def holds(self, value: Any) -> bool:
        return isinstance(value, bool | int | float)

    def faults(self, value: Any, path: str) -> list[Fault]:
        found = super().faults(value, path)
        if not found and not 0 <= value <= 1:
            return [Fault("value_error", path, f"{path} is {value}, not from 0 to 1")]
        return found

    def shape_of(self, value: Any) -> str | None:
        if not self.holds(value):
            return None
        return "plain" if isinstance(value, bool) else "number"

    def read_type(self, shape: str, extra: pa.DataType | None) -> pa.DataType:  # noqa: ARG002
        return pa.bool_() if shape == "plain" else pa.float64()

    def read(self, parsed: Expr, shape: str) -> Expr:
        return parsed.cast(pl.Float64) if shape == "plain" else parsed

    def doubts(self, values: pa.Array, shape: str) -> bool:
        if shape == "plain":
            return False
        numbers = _numbers(values)
        return bool((~((numbers >= 0) & (numbers <= 1))).any())


@dataclass(frozen=True)
class OpenKind(Kind):
    """Any JSON value, kept as canonical JSON text."""

    letter: ClassVar[str] = "any"
    words: ClassVar[str] = "any value"
    open: ClassVar[bool] = True

    def holds(self, value: Any) -> bool:  # noqa: ARG002
        return True

    def value(self, value: Any) -> str | None:
        return canonical(value)

    def read_type(self, shape: str, extra: pa.DataType | None) -> pa.DataType:  # noqa: ARG002
        return pa.string()


@dataclass(frozen=True)
class RowKind(OpenKind):
    """The whole row, whatever its columns, as canonical JSON text; its path is empty."""

    letter: ClassVar[str] = "the whole row"
    words: ClassVar[str] = "a row"

    def faults(self, value: Any, path: str) -> list[Fault]:  # noqa: ARG002
        # A row has no path of its own: what is wrong is named by the column that it is in.
        found = [fault for name, item in value.items() for fault in marks(item, name)]
        twice = value.twice if isinstance(value, Duplicated) else ()
        return found + [duplicate(key, key) for key in twice]


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


def absent(path: str, name: str, holder: Mapping[str, Any]) -> Fault:
    """Tell a key that is null from one that is not there, and name what was probably meant."""
    from fmtkit.errors import near_match

    if name in holder:
        return Fault("null_field", path, f"{path} is null")
    near = near_match(name, [key for key in holder if isinstance(key, str)])
    return Fault(
        "missing_field", path, f"no {path}" + (f"; did you mean {near!r}?" if near else "")
    )


def texts_as(kind: Kind, texts: Mapping[str, bool]) -> Kind:
    """Let a flag be written as one of these texts."""
    return replace(kind, texts=texts) if isinstance(kind, FlagKind) else kind
