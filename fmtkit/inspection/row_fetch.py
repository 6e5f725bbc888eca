"""Rows fetched by number: a second pass that converts only the blocks they are in."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from fmtkit.converting import pipeline
from fmtkit.converting.preparation import Job
from fmtkit.core.codes import Reject
from fmtkit.inspection.shown_rows import Place

SAMPLE_BLOCKS = 16
"""Blocks of which a sample is taken: each has to be converted once more."""

HELD_ROWS = 200
"""Rows of a source that can be read only once, which are kept for want of a second pass."""


@dataclass(frozen=True)
class BlockStart:
    """Where a block stands: its first row over all sources, and within its source."""

    source: int
    number: int
    first: int
    first_of_source: int
    rows: int


@dataclass(frozen=True)
class Fetched:
    """A row of the table (the first that its record made), or the reject that it became."""

    place: Place
    row: dict[str, Any] | None
    reject: Reject | None = None


@dataclass
class RowFetch:
    """Where rows are, and how to get them."""

    job: Job
    starts: list[BlockStart] = field(default_factory=list)
    held: dict[int, Fetched] = field(default_factory=dict)
    """Row -> what it became, of sources that can be read only once."""

    @property
    def rows(self) -> int:
        """Count the rows of all sources."""
        return self.starts[-1].first + self.starts[-1].rows if self.starts else 0

    def sample(self, count: int) -> list[int]:
        """Choose so many rows at even distances, of no more than SAMPLE_BLOCKS blocks."""
        if len(self.starts) <= SAMPLE_BLOCKS:
            return spread(self.rows, count)
        chosen = [self.starts[i] for i in spread(len(self.starts), SAMPLE_BLOCKS)]
        each = -(-count // SAMPLE_BLOCKS)
        return [start.first + row for start in chosen for row in spread(start.rows, each)]

    def place(self, row: int, line: int | None = None) -> Place:
        """Say where a row stands."""
        firsts = [start.first for start in self.starts]
        start = self.starts[int(np.searchsorted(firsts, row, side="right")) - 1]
        name = self.job.sources[start.source].name
        return Place(row, name, start.first_of_source + row - start.first, line)

    def hold(self, start: BlockStart, table: pa.Table, records: np.ndarray, lines: Any) -> None:
        """Keep the first rows of a source that cannot be read again."""
        room = max(0, HELD_ROWS - len(self.held))
        for i, row in enumerate(table.slice(0, room).to_pylist()):
            number = start.first + int(records[i])
            self.held.setdefault(number, Fetched(self.place(number, lines[i]), row))

    def fetch(self, numbers: Iterable[int]) -> Iterator[Fetched]:
        """Yield the rows with these numbers, ascending; none of a source that is gone."""
        wanted = np.unique(np.fromiter(numbers, dtype=np.int64))
        for index, source in enumerate(self.job.sources):
            starts = {s.number: s for s in self.starts if s.source == index}
            within = {
                n: wanted[(wanted >= s.first) & (wanted < s.first + s.rows)]
                for n, s in starts.items()
            }
            left = sum(len(rows) > 0 for rows in within.values())
            if source.once:
                yield from (
                    self.held[n]
                    for rows in within.values()
                    for n in rows.tolist()
                    if n in self.held
                )
                continue
            if left:
                yield from self._from_source(index, starts, within, left)

    def _from_source(
        self, index: int, starts: dict[int, BlockStart], within: dict[int, np.ndarray], left: int
    ) -> Iterator[Fetched]:
        for number, block in enumerate(self.job.sources[index].blocks()):
            rows = within.get(number)
            if rows is None or not len(rows):
                continue
            piece = pipeline.process(self.job, index, number, block)
            yield from self._of_piece(piece, starts[number], rows.tolist())
            left -= 1
            if not left:
                return

    def _of_piece(
        self, piece: pipeline.Piece, start: BlockStart, rows: list[int]
    ) -> Iterator[Fetched]:
        rejects = {reject.row: reject for reject in piece.rejects}
        for number in rows:
            record = number - start.first
            if record in rejects:
                reject = rejects[record]
                yield Fetched(self.place(number, reject.line), None, reject)
                continue
            i = int(np.searchsorted(piece.records, record))
            if i == len(piece.records) or piece.records[i] != record:
                yield Fetched(self.place(number), None)
                continue
            row = piece.table.slice(i, 1).to_pylist()[0]
            yield Fetched(self.place(number, piece.line(i)), row)


def spread(rows: int, count: int) -> list[int]:
    """Choose so many rows at even distances."""
    if rows <= count:
        return list(range(rows))
    return [int(i) for i in np.linspace(0, rows - 1, count).astype(np.int64)]
