"""Blocks of rows that sources are cut into, in order, and access to single records.

Where a block ends depends on the bytes of the source and the constants here (for columnar sources
also on the columns that are read), never on workers, on the size of single reads or on the clock.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from decimal import Decimal
from functools import cached_property
from math import isfinite
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from fmtkit.core.buffers import with_leaves
from fmtkit.core.codes import Reject
from fmtkit.core.data_classes import dataclass
from fmtkit.sources.canonical_json import canonical, number_of
from fmtkit.sources.marks import NON_FINITE, OVERFLOW, Fault, Media, NotText
from fmtkit.sources.strict import parse
from fmtkit.sources.structure import Lines, find_lines

Row = Mapping[str, Any]


class Rows(ABC):
    """Random access to the records of a block: a value, its line, its reject."""

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    def blank(self) -> int:
        """Count the blank lines between the records."""
        return 0

    @abstractmethod
    def raw(self, record: int) -> bytes:
        """Return the bytes of a record, for its reject."""

    @abstractmethod
    def line(self, record: int) -> int | None:
        """Return the physical line on which a record begins, 1-based; None of rows in memory."""

    def value(self, record: int, *, written: bool = False) -> tuple[Any, Fault | None]:
        """Return a record's value, or the fault for which it has none."""
        return parse(self.raw(record), written=written)

    def values(self, *, written: bool = False) -> Iterator[tuple[Any, Fault | None]]:
        """Yield the value of every record, or its fault."""
        return (self.value(record, written=written) for record in range(len(self)))

    def lines_of(self, records: np.ndarray) -> np.ndarray | None:
        """Return the lines of records (int64); None unless all have one."""
        found = [self.line(record) for record in records.tolist()]
        return None if None in found else np.array(found, np.int64)

    def reject(self, record: int, code: str, column: str | None, message: str) -> Reject:
        """Make the reject of a record."""
        return Reject(record, self.line(record), code, column, message, self.raw(record))


class Records(Rows):
    """Records that are JSON, one per line of `data`; the arguments are those of a JsonBlock."""

    def __init__(
        self,
        data: bytes,
        first_line: int = 0,
        lines: np.ndarray | None = None,
        line_feeds: np.ndarray | None = None,
    ) -> None:
        self.data = data
        self.first_line = first_line
        self.lines = lines
        self.blank_lines: np.ndarray | None = None
        """bool, of each line: whether it is blank, if the reader of the block has found out."""
        self._line_feeds = line_feeds

    @property
    def blank(self) -> int:
        """Count the blank lines between the records."""
        if self.blank_lines is not None:
            return int(np.count_nonzero(self.blank_lines))
        return self.found.blank

    def __len__(self) -> int:
        return len(self._numbers)

    @cached_property
    def found(self) -> Lines:
        """Return where the records are; only needed when records are read one by one."""
        return find_lines(np.frombuffer(self.data, dtype=np.uint8), self._line_feeds)

    @cached_property
    def _numbers(self) -> np.ndarray:
        if self.blank_lines is not None:
            return np.flatnonzero(~self.blank_lines)
        return self.found.numbers

    def raw(self, record: int) -> bytes:
        """Return the bytes of a record, without its newline."""
        return self.data[self.found.starts[record] : self.found.ends[record]]

    def picked(self, records: np.ndarray) -> "Records":
        """Return some of the records, in their order, each with its line."""
        # A carriage return that belongs to the record would be taken for part of the line end.
        data = b"".join(self.raw(record) + b"\r\n" for record in records.tolist())
        return Records(data, lines=self.lines_of(records))

    def line(self, record: int) -> int | None:
        """Return the physical line on which a record begins."""
        if self.lines is not None:
            return int(self.lines[record])
        if not self.first_line:
            return None
        return self.first_line + int(self._numbers[record])

    def lines_of(self, records: np.ndarray) -> np.ndarray | None:
        """Return the lines of records; None of rows in memory."""
        if self.lines is not None:
            return np.asarray(self.lines[records], np.int64)
        return self.first_line + self._numbers[records] if self.first_line else None


class ListedRows(Rows):
    """JSON records in a list, each with its line, made by a user function."""

    def __init__(
        self, rows: Sequence[Any], lines: Sequence[int | None], blank_lines: int = 0
    ) -> None:
        self.rows, self.lines, self.blank_lines = rows, lines, blank_lines

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def blank(self) -> int:
        """Count the blank lines between the records."""
        return self.blank_lines

    def raw(self, record: int) -> bytes:
        """Return the bytes of a record."""
        raw: bytes = self.rows[record]
        return raw

    def line(self, record: int) -> int | None:
        """Return the line of a record, or of the row that it was made of."""
        return self.lines[record]


