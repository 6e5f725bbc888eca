"""Kinds of column that hold numbers: flags, scores, labels of steps."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import polars as pl
import pyarrow as pa
from polars import Expr

from fmtkit import buffers
from fmtkit.kinds import Kind
from fmtkit.sources.marks import Fault, NonFinite, Overflow, marks

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
