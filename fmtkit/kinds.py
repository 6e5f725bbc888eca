"""Kinds of source column: what a value may look like, and the one dtype it becomes.

A kind judges a value of a row that was parsed strictly (`faults`, `value`) and says how the fast
parser reads the column where a file keeps to one shape (`shape_of`, `read_type`, `read`). Both ways
end in the same dtype, so that a row means the same whoever parsed it.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl
import pyarrow as pa
from polars import Expr

from fmtkit.sources.canonical_json import canonical
from fmtkit.sources.marks import (
    Duplicated,
    Fault,
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

    def contents(self, value: Any) -> Iterator[Any]:  # noqa: ARG002
        """Yield the content of every message in a sound value, as it was written."""
        return iter(())

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


def absent(path: str, name: str, holder: Mapping[str, Any]) -> Fault:
    """Tell a key that is null from one that is not there, and name what was probably meant."""
    from fmtkit.errors import near_match

    if name in holder:
        return Fault("null_field", path, f"{path} is null")
    near = near_match(name, [key for key in holder if isinstance(key, str)])
    return Fault(
        "missing_field", path, f"no {path}" + (f"; did you mean {near!r}?" if near else "")
    )
