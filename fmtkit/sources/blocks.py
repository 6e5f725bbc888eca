"""Blocks of rows that sources are cut into, in order, and access to single records.

Where a block ends depends on the bytes of the source and the constants here (for columnar sources
also on the columns that are read), never on workers, on the size of single reads or on the clock.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property
from math import isfinite
from typing import Any, ClassVar, Protocol

import numpy as np
import pyarrow as pa

from fmtkit.core.codes import Reject
from fmtkit.sources.canonical_json import canonical, number_of
from fmtkit.sources.marks import NON_FINITE, NOT_TEXT, OVERFLOW, Fault, NotText
from fmtkit.sources.strict import parse
from fmtkit.sources.structure import Lines, find_lines

Row = Mapping[str, Any]


class Records:
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
        # A carriage return of the record's own would be taken for a part of the line's end.
        data = b"".join(self.raw(record) + b"\r\n" for record in records.tolist())
        return Records(data, lines=self.lines_of(records))

    def line(self, record: int) -> int | None:
        """Return the physical line on which a record begins, 1-based; None of rows in memory."""
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

    def value(self, record: int, *, written: bool = False) -> tuple[Any, Fault | None]:
        """Parse a record strictly."""
        return parse(self.raw(record), written=written)

    def values(self, *, written: bool = False) -> Iterator[tuple[Any, Fault | None]]:
        """Parse every record strictly."""
        return (self.value(record, written=written) for record in range(len(self)))

    def reject(self, record: int, code: str, column: str | None, message: str) -> Reject:
        """Make the reject of a record."""
        return Reject(record, self.line(record), code, column, message, self.raw(record))


class Rows(Protocol):
    """Random access to the records of a block: a value, its line, its reject."""

    @property
    def blank(self) -> int:
        """Count the blank lines between the records of a block of JSON lines."""
        ...

    def __len__(self) -> int: ...
    def value(self, record: int, *, written: bool = False) -> tuple[Any, Any]:
        """Return a record's value, or the fault for which it has none."""
        ...

    def values(self, *, written: bool = False) -> Iterator[tuple[Any, Any]]:
        """Yield the value of every record, or its fault."""
        ...

    def line(self, record: int) -> int | None:
        """Return the physical line on which a record begins."""
        ...

    def lines_of(self, records: np.ndarray) -> np.ndarray | None:
        """Return the lines of records (int64); None where the source has no lines."""
        ...

    def reject(self, record: int, code: str, column: str | None, message: str) -> Reject:
        """Make the reject of a record."""
        ...


class ListedRows:
    """Records that are Python objects: of CSV, of columnar sources, of a user function."""

    def __init__(
        self, rows: Sequence[Row], lines: Sequence[int] | None = None, blank: int = 0
    ) -> None:
        self.rows, self.lines, self.blank = rows, lines, blank

    def __len__(self) -> int:
        return len(self.rows)

    def value(self, record: int, *, written: bool = False) -> tuple[Any, Any]:  # noqa: ARG002
        """Return a record's value; it always has one."""
        return self.rows[record], None

    def values(self, *, written: bool = False) -> Iterator[tuple[Any, Any]]:
        """Yield the value of every record."""
        return (self.value(record, written=written) for record in range(len(self)))

    def line(self, record: int) -> int | None:
        """Return the line of a record, None where the source has no lines."""
        return None if self.lines is None else self.lines[record]

    def lines_of(self, records: np.ndarray) -> np.ndarray | None:
        """Return the lines of records; None where the source has no lines."""
        return None if self.lines is None else np.asarray(self.lines, np.int64)[records]

    def reject(self, record: int, code: str, column: str | None, message: str) -> Reject:
        """Make the reject of a record; its bytes are its canonical JSON text."""
        raw = canonical(plain_json(self.rows[record])).encode("utf-8", "surrogatepass")
        return Reject(record, self.line(record), code, column, message, raw)


