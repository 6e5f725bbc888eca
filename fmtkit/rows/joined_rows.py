"""Joined rows: adjacent rows with the same value in one column, or all rows of a file, are read as one row.

A tree of messages may be in a row for each message, the two answers to a prompt in two rows, a session of an
agent in a file with a line for each event. The row that is made of them is an object with the list of them,
`{"rows": [...]}`, at the place of the last one.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import chain, pairwise
from typing import Any

from fmtkit.core.data_classes import dataclass
from fmtkit.rows.rows_of_functions import MadeRows
from fmtkit.sources.blocks import Block
from fmtkit.sources.canonical_json import canonical
from fmtkit.sources.made_source import MadeSource

ROWS = "rows"
MOST = 10_000
"""Most rows that are joined: more rows of one value suggest a different layout, and would fill the memory."""
MOST_OF_FILE, BYTES_OF_FILE = 200_000, 64 << 20
"""Most rows of a file that are joined, and most bytes of them: they are in memory at the same time."""
UNREAD = "a line that could not be read"
"""What stands in the list of a file's rows for each that was rejected."""


def joined(
    rows: Iterable[Mapping[str, Any]], by: str, *, whole_file: bool = False
) -> list[Mapping[str, Any]]:
    """Return rows as one for each run of the same value in a column, or as a single one.

    >>> joined([{"p": 1, "a": 2}, {"p": 1, "a": 3}], "p")
    [{'rows': [{'p': 1, 'a': 2}, {'p': 1, 'a': 3}]}]
    """
    listed = list(rows)
    if all(row.keys() == {ROWS} for row in listed):
        return listed
    if whole_file:
        return [{ROWS: listed}] if listed else []
    runs: list[list[Mapping[str, Any]]] = []
    for row in listed:
        value = row.get(by)
        if runs and value is not None and runs[-1][0].get(by) == value:
            runs[-1].append(row)
        else:
            runs.append([row])
    return [{ROWS: run} for run in runs]


def lacks(rows: Sequence[Mapping[str, Any]], by: str) -> bool:
    """Return whether no row has the column to join by, nor is a joined row."""
    return not any(by in row or row.keys() == {ROWS} for row in rows)


@dataclass
class _Run:
    """Adjacent rows that are being joined."""

    value: Any = None
    rows: list[str] = field(default_factory=list)
    """As JSON."""
    size: int = 0
    """Characters of them."""
    is_whole: bool = False
    """Whether its only row is a joined row already, as in a quarantine."""
    place: int = 0
    """The last row, in the block that is being read."""
    line: int | None = None

    def text(self) -> str:
        """Return the row that is made of them."""
        return self.rows[0] if self.is_whole else "{" + f'"{ROWS}":[{",".join(self.rows)}]' + "}"


@dataclass(eq=False)
class JoinedSource(MadeSource):
    """A source whose rows are joined by a column, or by file."""

    by: str
    whole_file: bool = False

    @property
    def what(self) -> str:
        """Return the name of what is kept, for errors."""
        return f"the joined rows of {self.name}"

    def made(self) -> Iterator[Block]:
        """Join the rows of every block; a run may continue into the next block."""
        run = _Run()
        blocks = pairwise(chain(self.source.blocks(), (None,)))
        for block, following in blocks:
            assert block is not None
            made = _Joined(block)
            for record, value in made.sound():
                run = self._with(run, value, made, record)
            self._note_unread(run, made)
            if run.rows and not self._goes_on(run, following):
                made.end(run)
                run = _Run()
            yield made.block(joined=made.count - len(made.rows))

    def _with(self, run: _Run, value: Mapping[str, Any], made: "_Joined", record: int) -> _Run:
        """Add a row to the run that it belongs to, or begin the next one."""
        key = value.get(self.by)
        is_whole = value.keys() == {ROWS}
        if not run.rows or run.is_whole or is_whole or not self._is_same(key, run):
            if run.rows:
                made.end(run)
            run = _Run(key, is_whole=is_whole)
        text = canonical(value)
        full = self._full(run, text)
        if full:
            made.refuse(record, "value_error", self.by, full)
            return run
        self._note_unread(run, made, before=made.place(record))
        run.rows.append(text)
        run.size += len(text)
        run.place, run.line = made.place(record), made.records.line(record)
        made.count += 1
        return run

    def _is_same(self, key: Any, run: _Run) -> bool:
        return self.whole_file or (key is not None and key == run.value)

    def _full(self, run: _Run, text: str) -> str:
        """Return why a run has no room for another row; nothing where it has."""
        if not self.whole_file:
            words = f"more than {MOST:,} rows with this {self.by} follow each other"
            return words if len(run.rows) >= MOST else ""
        if len(run.rows) < MOST_OF_FILE and (not run.rows or run.size + len(text) <= BYTES_OF_FILE):
            return ""
        return (
            f"the file has more than {MOST_OF_FILE:,} rows or {BYTES_OF_FILE >> 20} MiB, and all of them are "
            "read as one row: split it"
        )

    def _note_unread(self, run: _Run, made: "_Joined", before: int | None = None) -> None:
        """Note in the row of a file the lines that were rejected, up to a place in the block."""
        count = made.unread(before)
        if self.whole_file and run.rows and not run.is_whole:
            run.rows += [f'"{UNREAD}"'] * min(count, MOST_OF_FILE - len(run.rows))

    def _goes_on(self, run: _Run, block: Block | None) -> bool:
        """Return whether the first sound row of the next block belongs to a run."""
        if block is None or run.is_whole:
            return False
        first = next((value for _, value in MadeRows(block).sound()), None)
        if self.whole_file or first is None:
            return first is not None and first.keys() != {ROWS}
        full = len(run.rows) >= MOST
        return bool(not full and run.value is not None and first.get(self.by) == run.value)


class _Joined(MadeRows):
    """The rows of a block, while they are joined."""

    count = 0
    """Rows that runs took, of this block."""

    def __init__(self, block: Block) -> None:
        super().__init__(block)
        self._unread = deque(sorted(reject.row for reject in block.rejects))
        self._refused = 0

    def refuse(self, record: int, code: str, column: str | None, message: str) -> None:
        """Reject a row."""
        super().refuse(record, code, column, message)
        self._refused += 1

    def unread(self, before: int | None) -> int:
        """Count the rejected rows since the last call, up to a place in the block."""
        count, self._refused = self._refused, 0
        while self._unread and (before is None or self._unread[0] < before):
            self._unread.popleft()
            count += 1
        return count

    def end(self, run: _Run) -> None:
        """Make a row of a run, at the place of the last row that it is made of."""
        self.add(run.text().encode("utf-8", "surrogatepass"), run.place, run.line)
