"""What the page asks for: rows of the list, one row, and where a line is.

Every answer takes about a second: a search that is not done by then says from which row it goes on, and the
page asks again.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import field
from pathlib import Path
from threading import Lock
from typing import Any

from fmtkit.browsing.row_book import Book, Looked
from fmtkit.browsing.row_filter import RowFilter
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OptionError, SourceError
from fmtkit.inspection.reading import Reading
from fmtkit.inspection.shown_rows import ShownRow
from fmtkit.inspection.survey_making import show
from fmtkit.reports.page_rows import PicturedRow, entry_of, packed_row, title_of
from fmtkit.reports.thumbnails import Thumbnails

PAGE_ROWS = 50
SECONDS = 1.0
"""How long a search takes before it answers with what it has."""

Mark = tuple[int, int, int]


@dataclass
class RowPages:
    """Answers about the rows of sources that must not change meanwhile; one thread at a time."""

    reading: Reading
    seconds: float = SECONDS
    clock: Callable[[], float] = time.monotonic
    book: Book = field(init=False)
    _marks: dict[Path, Mark] = field(init=False)
    _lock: Lock = field(init=False, default_factory=Lock)

    def __post_init__(self) -> None:
        self._marks = {path: _mark(path) for path in self._paths()}
        self.book = Book(self.reading)

    def _paths(self) -> Iterator[Path]:
        for source in self.reading.job.sources:
            reader = getattr(getattr(source, "source", source), "reader", None)
            location = getattr(reader, "location", None)
            if location is not None and location.path is not None and not location.once:
                yield Path(location.path)

    def _check_unchanged(self) -> None:
        """Raise SourceError if a file is not what it was when it was opened."""
        for path, mark in self._marks.items():
            try:
                now = _mark(path)
            except OSError as error:
                raise SourceError(
                    f"{path.name} is not there any more ({error.strerror}); "
                    "end the server with Ctrl-C and start it with the file"
                ) from error
            if now != mark:
                raise SourceError(
                    f"{path.name} changed since it was opened: its rows are no longer where they were; "
                    "end the server with Ctrl-C and start it again"
                )

    def _checked(self, answer: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        with self._lock:
            self._check_unchanged()
            try:
                found = answer()
            finally:
                # What went wrong, or was read, may be of a file that changed meanwhile.
                self._check_unchanged()
            return found | self._standing()

    def _standing(self) -> dict[str, Any]:
        return {"known": self.book.known, "all": self.book.rows}

    def page(self, at: int, wanted: RowFilter) -> dict[str, Any]:
        """Return the entries of the first rows from row `at` on that pass."""
        return self._checked(lambda: self._page(at, wanted))

    def _page(self, at: int, wanted: RowFilter) -> dict[str, Any]:
        until = self.clock() + self.seconds
        if not self._count_to(at, until):
            return {"rows": [], "again": at, "done": self._done()}
        entries: list[Any] = []
        for looked in self.book.forward(at):
            for row, entry in self._entries(looked, wanted, at, looked.end):
                entries.append(entry)
                if len(entries) == PAGE_ROWS:
                    return {"rows": entries, "next": row + 1}
                if self.clock() > until:
                    return {"rows": entries, "again": row + 1, "done": self._done(looked)}
            if self.clock() > until:
                return {"rows": entries, "again": looked.end, "done": self._done(looked)}
        return {"rows": entries, "next": None}

    def page_before(self, before: int, wanted: RowFilter) -> dict[str, Any]:
        """Return the entries of the last rows before row `before` that pass."""
        return self._checked(lambda: self._page_before(before, wanted))

    def _page_before(self, before: int, wanted: RowFilter) -> dict[str, Any]:
        until = self.clock() + self.seconds
        if not self._count_to(before, until):
            return {"rows": [], "again": before, "done": self._done()}
        entries: list[Any] = []
        number = self.book.chapter_of(max(before - 1, 0))
        while number >= 0 and len(entries) < PAGE_ROWS:
            # Without a filter there are no more rows to look at than are shown.
            start = before - PAGE_ROWS if wanted.is_empty else 0
            places = [
                (looked.first, record)
                for looked in self.book.of_chapter(number, max(start, 0))
                if looked.first < before
                for record in wanted.records(looked).tolist()
                if looked.first + record < before
            ]
            for first, record in reversed(places):
                looked = next(self.book.forward(first))
                entries += [
                    e for _, e in self._entries(looked, wanted, first + record, first + record + 1)
                ]
                if len(entries) == PAGE_ROWS:
                    break
            start = self.book.chapters[number].first
            number -= 1
            if self.clock() > until and number >= 0 and len(entries) < PAGE_ROWS:
                return {"rows": entries[::-1], "again": start, "done": 1 - self._done()}
        first_row = entries[-1][0] if entries else 0
        return {"rows": entries[::-1], "next": before, "first": first_row}

    def _entries(
        self, looked: Looked, wanted: RowFilter, start: int, end: int
    ) -> Iterator[tuple[int, Any]]:
        """Yield the rows of a block that pass, and what the list says of them."""
        for record in wanted.records(looked).tolist():
            if not start <= looked.first + record < end:
                continue
            shown, title = self._shown(looked, record)
            if wanted.in_tokens and not wanted.has_length(_tokens(shown)):
                continue
            yield (
                looked.first + record,
                entry_of(PicturedRow(shown, title, []), looked.codes.get(record, [])),
            )

    def _shown(self, looked: Looked, record: int) -> tuple[ShownRow, str]:
        fetched = looked.fetch(record)
        return show(fetched, self.reading.shown)[0], title_of(fetched.row)

    def row(self, number: int) -> dict[str, Any]:
        """Return all that is shown of one row."""
        return self._checked(lambda: self._row(number))

    def _row(self, number: int) -> dict[str, Any]:
        if not self._count_to(number, self.clock() + self.seconds):
            raise OptionError(f"the rows before row {number:,} are not counted yet; go to it first")
        looked = next(self.book.forward(number), None)
        record = -1 if looked is None else number - looked.first
        if looked is None or record not in looked.records:
            raise OptionError(f"there is no row {number:,}")
        fetched = looked.fetch(record)
        shown = show(fetched, self.reading.shown)[0]
        one = PicturedRow(shown, title_of(fetched.row), Thumbnails().of_row(fetched.row))
        return {"entry": entry_of(one, looked.codes.get(record, [])), "row": packed_row(one)}

    def line(self, source: int, line: int) -> dict[str, Any]:
        """Return the row that is at a line of a source."""
        return self._checked(lambda: self._line(source, line))

    def _line(self, source: int, line: int) -> dict[str, Any]:
        if not 0 <= source < len(self.book.sources):
            raise OptionError(f"there is no source {source}")
        until = self.clock() + self.seconds
        while not self.book.knows_line(source, line) and self.book.count_on():
            if self.clock() > until:
                return {"again": line, "done": self._done()}
        row = self.book.row_of_line(source, line)
        if row is None:
            name = self.book.sources[source].name
            raise OptionError(f"{name} has no lines of text; go to a row instead")
        return {"at": row}

    def _count_to(self, row: int, until: float) -> bool:
        """Count rows until a row is known, or all are; False if that takes too long."""
        while not self.book.is_known(row) and self.book.count_on():
            if self.clock() > until:
                return False
        return True

    def _done(self, looked: Looked | None = None) -> float:
        """Return about which share of the bytes was read."""
        begin = self.book.chapters[-1].begin if looked is None else looked.begin
        return min(begin / max(self.book.size, 1), 1.0)


def _tokens(shown: ShownRow) -> int:
    return max((len(side.ids) for side in shown.sides), default=0)


def _mark(path: Path) -> Mark:
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns
