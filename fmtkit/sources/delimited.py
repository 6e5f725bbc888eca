"""CSV and TSV -> rows of text, with the physical line of each.

Python's csv module reads the text line by line, so what a row was read from is known: it is the raw
text of a row that does not fit the header, and its bytes decide whether it is UTF-8.
"""

import csv
from collections import Counter
from collections.abc import Iterator
from dataclasses import field
from itertools import islice

from fmtkit.core.codes import Reject
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OptionError, SourceError
from fmtkit.sources.blocks import RowsBlock
from fmtkit.sources.jsonl import blocks_of_lines
from fmtkit.sources.raw import RawBytes, Readable

CSV_BLOCK_BYTES = 2 << 20
"""Less than a block of JSON: rows are Python objects, several times as large as their text."""


CANDIDATES = ",;\t|"
SNIFFED_ROWS = 20


def checked_delimiter(delimiter: str) -> str:
    """Return the delimiter; raise OptionError if it is not a single character."""
    given = {"tab": "\t", "\\t": "\t"}.get(delimiter, delimiter)
    if len(given) != 1 or given in '\r\n"' or not given.isascii():
        raise OptionError(f"--delimiter {delimiter!r}: give one character, such as ; or tab")
    return given


def sniffed(head: bytes, usual: str) -> str:
    """Return the delimiter of a text, guessed from its beginning; the usual one if in doubt.

    Another one is chosen only if the usual one splits no row, or splits rows differently, and the other
    splits every row into the same number of cells: at least two, or one if the header is one cell.
    """
    text = head.decode("utf-8", "replace").removeprefix("\ufeff")
    if (_width(text, usual) or 1) > 1:
        return usual
    widths = {mark: _width(text, mark) for mark in CANDIDATES}
    cut = [mark for mark, width in widths.items() if (width or 0) > 1]
    if cut or widths.get(usual) == 1:
        return cut[0] if len(cut) == 1 else usual
    # One column of texts in which the usual delimiter occurs here and there, unquoted.
    whole = [mark for mark, width in widths.items() if width == 1]
    is_one = usual not in text.partition("\n")[0]
    return whole[0] if whole and is_one else usual


def _width(text: str, delimiter: str) -> int | None:
    """Return how many cells the first rows have; None if they differ, or are not CSV."""
    lines = text.splitlines(keepends=True)
    # The last row may be cut.
    given = iter(lines[:-1] or lines)
    reader = csv.reader(given, delimiter=delimiter, strict=True)
    widths: set[int] = set()
    try:
        widths.update(len(cells) for cells in islice(reader, SNIFFED_ROWS) if cells)
    except csv.Error:
        # A quote that is not closed up to here may be closed after the cut.
        if next(given, None) is not None:
            return None
    return widths.pop() if len(widths) == 1 else None


@dataclass
class Lines:
    """The lines of a text for the csv module, and which of them belong to the current row."""

    file: Readable
    limit: int
    number: int = 0
    """Lines taken so far."""
    taken: list[bytes] = field(default_factory=list)
    unheld: int = 0
    """Bytes of the lines taken that are not in `taken`: their line was too long to hold."""
    is_utf8: bool = True

    def __iter__(self) -> Iterator[str]:
        for block in blocks_of_lines(self.file, max_line_bytes=self.limit):
            for reject in block.rejects:
                self.unheld += (reject.raw_bytes or 0) - len(reject.raw)
                yield self._take(reject.raw + b"\n")
            *whole, last = block.data.split(b"\n")
            for line in whole:
                yield self._take(line + b"\n")
            if last:
                yield self._take(last)

    def _take(self, line: bytes) -> str:
        self.number += 1
        self.taken.append(line)
        try:
            return line.decode()
        except UnicodeDecodeError:
            self.is_utf8 = False
            return line.decode("utf-8", "surrogateescape")

    def begin_row(self) -> None:
        """Start a new row."""
        self.taken, self.unheld, self.is_utf8 = [], 0, True


@dataclass
class DelimitedRows:
    """The rows of one block while they are collected."""

    rows: list[dict[str, str | None]] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    blank_lines: int = 0
    size: int = 0

    def reject(self, fault: tuple[str, str], text: bytes, size: int, line: int) -> None:
        """Add a row that does not fit, with code and message."""
        row = len(self.rows) + len(self.rejects)
        self.rejects.append(Reject(row, line, fault[0], None, fault[1], text, size))

    def block(self, bytes_read: int) -> RowsBlock:
        """Make the block."""
        return RowsBlock(self.rows, self.lines, tuple(self.rejects), self.blank_lines, bytes_read)


class Table:
    """A text of rows, the first of which is the header."""

    def __init__(self, file: Readable, name: str, delimiter: str, limit: int) -> None:
        # A limit of the whole process, 128 KiB unless raised, which a long answer exceeds.
        csv.field_size_limit(max(csv.field_size_limit(), limit))
        self._lines = Lines(file, limit)
        self._reader = csv.reader(self._lines, delimiter=delimiter, strict=True)
        self._limit = limit
        self.header = self._read_header(name)

    def blocks(self, raw: RawBytes, block_bytes: int = CSV_BLOCK_BYTES) -> Iterator[RowsBlock]:
        """Read the rows after the header."""
        rows = DelimitedRows()
        while self._read_row(rows):
            if rows.size >= block_bytes:
                yield rows.block(raw.count)
                rows = DelimitedRows()
        if rows.size:
            yield rows.block(raw.count)

    def _read_header(self, name: str) -> list[str]:
        self._lines.begin_row()
        try:
            header = next((cells for cells in self._reader if any(cells)), [])
        except csv.Error as error:
            raise SourceError(f"{name}: the header cannot be read: {error}") from error
        if not self._lines.is_utf8:
            raise SourceError(f"{name}: the header is not UTF-8; convert the file with iconv")
        twice = [column for column, times in Counter(header).items() if times > 1]
        if twice:
            raise SourceError(f"{name}: the header names {twice[0]!r} twice; rename one of them")
        return header

    def _read_row(self, rows: DelimitedRows) -> bool:
        self._lines.begin_row()
        fault, cells = None, []
        try:
            cells = next(self._reader)
        except StopIteration:
            return False
        except csv.Error as error:
            fault = ("value_error", f"the row cannot be read as CSV: {error}")
        text = b"".join(self._lines.taken)
        first_line = self._lines.number - len(self._lines.taken) + 1
        rows.size += len(text)
        size = len(text.rstrip(b"\r\n")) + self._lines.unheld
        if fault is None and not text.strip() and (not cells or len(self.header) > 1):
            rows.blank_lines += len(self._lines.taken)
        elif (
            fault := self._fault(cells, text, size)
            if fault is None or size > self._limit
            else fault
        ):
            rows.reject(fault, text.rstrip(b"\r\n"), size, first_line)
        else:
            rows.rows.append({k: v or None for k, v in zip(self.header, cells, strict=True)})
            rows.lines.append(first_line)
        return True

    def _fault(self, cells: list[str], text: bytes, size: int) -> tuple[str, str] | None:
        if size > self._limit:
            return "line_too_long", f"the row has {size} bytes, the limit is {self._limit}"
        if not self._lines.is_utf8:
            return "invalid_utf8", "the row is not UTF-8"
        if b"\0" in text:
            return "value_error", "the row holds a NUL byte"
        if len(cells) != len(self.header):
            return "value_error", f"the row has {len(cells)} cells, the header {len(self.header)}"
        return None