class CellRows(ListedRows):
    """Records of a CSV file: their cells as text, and as they are read, which takes its time."""

    def __init__(
        self,
        cells: Sequence[dict[str, str | None]],
        lines: Sequence[int | None],
        blank_lines: int = 0,
        read: "ReadCells | None" = None,
    ) -> None:
        self.cells, self.lines, self.blank_lines, self._read = cells, lines, blank_lines, read

    def __len__(self) -> int:
        return len(self.cells)

    @cached_property
    def rows(self) -> Sequence[Any]:  # type: ignore[override]
        """Return the rows with what their cells hold."""
        return self.cells if self._read is None else [self._read(row) for row in self.cells]

    def raw(self, record: int) -> bytes:
        """Return the canonical JSON text of a record."""
        return _text_of(self.rows[record])

    def value(self, record: int, *, written: bool = False) -> tuple[Any, Fault | None]:  # noqa: ARG002
        """Return a record's value; it always has one."""
        return self.rows[record], None


_BYTES_OF = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}
"""Types of texts, which may not be UTF-8 -> those of their bytes."""


class ArrowRows(Rows):
    """Records of a columnar batch, converted to Python objects one at a time."""

    def __init__(self, batch: pa.Table) -> None:
        self.batch = batch

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def raw(self, record: int) -> bytes:
        """Return the canonical JSON text of a record."""
        row = self.batch.slice(record, 1)
        try:
            return _text_of(row.to_pylist()[0])
        except UnicodeDecodeError:
            fields = [
                f.with_type(with_leaves(f.type, lambda t: _BYTES_OF.get(t, t))) for f in row.schema
            ]
            return _text_of(row.cast(pa.schema(fields)).to_pylist()[0])

    def line(self, record: int) -> None:
        """Return None: columns have no lines."""

    def lines_of(self, records: np.ndarray) -> None:
        """Return None: columns have no lines."""

    def value(self, record: int, *, written: bool = False) -> tuple[Any, Fault | None]:  # noqa: ARG002
        """Return a record's value; None and a fault if one of its texts is not UTF-8."""
        row = self.batch.slice(record, 1)
        for name, column in zip(row.schema.names, row.columns, strict=True):
            try:
                column.to_pylist()
            except UnicodeDecodeError:
                return None, Fault("invalid_utf8", name, f"{name} is not UTF-8")
        return marked(row.to_pylist()[0]), None

    def values(self, *, written: bool = False) -> Iterator[tuple[Any, Fault | None]]:
        """Yield the value of every record, converted together if their texts are UTF-8."""
        try:
            rows = self.batch.to_pylist()
        except UnicodeDecodeError:
            return super().values(written=written)
        return ((marked(row), None) for row in rows)


def _text_of(row: Row) -> bytes:
    return canonical(plain_json(row)).encode("utf-8", "surrogatepass")


class JoinedRows(Rows):
    """The records of several blocks, counted one after the other."""

    def __init__(self, parts: Sequence[Rows]) -> None:
        self.parts = parts
        self.ends = np.cumsum([len(part) for part in parts])

    def _find(self, record: int) -> tuple[Rows, int]:
        part = int(np.searchsorted(self.ends, record, side="right"))
        return self.parts[part], record - int(self.ends[part]) + len(self.parts[part])

    def __len__(self) -> int:
        return int(self.ends[-1])

    @property
    def blank(self) -> int:
        """Count the blank lines between the records."""
        return sum(part.blank for part in self.parts)

    def raw(self, record: int) -> bytes:
        """Return the bytes of a record."""
        rows, own = self._find(record)
        return rows.raw(own)

    def line(self, record: int) -> int | None:
        """Return the line of a record in its own source."""
        rows, own = self._find(record)
        return rows.line(own)

    def value(self, record: int, *, written: bool = False) -> tuple[Any, Fault | None]:
        """Return a record's value, or the fault for which it has none."""
        rows, own = self._find(record)
        return rows.value(own, written=written)


MEDIA_FIELDS = {"bytes", "path"}
"""Fields of the struct that `datasets` makes of an image or a sound."""


