"""What a source is cut into: blocks of rows, in the order of the source.

Where a block ends depends on the bytes of the source and the constants here (for columnar sources
also on the columns that are read), never on workers, on the size of single reads or on the clock.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Protocol

import numpy as np
import pyarrow as pa

from fmtkit.core.codes import Reject
from fmtkit.sources.records import ArrowRows, ListedRows, MadeRows, Records, Row

ReadCells = Callable[[Row], Row]
"""How a row of cells of text becomes values; rows of other layouts have values already."""

BLOCK_BYTES = 6 << 20
"""About how many bytes of a source one block holds."""

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
    """Cut after LF only; CRLF as in the file, no byte order mark; the file's last LF may lack."""
    first_line: int
    """1-based physical line of the first byte; 0 where the source has no lines (rows in memory)."""
    lines: np.ndarray | None = None
    """int64: physical first line of each record of `data`, where a record may span lines."""
    rejects: tuple[Reject, ...] = ()
    bytes_read: int = 0
    """Bytes of the source consumed so far (compressed ones, where it is), for a progress bar."""
    line_feeds: np.ndarray | None = field(default=None, compare=False)
    """int64: where the line feeds of `data` are, if who cut the block has looked for them."""
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
        """Return the row of each of so many records among all records of the block (int64)."""
        return places(self.rejects, records)

    def head(self, rows: int) -> "tuple[Block, int]":
        """Return the first rows, and how many more are wanted after them."""
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
        """Return the first rows, and how many more are wanted after them."""
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
        """Return about how many bytes the cells have; of many rows, that they are many."""
        if len(self.rows) > _SMALL_ROWS:
            return BLOCK_BYTES
        return sum(len(cell or "") for row in self.rows for cell in row.values())

    def records(self, read: ReadCells | None = None) -> ListedRows:
        """Return the rows, their cells as text or as `read` takes them."""
        rows = self.rows if read is None else [read(row) for row in self.rows]
        return ListedRows(rows, self.lines, self.blank_lines)

    def places(self, records: int) -> np.ndarray:
        """Return the row of each of so many records among all records of the block (int64)."""
        return places(self.rejects, records)

    def head(self, rows: int) -> "tuple[Block, int]":
        """Return the first rows, and how many more are wanted after them."""
        count = len(self.rows) + len(self.rejects)
        if count <= rows:
            return self, rows - count
        kept = _head_of(self.rejects, rows)
        records = rows - len(kept)
        return replace(self, rows=self.rows[:records], lines=self.lines[:records], rejects=kept), 0


@dataclass(frozen=True, slots=True)
class MadeBlock:
    """Rows that were made of a block: JSON objects, with the place of the row each came from.

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
        """Return what was made of the first rows, and how many more are wanted after them."""
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
    """Whatever gives blocks, from the first one each time it is asked."""

    def keep(self) -> None:
        """Make sure that blocks can be asked for more than once."""
        ...

    def blocks(self, start: int = 0, columns: Sequence[str] | None = None) -> Iterator[Block]:
        """Yield the blocks from the one with the index `start` on."""
