"""Rows fetched by number: a second pass that converts only the blocks they are in."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
import pyarrow as pa

from fmtkit.core.codes import Reject
from fmtkit.core.data_classes import dataclass
from fmtkit.inspection.shown_rows import Place
from fmtkit.running import pipeline
from fmtkit.running.preparation import Job
from fmtkit.running.task_work import naming_lost_tasks
from fmtkit.sources.parts import blocks_of_part, parts_of
from fmtkit.work.engine_choice import engine_of
from fmtkit.work.engines import Inline
from fmtkit.work.tasks import PART_SHIFT, Task, can_travel

SAMPLE_BLOCKS = 16
"""Blocks of which a sample is taken: each has to be converted again."""

HELD_ROWS = 200
"""Rows that are kept of a source that can be read only once, since there is no second pass."""


@dataclass(frozen=True, slots=True)
class BlockStart:
    """Where a block is: its first row over all sources, and within its source."""

    source: int
    number: int
    first: int
    first_of_source: int
    rows: int
    first_line: int = 1
    """The line at which its part of the source begins."""
    left: tuple[int, ...] | None = field(default=None, compare=False)
    """The rows that are not part of a later one, where some are (joined rows); None where all are."""

    @property
    def size(self) -> int:
        """Count the rows that can be looked at."""
        return self.rows if self.left is None else len(self.left)

    def row(self, place: int) -> int:
        """Return the number of a row that can be looked at."""
        return self.first + (place if self.left is None else self.left[place])


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

    @property
    def size(self) -> int:
        """Count the rows that can be looked at: all that are not part of a later one."""
        return sum(start.size for start in self.starts)

    def sample(self, count: int) -> list[int]:
        """Choose a number of evenly spaced rows, from no more than SAMPLE_BLOCKS blocks."""
        blocks = [start for start in self.starts if start.size]
        if len(blocks) <= SAMPLE_BLOCKS:
            return self.spread(count)
        chosen = [blocks[i] for i in spread(len(blocks), SAMPLE_BLOCKS)]
        each = -(-count // SAMPLE_BLOCKS)
        return [start.row(place) for start in chosen for place in spread(start.size, each)]

    def spread(self, count: int) -> list[int]:
        """Choose a number of evenly spaced rows."""
        return self._numbers(spread(self.size, count))

    def begin(self, count: int) -> list[int]:
        """Choose the first rows."""
        return self._numbers(range(min(count, self.size)))

    def _numbers(self, places: Sequence[int]) -> list[int]:
        """Return the numbers of rows by their places among those that can be looked at, ascending."""
        found: list[int] = []
        before, starts = 0, iter(self.starts)
        start = next(starts, None)
        for place in places:
            while start is not None and place >= before + start.size:
                before, start = before + start.size, next(starts, None)
            if start is not None:
                found.append(start.row(place - before))
        return found

    def place(self, row: int, line: int | None = None) -> Place:
        """Return where a row is: its source and line."""
        start = self._start(row)
        name = self.job.sources[start.source].name
        return Place(row, name, start.first_of_source + row - start.first, line)

    def _start(self, row: int) -> BlockStart:
        """Return the block that a row is in, never one without rows."""
        return self.starts[bisect_right(self.starts, row, key=lambda start: start.first) - 1]

    def hold(self, start: BlockStart, table: pa.Table, records: np.ndarray, lines: Any) -> None:
        """Keep the first rows of a source that cannot be read again."""
        room = max(0, HELD_ROWS - len(self.held))
        for i, row in enumerate(table.slice(0, room).to_pylist()):
            number = start.first + int(records[i])
            self.held.setdefault(number, Fetched(self.place(number, lines[i]), row))

    def fetch(self, numbers: Iterable[int]) -> Iterator[Fetched]:
        """Yield the rows with these numbers, ascending; none of a source that cannot be read again."""
        wanted: dict[tuple[int, int], dict[BlockStart, list[int]]] = {}
        for number in sorted({n for n in numbers if n < self.rows}):
            start = self._start(number)
            blocks = wanted.setdefault((start.source, start.number >> PART_SHIFT), {})
            blocks.setdefault(start, []).append(number)
        sources = self.job.sources
        again = {place: blocks for place, blocks in wanted.items() if not sources[place[0]].once}
        # Workers read what they can reach; the rows of other sources are here.
        engine = engine_of(self.job.options) if all(map(can_travel, sources)) else Inline()
        parts = iter(self._parts(again))
        found = naming_lost_tasks(engine.map(RowsOfPart(self.job), parts), sources)
        for place, blocks in wanted.items():
            if place in again:
                yield from self._placed([*blocks], next(found))
            else:
                rows = (number for own in blocks.values() for number in own)
                yield from (self.held[number] for number in rows if number in self.held)

    def _parts(
        self, wanted: Mapping[tuple[int, int], Mapping[BlockStart, Sequence[int]]]
    ) -> list["PartWanted"]:
        """Return the parts to read, and the rows that are wanted of each."""
        parts = {source: parts_of(self.job.sources[source]) for source, _ in wanted}
        return [
            PartWanted(
                Task(number, ((source, parts[source][number]),)),
                next(iter(blocks)).first_line,
                {s.number: [row - s.first for row in rows] for s, rows in blocks.items()},
            )
            for (source, number), blocks in wanted.items()
        ]

    def _placed(
        self, starts: Sequence[BlockStart], found: Sequence["RowFound"]
    ) -> Iterator[Fetched]:
        firsts = {start.number: start.first for start in starts}
        for one in found:
            place = self.place(firsts[one.block] + one.record, one.line)
            yield Fetched(place, one.row, one.reject)


@dataclass(frozen=True)
class PartWanted:
    """Rows that are wanted of a part of a source, as the only part of a task."""

    task: Task
    first_line: int
    rows: Mapping[int, Sequence[int]]
    """Block -> records in it, ascending."""

    def named(self, sources: Sequence[Any]) -> str:
        """Return what is read, for errors."""
        return self.task.named(sources)


@dataclass(frozen=True)
class RowFound:
    """What a record of a block became."""

    block: int
    record: int
    line: int | None
    row: dict[str, Any] | None
    reject: Reject | None = None


@dataclass(frozen=True)
class RowsOfPart:
    """Converts the blocks of a part that hold wanted rows; it can be pickled."""

    job: Job

    def __call__(self, wanted: PartWanted) -> list[RowFound]:
        """Read the part up to the last of them."""
        ((source, part),) = wanted.task.parts
        found: list[RowFound] = []
        blocks = blocks_of_part(self.job.sources[source], part, wanted.first_line)
        last = max(wanted.rows)
        for number, block in enumerate(blocks, part.number << PART_SHIFT):
            records = wanted.rows.get(number)
            if records is not None:
                pieces = pipeline.process(self.job, source, number, block)
                found += rows_of_pieces(pieces, number, records)
            if number == last:
                break
        return found


def rows_of_pieces(
    pieces: Iterable[pipeline.Piece], block: int, records: Sequence[int]
) -> Iterator[RowFound]:
    """Yield what some records of a block became; a record that made several rows, the first of them."""
    found: dict[int, RowFound] = {}
    for piece in pieces:
        rejects = {reject.row: reject for reject in piece.rejects}
        for record in records:
            reject = rejects.get(record)
            i = int(np.searchsorted(piece.records, record))
            if reject is not None:
                found[record] = RowFound(block, record, reject.line, None, reject)
            elif record not in found and piece.records[i : i + 1].tolist() == [record]:
                row = piece.table.slice(i, 1).to_pylist()[0]
                found[record] = RowFound(block, record, piece.line(i), row)
    for record in records:
        yield found.get(record, RowFound(block, record, None, None))


def spread(rows: int, count: int) -> list[int]:
    """Choose a number of evenly spaced rows."""
    if rows <= count:
        return list(range(rows))
    return [int(i) for i in np.linspace(0, rows - 1, count).astype(np.int64)]
