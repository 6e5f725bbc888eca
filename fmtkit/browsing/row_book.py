"""The rows of sources as a book that can be opened at any row: only what is looked at is read and converted.

A chapter is a range of bytes of JSON lines, a few row groups of Parquet, or a source that cannot be cut.
The row and the line at which a chapter begins are known once those before it were counted: by reading, or by
what Parquet's footer says. That index is all that is kept; a few blocks of rows are held besides.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from fmtkit.core.codes import Reject
from fmtkit.core.data_classes import dataclass
from fmtkit.inspection.first_pass import BlockViewer, finding_of
from fmtkit.inspection.reading import Reading
from fmtkit.inspection.row_fetch import Fetched, rows_of_pieces
from fmtkit.inspection.shown_rows import Place
from fmtkit.running import pipeline
from fmtkit.running.pipeline import Piece
from fmtkit.sources.blocks import Block
from fmtkit.sources.parts import Part, blocks_of_part, parts_of

CHAPTER_BYTES = 1 << 20
"""Approximate bytes of JSON lines that are read together: a page of rows needs one or two chapters."""
BLOCKS_HELD = 2
"""Converted blocks that are kept, of at most about 6 MB each."""
EVERY_ROW = 1 << 62


@dataclass(frozen=True)
class Chapter:
    """Rows that are read from one place of a source on."""

    source: int
    part: Part
    first: int
    """Its first row over all sources, and within its own."""
    first_of_source: int
    first_line: int
    begin: int
    """Bytes of all sources before it, about."""


@dataclass(eq=False)
class Looked:
    """A block of rows as they were converted."""

    place: Place
    """Where its first row is."""
    count: int
    """Rows of the source, with those that are left out."""
    block: Block
    pieces: tuple[Piece, ...]
    rejects: dict[int, Reject]
    viewer: BlockViewer
    begin: int

    @property
    def first(self) -> int:
        """Return its first row over all sources."""
        return self.place.row

    @property
    def end(self) -> int:
        """Return the row after its last."""
        return self.first + self.count

    @cached_property
    def records(self) -> np.ndarray:
        """Return the records that can be looked at, ascending (int64): those of rows, and bad ones."""
        made = [piece.records for piece in self.pieces]
        return np.unique(np.concatenate([*made, np.array([*self.rejects], np.int64)]))

    @cached_property
    def codes(self) -> dict[int, list[str]]:
        """Return the findings of each record that can be found in it alone, and why it is bad."""
        found: dict[int, list[str]] = {}
        for record, reject in self.rejects.items():
            also = finding_of(reject)
            found[record] = [reject.code, *([also] if also and also != reject.code else [])]
        for piece in self.pieces:
            # What the columns hold is not asked for, row by row.
            view = self.viewer(piece.table, replace(piece, has_counts=False), self.block)
            for code, records in view.statistics.findings.examples.items():
                for record in dict.fromkeys(records):
                    found.setdefault(record, []).append(code)
        return found

    def tables(self) -> Iterator[tuple[pa.Table, np.ndarray]]:
        """Yield the rows that were made, and their records."""
        for piece in self.pieces:
            yield piece.table, piece.records

    def fetch(self, record: int) -> Fetched:
        """Return one row."""
        (found,) = rows_of_pieces(self.pieces, 0, [record])
        where = replace(
            self.place,
            row=self.place.row + record,
            source_row=self.place.source_row + record,
            line=found.line,
        )
        return Fetched(where, found.row, found.reject)

    @cached_property
    def lines(self) -> np.ndarray | None:
        """Return the lines of the records that can be looked at (int64); None where the source has none."""
        found = {record: reject.line for record, reject in self.rejects.items()}
        for piece in self.pieces:
            lines = [None] * len(piece.records) if piece.lines is None else piece.lines.tolist()
            found |= dict(zip(piece.records.tolist(), lines, strict=True))
        lines = [found[record] for record in self.records.tolist()]
        return None if None in lines else np.array(lines, np.int64)


@dataclass(eq=False)
class _Open:
    """A chapter that is being read: its blocks, and the number and first row of the next one."""

    chapter: int
    blocks: Iterator[Block]
    number: int = 0
    rows: int = 0


@dataclass
class Book:
    """Reads rows by their numbers, in bounded memory; one thread at a time."""

    reading: Reading
    chapters: list[Chapter] = field(default_factory=list)
    """Those whose beginning is known."""
    rows: int | None = None
    """All rows, once all were counted."""
    _left: Iterator[tuple[int, Part]] | None = None
    _counting: _Open | None = None
    _line: int = 1
    _seen: int = 0
    """The row after the last that was looked at."""
    _open: _Open | None = None
    _starts: dict[int, list[int]] = field(default_factory=dict)
    """Chapter -> rows before each of its blocks that was read."""
    _held: OrderedDict[tuple[int, int], Looked] = field(default_factory=OrderedDict)

    def __post_init__(self) -> None:
        viewer = self.reading.viewer
        one = replace(viewer.viewer, tokenizer=None, ladder=(), visual=None, named_rows=EVERY_ROW)
        once = tuple(False for _ in viewer.once)
        self._viewer = replace(viewer, viewer=one, once=once)
        for source in self.reading.job.sources:
            source.keep()
        self._left = self._parts()
        self._begin_chapter(Chapter(0, Part(), 0, 0, 1, 0))

    @property
    def sources(self) -> Any:
        """Return the sources."""
        return self.reading.job.sources

    @property
    def size(self) -> int:
        """Return the bytes of all sources, as far as they are known."""
        return sum(source.size or 0 for source in self.sources)

    @property
    def known(self) -> int:
        """Count the rows that were counted so far."""
        if self.rows is not None:
            return self.rows
        counted = self._counting.rows if self._counting is not None else 0
        counted = self.chapters[-1].first + counted if self.chapters else 0
        return max(counted, self._seen)

    def _parts(self) -> Iterator[tuple[int, Part]]:
        for number, source in enumerate(self.sources):
            for part in parts_of(source, CHAPTER_BYTES):
                yield number, part

    def _begin_chapter(self, end: Chapter) -> None:
        """Add the chapter that follows, which begins where `end` says; without one all rows are counted."""
        assert self._left is not None
        found = next(self._left, None)
        if found is None:
            self.rows, self._counting = end.first, None
            return
        source, part = found
        begins = not self.chapters or source != self.chapters[-1].source
        self.chapters.append(
            Chapter(
                source,
                part,
                end.first,
                0 if begins else end.first_of_source,
                1 if begins else end.first_line,
                end.begin,
            )
        )

    def count_on(self) -> bool:
        """Count the rows of one block, or of one chapter that states them; False when all are counted."""
        if self.rows is not None:
            return False
        number = len(self.chapters) - 1
        last = self.chapters[number]
        if last.part.rows is not None:
            self._end_chapter(last, last.part.rows, last.first_line)
            return True
        if self._counting is None:
            self._counting = _Open(number, self._blocks_of(number))
            self._line = last.first_line
        block = next(self._counting.blocks, None)
        if block is None:
            rows, self._counting = self._counting.rows, None
            self._end_chapter(last, rows, self._line)
        else:
            self._counting.rows += block.count
            self._line = block.next_line or self._line
        return True

    def _end_chapter(self, last: Chapter, rows: int, line: int) -> None:
        end = replace(
            last,
            first=last.first + rows,
            first_of_source=last.first_of_source + rows,
            first_line=line,
            begin=last.begin + (last.part.bytes or 0),
        )
        self._begin_chapter(end)

    def _blocks_of(self, number: int) -> Iterator[Block]:
        chapter = self.chapters[number]
        return blocks_of_part(self.sources[chapter.source], chapter.part, chapter.first_line)

    def chapter_of(self, row: int) -> int:
        """Return the number of the last known chapter that begins at or before a row and has rows."""
        return bisect_right(self.chapters, row, key=lambda chapter: chapter.first) - 1

    def is_known(self, row: int) -> bool:
        """Return whether the chapter of a row is known: rows after the last have none."""
        return self.rows is not None or row < self.known

    def forward(self, row: int) -> Iterator[Looked]:
        """Yield blocks from the one that holds a row on; the row must be known, or be the next one."""
        if not self.chapters:
            return
        number = self.chapter_of(row)
        while True:
            yield from self.of_chapter(number, row)
            number += 1
            while number >= len(self.chapters):
                if not self.count_on():
                    return

    def of_chapter(self, number: int, row: int = 0) -> Iterator[Looked]:
        """Yield the blocks of a chapter, from the one that holds a row on."""
        first = self.chapters[number].first
        starts = self._starts.setdefault(number, [])
        within = max(bisect_right(starts, max(row - first, 0)) - 1, 0)
        while (looked := self._look(number, within)) is not None:
            if looked.end > row and looked.count:
                yield looked
            within += 1

    def _look(self, number: int, within: int) -> Looked | None:
        held = self._held.get((number, within))
        if held is not None:
            self._held.move_to_end((number, within))
            return held
        opened, starts = self._open, self._starts.setdefault(number, [])
        if opened is None or opened.chapter != number or opened.number > within:
            opened = self._open = _Open(number, self._blocks_of(number))
        while (block := next(opened.blocks, None)) is not None:
            place, count = opened.number, block.count
            first = opened.rows
            if place == len(starts):
                starts.append(first)
            opened.number, opened.rows = place + 1, first + count
            if place == within:
                made = self._converted(self.chapters[number], place, block, first)
                while len(self._held) >= BLOCKS_HELD:
                    self._held.popitem(last=False)
                self._held[number, within] = made
                return made
        self._open = None
        return None

    def _converted(self, chapter: Chapter, number: int, block: Block, first: int) -> Looked:
        pieces = [*pipeline.process(self.reading.job, chapter.source, number, block)]
        place = Place(
            chapter.first + first,
            self.sources[chapter.source].name,
            chapter.first_of_source + first,
            None,
        )
        is_whole = chapter.part.end is None
        begin = chapter.begin + (block.bytes_read if is_whole else 0)
        self._seen = max(self._seen, place.row + block.count)
        rejects = {reject.row: reject for piece in pieces for reject in piece.rejects}
        return Looked(
            place, block.count, block, tuple(map(_first_rows, pieces)), rejects, self._viewer, begin
        )

    def row_of_line(self, source: int, line: int) -> int | None:
        """Return the last row that begins at or before a line of a source; None where it has no lines.

        The chapter must be known.
        """
        numbers = [n for n, one in enumerate(self.chapters) if one.source == source]
        held = [n for n in numbers if self.chapters[n].first_line <= max(line, 1)]
        found = None
        for looked in self.of_chapter((held or numbers)[-1]):
            lines = looked.lines
            if lines is None:
                return None
            before = np.flatnonzero(lines <= line)
            if not len(before):
                return looked.first if found is None else found
            found = looked.first + int(looked.records[before[-1]])
            if len(before) < len(lines):
                break
        return found

    def knows_line(self, source: int, line: int) -> bool:
        """Return whether the chapter of a line is known."""
        if self.rows is not None:
            return True
        last = self.chapters[-1]
        return last.source > source or (last.source == source and last.first_line > line)


def _first_rows(piece: Piece) -> Piece:
    """Leave of each record the first row that it made: a ranking makes many pairs."""
    _, places = np.unique(piece.records, return_index=True)
    if len(places) == len(piece.records):
        return piece
    lines = None if piece.lines is None else piece.lines[places]
    return replace(
        piece, table=piece.table.take(pa.array(places)), records=piece.records[places], lines=lines
    )