class JoinedRows:
    """The records of several blocks, counted one after the other."""

    def __init__(self, parts: Sequence[Rows]) -> None:
        self.parts = parts
        self.ends = np.cumsum([len(part) for part in parts])

    def _find(self, record: int) -> tuple[Rows, int]:
        part = int(np.searchsorted(self.ends, record, side="right"))
        return self.parts[part], record - int(self.ends[part]) + len(self.parts[part])

    def __len__(self) -> int:
        return int(self.ends[-1])

    def value(self, record: int, *, written: bool = False) -> tuple[Any, Any]:
        """Return a record's value and the fault that it has none for."""
        rows, own = self._find(record)
        return rows.value(own, written=written)

    def values(self, *, written: bool = False) -> Iterator[tuple[Any, Any]]:
        """Yield the value of every record, or its fault."""
        return (value for rows in self.parts for value in rows.values(written=written))

    @property
    def blank(self) -> int:
        """Count the blank lines between the records."""
        return sum(part.blank for part in self.parts)

    def line(self, record: int) -> int | None:
        """Return the physical line on which a record begins, in its own source."""
        rows, own = self._find(record)
        return rows.line(own)

    def lines_of(self, records: np.ndarray) -> np.ndarray | None:
        """Return the lines of records; None unless all have one."""
        found = [self.line(int(record)) for record in records]
        return None if None in found else np.array(found, np.int64)

    def reject(self, record: int, code: str, column: str | None, message: str) -> Reject:
        """Make the reject of a record."""
        rows, own = self._find(record)
        return replace(rows.reject(own, code, column, message), row=record)


class ArrowRows(ListedRows):
    """Records of a columnar batch, converted to Python objects one at a time."""

    def __init__(self, batch: pa.Table) -> None:
        super().__init__(())
        self.batch = batch

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def value(self, record: int, *, written: bool = False) -> tuple[Any, Any]:  # noqa: ARG002
        """Return a record's value; None and a fault if one of its texts is not UTF-8."""
        row = self.batch.slice(record, 1)
        for name, column in zip(row.schema.names, row.columns, strict=True):
            try:
                column.to_pylist()
            except UnicodeDecodeError:
                return None, Fault("invalid_utf8", name, f"{name} is not UTF-8")
        return marked(row.to_pylist()[0]), None

    def values(self, *, written: bool = False) -> Iterator[tuple[Any, Any]]:
        """Yield the value of every record, converted together if their texts are UTF-8."""
        try:
            rows = self.batch.to_pylist()
        except UnicodeDecodeError:
            return super().values(written=written)
        return ((marked(row), None) for row in rows)

    def reject(self, record: int, code: str, column: str | None, message: str) -> Reject:
        """Make the reject of a record."""
        row = self.batch.slice(record, 1)
        fields = [f.with_type(_undecoded(f.type)) for f in row.schema]
        made = ListedRows(row.cast(pa.schema(fields)).to_pylist())
        return replace(made.reject(0, code, column, message), row=record)


def _undecoded(dtype: pa.DataType) -> pa.DataType:
    """Return the type with bytes for text, which may not be UTF-8."""
    if pa.types.is_string(dtype):
        return pa.binary()
    if pa.types.is_large_string(dtype):
        return pa.large_binary()
    if pa.types.is_list(dtype) or pa.types.is_large_list(dtype):
        make = pa.list_ if pa.types.is_list(dtype) else pa.large_list
        return make(_undecoded(dtype.value_type))
    if pa.types.is_struct(dtype):
        fields = [dtype.field(i) for i in range(dtype.num_fields)]
        return pa.struct([f.with_type(_undecoded(f.type)) for f in fields])
    return dtype


class MadeRows:
    """Records made by a user function, as JSON, with the lines of their source rows."""

    def __init__(self, rows: Sequence[bytes], lines: Sequence[int | None], blank: int = 0) -> None:
        self.rows, self.lines, self.blank = rows, lines, blank

    def __len__(self) -> int:
        return len(self.rows)

    def value(self, record: int, *, written: bool = False) -> tuple[Any, Any]:
        """Parse a record."""
        return parse(self.rows[record], written=written)

    def values(self, *, written: bool = False) -> Iterator[tuple[Any, Any]]:
        """Parse every record."""
        return (parse(row, written=written) for row in self.rows)

    def line(self, record: int) -> int | None:
        """Return the line of the row that the record was made of."""
        return self.lines[record]

    def lines_of(self, records: np.ndarray) -> np.ndarray | None:
        """Return the lines of the rows that records were made of; None unless all have one."""
        found = [self.lines[record] for record in records]
        return None if None in found else np.array(found, np.int64)

    def reject(self, record: int, code: str, column: str | None, message: str) -> Reject:
        """Make the reject of a record; its bytes are what the function made."""
        return Reject(record, self.line(record), code, column, message, self.rows[record])


