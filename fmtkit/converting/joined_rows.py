"""Joined rows: adjacent rows with the same value in one column are read as one row.

A tree of messages may be in a row for each message, the two answers to a prompt in two rows. The row that
is made of them is an object with the list of them, `{"rows": [...]}`, at the place of the last one.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any

from fmtkit.converting.made_rows import MadeRows
from fmtkit.sources.blocks import Block
from fmtkit.sources.canonical_json import canonical
from fmtkit.sources.made_source import MadeSource

ROWS = "rows"
MOST = 10_000
"""Most rows that are joined: more rows of one value suggest a different layout, and would fill the memory."""


def joined(rows: Iterable[Mapping[str, Any]], by: str) -> list[Mapping[str, Any]]:
    """Return rows as one for each run of the same value in a column.

    >>> joined([{"p": 1, "a": 2}, {"p": 1, "a": 3}], "p")
    [{'rows': [{'p': 1, 'a': 2}, {'p': 1, 'a': 3}]}]
    """
    listed = list(rows)
    if all(row.keys() == {ROWS} for row in listed):
        return listed
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
    """A source whose rows are joined by a column."""

    by: str

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
            if run.rows and not self._goes_on(run, following):
                made.end(run)
                run = _Run()
            yield made.block(joined=made.count - len(made.rows))

    def _with(self, run: _Run, value: Mapping[str, Any], made: "_Joined", record: int) -> _Run:
        """Add a row to the run that it belongs to, or begin the next one."""
        key = value.get(self.by)
        if not run.rows or key is None or key != run.value:
            if run.rows:
                made.end(run)
            run = _Run(key, is_whole=value.keys() == {ROWS})
        if len(run.rows) >= MOST:
            message = f"more than {MOST:,} rows with this {self.by} follow each other"
            made.refuse(record, "value_error", self.by, message)
            return run
        run.rows.append(canonical(value))
        run.place, run.line = made.place(record), made.records.line(record)
        made.count += 1
        return run

    def _goes_on(self, run: _Run, block: Block | None) -> bool:
        """Return whether the first sound row of the next block belongs to a run."""
        if block is None or run.value is None or len(run.rows) >= MOST:
            return False
        first = next((value for _, value in MadeRows(block).sound()), {})
        return bool(first.get(self.by) == run.value)


class _Joined(MadeRows):
    """The rows of a block, while they are joined."""

    count = 0
    """Rows that runs took, of this block."""

    def end(self, run: _Run) -> None:
        """Make a row of a run, at the place of the last row that it is made of."""
        self.add(run.text().encode("utf-8", "surrogatepass"), run.place, run.line)