def marked(value: Any) -> Any:
    """Convert a row of a columnar source to what the strict parser makes of a line."""
    if isinstance(value, dict):
        if value.keys() == MEDIA_FIELDS:
            held, path = value["bytes"], value["path"]
            if held is None and path is None:
                return None
            return Media(held if isinstance(held, bytes) else None, path and str(path))
        return {str(key): marked(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [marked(item) for item in value]
    if isinstance(value, Decimal):
        value = number_of(value)
    if isinstance(value, float) and not isfinite(value):
        return NON_FINITE
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return OVERFLOW
    if isinstance(value, bytes):
        return _text_or_mark(value)
    return plain_json(value)


def holds_media(dtype: pa.DataType) -> bool:
    """Return whether values of a type may be images or sounds, as `datasets` stores them."""
    if pa.types.is_struct(dtype):
        return {f.name for f in dtype} == MEDIA_FIELDS or any(holds_media(f.type) for f in dtype)
    if pa.types.is_list(dtype) or pa.types.is_large_list(dtype):
        return holds_media(dtype.value_type)
    return False


def _text_or_mark(value: bytes) -> str | NotText:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return NotText(value)


def plain_json(value: Any) -> Any:
    """Convert values that JSON does not have (decimals, bytes, times) to numbers and texts."""
    if isinstance(value, dict):
        return {str(key): plain_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_json(item) for item in value]
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Decimal):
        return number_of(value)
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


ReadCells = Callable[[Row], Row]
"""How a row of text cells becomes values; rows of other layouts have values already."""

BLOCK_BYTES = 3 << 20
"""Approximate bytes of a source of text in one block: 6 MiB take 30 % more memory, 2 % less CPU."""

COLUMNS_BYTES = 2 * BLOCK_BYTES
"""Approximate bytes of a block of columns: one with images takes 6 ms by itself (benchmarks/README.md)."""

MAX_LINE_BYTES = 16 << 20
"""The longest line, array element or CSV row that is read; longer ones become `line_too_long`."""


class Block(ABC):
    """Rows of a source that are read and converted together."""

    __slots__ = ()

    @property
    def rejects(self) -> tuple[Reject, ...]:
        """Return the records that are not among the others.

        Rows are counted over both together: a reject's `row` is its place among all records of the
        block, blank lines apart. So the rows of the other n records are
        `numpy.delete(numpy.arange(n + len(rejects)), [reject.row for reject in rejects])`.
        The `line` of a reject is absolute, unlike that of rejects made by a parser.
        """
        return ()

    @property
    def filtered(self) -> int:
        """Count the rows for which a user function returned nothing, or that --where leaves out."""
        return 0

    @property
    def joined(self) -> int:
        """Count the rows that are part of a row made of another one."""
        return 0

    @property
    def left_out(self) -> tuple[int, ...]:
        """Return the places of the rows that --where leaves out, which are counted as filtered."""
        return ()

    @property
    def next_line(self) -> int | None:
        """Return the physical line that follows the block; None where the source has no lines of JSON."""
        return None

    @property
    @abstractmethod
    def bytes_read(self) -> int:
        """Return the bytes of the source consumed so far (before decompression), for a progress bar."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Return the size of the rows, approximate for cells; for many rows, a lower bound."""

    @property
    def count(self) -> int:
        """Return how many rows of the source the block stands for, whatever became of them."""
        return len(self.records()) + len(self.rejects) + self.filtered + self.joined

    @abstractmethod
    def records(self, read: ReadCells | None = None) -> Rows:
        """Return the records, the cells of a CSV file as text or as `read` converts them."""

    def places(self, records: int) -> np.ndarray:
        """Return the row of each record among all records of the block (int64)."""
        everything = np.arange(records + len(self.rejects))
        own = [reject.row for reject in self.rejects]
        return np.delete(everything, own) if own else everything

    def head(self, rows: int) -> "tuple[Block, int]":
        """Return the first rows, and how many more are wanted."""
        count = self.count
        if count <= rows:
            return self, rows - count
        return self._cut(rows, tuple(reject for reject in self.rejects if reject.row < rows)), 0

    @abstractmethod
    def _cut(self, rows: int, rejects: tuple[Reject, ...]) -> "Block":
        """Return the first rows of a block that has more, of which these are rejects."""


@dataclass(frozen=True, slots=True)
class JsonBlock(Block):
    """Whole JSON records, one per line.

    A block of JSON lines has data or one reject, never both.
    """

    data: bytes
    """Cut after LF only; CRLF as in the file, no byte order mark; the file's last LF may be missing."""
    first_line: int
    """1-based physical line of the first byte; 0 where the source has no lines (rows in memory)."""
    lines: np.ndarray | None = None
    """int64: physical first line of each record of `data`, where a record may span lines."""
    rejects: tuple[Reject, ...] = ()
    bytes_read: int = 0
    line_feeds: np.ndarray | None = field(default=None, compare=False)
    """int64: offsets of the line feeds of `data`, if they are known; not held of short lines."""

    @property
    def nbytes(self) -> int:
        """Return the size of the rows."""
        return len(self.data)

    @property
    def next_line(self) -> int:
        """Return the physical line that follows a block of JSON lines."""
        if self.rejects:
            return self.first_line + len(self.rejects)
        if self.line_feeds is not None:
            return self.first_line + len(self.line_feeds)
        return self.first_line + self.data.count(b"\n")

    def records(self, read: ReadCells | None = None) -> Records:  # noqa: ARG002
        """Return the records in `data`."""
        return Records(self.data, self.first_line, self.lines, self.line_feeds)

    def _cut(self, rows: int, rejects: tuple[Reject, ...]) -> "JsonBlock":
        records = rows - len(rejects)
        end = int(self.records().found.ends[records - 1]) if records else 0
        return replace(self, data=self.data[:end], rejects=rejects, line_feeds=None)


@dataclass(frozen=True, slots=True)
class ArrowBlock(Block):
    """Rows of a columnar source; dictionary columns are decoded."""

    batch: pa.Table
    bytes_read: int = 0

    @property
    def nbytes(self) -> int:
        """Return the size of the rows."""
        return int(self.batch.nbytes)

    def records(self, read: ReadCells | None = None) -> ArrowRows:  # noqa: ARG002
        """Return the rows of the batch."""
        return ArrowRows(self.batch)

    def _cut(self, rows: int, rejects: tuple[Reject, ...]) -> "ArrowBlock":  # noqa: ARG002
        return replace(self, batch=self.batch.slice(0, rows))


@dataclass(frozen=True, slots=True)
class RowsBlock(Block):
    """Rows of a CSV file: column -> text, an empty cell is None."""

    rows: list[dict[str, str | None]]
    lines: list[int]
    """1-based physical first line of each row."""
    rejects: tuple[Reject, ...] = ()
    blank_lines: int = 0
    bytes_read: int = 0

    @property
    def nbytes(self) -> int:
        """Return the approximate size of the cells; for many rows, a lower bound."""
        if len(self.rows) > _SMALL_ROWS:
            return BLOCK_BYTES
        return sum(len(cell or "") for row in self.rows for cell in row.values())

    def records(self, read: ReadCells | None = None) -> CellRows:
        """Return the rows, their cells as text or as `read` takes them."""
        return CellRows(self.rows, self.lines, self.blank_lines, read)

    def _cut(self, rows: int, rejects: tuple[Reject, ...]) -> "RowsBlock":
        records = rows - len(rejects)
        return replace(self, rows=self.rows[:records], lines=self.lines[:records], rejects=rejects)


@dataclass(frozen=True, slots=True)
class MadeBlock(Block):
    """Rows that were made from a block: JSON objects, with the row that each came from."""

    rows: list[bytes]
    made_of: list[int]
    """The row of the block that each was made of."""
    lines: list[int | None]
    rejects: tuple[Reject, ...] = ()
    filtered: int = 0
    joined: int = 0
    left_out: tuple[int, ...] = ()
    blank_lines: int = 0
    bytes_read: int = 0

    @property
    def nbytes(self) -> int:
        """Return the size of the rows; for many rows, a lower bound."""
        return BLOCK_BYTES if len(self.rows) > _SMALL_ROWS else sum(map(len, self.rows))

    def records(self, read: ReadCells | None = None) -> ListedRows:  # noqa: ARG002
        """Return the rows that the function made."""
        return ListedRows(self.rows, self.lines, self.blank_lines)

    def places(self, records: int) -> np.ndarray:
        """Return the row that each record was made of (int64)."""
        return np.asarray(self.made_of, dtype=np.int64)[:records]

    def _cut(self, rows: int, rejects: tuple[Reject, ...]) -> "MadeBlock":
        kept = [i for i, place in enumerate(self.made_of) if place < rows]
        left_out = tuple(place for place in self.left_out if place < rows)
        others = rows - len(kept) - len(rejects) - len(left_out)
        return replace(
            self,
            rows=[self.rows[i] for i in kept],
            lines=[self.lines[i] for i in kept],
            made_of=[self.made_of[i] for i in kept],
            rejects=rejects,
            filtered=len(left_out) + (0 if self.joined else others),
            joined=others if self.joined else 0,
            left_out=left_out,
        )


_SMALL_ROWS = 256


class Readable(Protocol):
    """An object that yields blocks, from the first one at each call."""

    def keep(self) -> None:
        """Ensure that blocks can be read more than once."""
        ...

    def blocks(self, start: int = 0, columns: Sequence[str] | None = None) -> Iterator[Block]:
        """Yield the blocks from the one with the index `start` on."""