def marked(value: Any) -> Any:
    """Convert a row of a columnar source to what the strict parser makes of a line."""
    if isinstance(value, dict):
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


def _text_or_mark(value: bytes) -> str | NotText:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return NOT_TEXT


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

BLOCK_BYTES = 6 << 20
"""Approximate bytes of a source in one block."""

MAX_LINE_BYTES = 16 << 20
"""The longest line, array element or CSV row that is read; longer ones become `line_too_long`."""


@dataclass(frozen=True, slots=True)
class JsonBlock:
    """Whole JSON records, one per line; the records in `rejects` are not among those in `data`.

    Rows are counted over both together: a reject's `row` is its place among all records of the
    block, blank lines apart. So the rows of the n records in `data` are
    `numpy.delete(numpy.arange(n + len(rejects)), [reject.row for reject in rejects])`.
    A block of JSON lines has data or one reject, never both.
    The `line` of a reject is absolute, unlike that of rejects made by a parser.
    """

    data: bytes
    """Cut after LF only; CRLF as in the file, no byte order mark; the file's last LF may be missing."""
    first_line: int
    """1-based physical line of the first byte; 0 where the source has no lines (rows in memory)."""
    lines: np.ndarray | None = None
    """int64: physical first line of each record of `data`, where a record may span lines."""
    rejects: tuple[Reject, ...] = ()
    bytes_read: int = 0
    """Bytes of the source consumed so far (before decompression), for a progress bar."""
    line_feeds: np.ndarray | None = field(default=None, compare=False)
    """int64: offsets of the line feeds of `data`, if they were found while cutting."""
    filtered: ClassVar[int] = 0
    joined: ClassVar[int] = 0
    blank_lines: ClassVar[int] = 0

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

    def places(self, records: int) -> np.ndarray:
        """Return the row of each record among all records of the block (int64)."""
        return places(self.rejects, records)

    def head(self, rows: int) -> "tuple[Block, int]":
        """Return the first rows, and how many more are wanted."""
        found = self.records().found
        count = len(found.ends) + len(self.rejects)
        if count <= rows:
            return self, rows - count
        kept = _head_of(self.rejects, rows)
        records = rows - len(kept)
        end = int(found.ends[records - 1]) if records else 0
        return replace(self, data=self.data[:end], rejects=kept, line_feeds=None), 0


@dataclass(frozen=True, slots=True)
class ArrowBlock:
    """Rows of a columnar source; dictionary columns are decoded."""

    batch: pa.Table
    bytes_read: int = 0
    rejects: ClassVar[tuple[Reject, ...]] = ()
    filtered: ClassVar[int] = 0
    joined: ClassVar[int] = 0
    blank_lines: ClassVar[int] = 0

    @property
    def nbytes(self) -> int:
        """Return the size of the rows."""
        return int(self.batch.nbytes)

    def records(self, read: ReadCells | None = None) -> ArrowRows:  # noqa: ARG002
        """Return the rows of the batch."""
        return ArrowRows(self.batch)

    def places(self, records: int) -> np.ndarray:
        """Return the row of each record: its own number."""
        return np.arange(records)

    def head(self, rows: int) -> "tuple[Block, int]":
        """Return the first rows, and how many more are wanted."""
        return replace(self, batch=self.batch.slice(0, rows)), max(rows - self.batch.num_rows, 0)


