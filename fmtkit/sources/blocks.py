"""What a source is cut into: blocks of rows, in the order of the source.

Where a block ends depends on the bytes of the source and the constants here (for columnar sources
also on the columns that are read), never on workers, on the size of single reads or on the clock.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa

from fmtkit.codes import Reject

BLOCK_BYTES = 6 << 20
"""About how many bytes of a source one block holds."""

MAX_LINE_BYTES = 16 << 20
"""The longest line, array element or CSV row that is read; longer ones become `line_too_long`."""

RAW_BYTES = 1 << 20
"""How much of a record that never reaches the parser is kept in its reject."""


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


@dataclass(frozen=True, slots=True)
class ArrowBlock:
    """Rows of a columnar source; dictionary columns are decoded."""

    batch: pa.Table
    bytes_read: int = 0


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


@dataclass(frozen=True, slots=True)
class MadeBlock:
    """Rows that a user's function made of a block: JSON objects, with the place of the row each came from.

    `rejects` are counted as in JsonBlock; `filtered` rows the function returned nothing for.
    """

    rows: list[bytes]
    places: list[int]
    lines: list[int | None]
    rejects: tuple[Reject, ...] = ()
    filtered: int = 0
    blank_lines: int = 0
    bytes_read: int = 0


Block = JsonBlock | ArrowBlock | RowsBlock | MadeBlock


_SMALL_ROWS = 256


def size_of(block: Block) -> int:
    """Return about how many bytes a block's rows have; of many cells of text, that they are many."""
    if isinstance(block, JsonBlock):
        return len(block.data)
    if isinstance(block, ArrowBlock):
        return int(block.batch.nbytes)
    if len(block.rows) > _SMALL_ROWS:
        return BLOCK_BYTES
    if isinstance(block, MadeBlock):
        return sum(map(len, block.rows))
    return sum(len(cell or "") for row in block.rows for cell in row.values())


class Readable(Protocol):
    """Whatever gives blocks, from the first one each time it is asked."""

    def keep(self) -> None:
        """Make sure that blocks can be asked for more than once."""
        ...

    def blocks(self, start: int = 0, columns: Sequence[str] | None = None) -> Iterator[Block]:
        """Yield the blocks from the one with the index `start` on."""