@dataclass(frozen=True, slots=True)
class RowsBlock:
    """Rows of a CSV file: column -> text, an empty cell is None.

    `rejects` are counted as in JsonBlock: `row` among all records of the block, `line` absolute.
    """

    rows: list[dict[str, str | None]]
    lines: list[int]
    """1-based physical first line of each row."""
    rejects: tuple[Reject, ...] = ()
    blank_lines: int = 0
    bytes_read: int = 0
    filtered: ClassVar[int] = 0
    joined: ClassVar[int] = 0

    @property
    def nbytes(self) -> int:
        """Return the approximate size of the cells; of many rows, that they are many."""
        if len(self.rows) > _SMALL_ROWS:
            return BLOCK_BYTES
        return sum(len(cell or "") for row in self.rows for cell in row.values())

    def records(self, read: ReadCells | None = None) -> ListedRows:
        """Return the rows, their cells as text or as `read` takes them."""
        rows = self.rows if read is None else [read(row) for row in self.rows]
        return ListedRows(rows, self.lines, self.blank_lines)

    def places(self, records: int) -> np.ndarray:
        """Return the row of each record among all records of the block (int64)."""
        return places(self.rejects, records)

    def head(self, rows: int) -> "tuple[Block, int]":
        """Return the first rows, and how many more are wanted."""
        count = len(self.rows) + len(self.rejects)
        if count <= rows:
            return self, rows - count
        kept = _head_of(self.rejects, rows)
        records = rows - len(kept)
        return replace(self, rows=self.rows[:records], lines=self.lines[:records], rejects=kept), 0


@dataclass(frozen=True, slots=True)
class MadeBlock:
    """Rows that were made from a block: JSON objects, with the row that each came from.

    `rejects` are counted as in JsonBlock; `filtered` are the rows that a user's function returned nothing
    for, `joined` those that are part of a row made of another one.
    """

    rows: list[bytes]
    made_of: list[int]
    """The row of the block that each was made of."""
    lines: list[int | None]
    rejects: tuple[Reject, ...] = ()
    filtered: int = 0
    joined: int = 0
    blank_lines: int = 0
    bytes_read: int = 0

    @property
    def nbytes(self) -> int:
        """Return the size of the rows; of many, that they are many."""
        return BLOCK_BYTES if len(self.rows) > _SMALL_ROWS else sum(map(len, self.rows))

    def records(self, read: ReadCells | None = None) -> MadeRows:  # noqa: ARG002
        """Return the rows that the function made."""
        return MadeRows(self.rows, self.lines, self.blank_lines)

    def places(self, records: int) -> np.ndarray:
        """Return the row that each record was made of (int64)."""
        return np.asarray(self.made_of, dtype=np.int64)[:records]

    def head(self, rows: int) -> "tuple[Block, int]":
        """Return what was made of the first rows, and how many more are wanted."""
        count = len(self.rows) + len(self.rejects) + self.filtered + self.joined
        if count <= rows:
            return self, rows - count
        kept = [i for i, place in enumerate(self.made_of) if place < rows]
        rejects = _head_of(self.rejects, rows)
        return replace(
            self,
            rows=[self.rows[i] for i in kept],
            lines=[self.lines[i] for i in kept],
            made_of=[self.made_of[i] for i in kept],
            rejects=rejects,
            filtered=0 if self.joined else rows - len(kept) - len(rejects),
            joined=rows - len(kept) - len(rejects) if self.joined else 0,
        ), 0


Block = JsonBlock | ArrowBlock | RowsBlock | MadeBlock
_SMALL_ROWS = 256


def places(own: Sequence[Reject], records: int) -> np.ndarray:
    """Return the row of each record among all of a block, the block's own rejects too (int64)."""
    everything = np.arange(records + len(own))
    return np.delete(everything, [reject.row for reject in own]) if own else everything


def _head_of(rejects: Sequence[Reject], rows: int) -> tuple[Reject, ...]:
    return tuple(reject for reject in rejects if reject.row < rows)


class Readable(Protocol):
    """An object that yields blocks, from the first one at each call."""

    def keep(self) -> None:
        """Ensure that blocks can be read more than once."""
        ...

    def blocks(self, start: int = 0, columns: Sequence[str] | None = None) -> Iterator[Block]:
        """Yield the blocks from the one with the index `start` on."""
