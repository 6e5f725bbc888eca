"""The first pass of an inspection: every row is examined, block by block or task by task.

Results number rows and lines from the first row of their part, and add up: a worker sends the result of a
task, and the caller adds the tasks in the order of the input.
"""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import field, replace
from functools import cached_property
from threading import local
from typing import Any

import numpy as np
import pyarrow as pa

from fmtkit.core.codes import Reject
from fmtkit.core.data_classes import dataclass
from fmtkit.core.pickling import PickledByFields
from fmtkit.core.tables import carried
from fmtkit.counting.lengths import CharacterCounter, Counter
from fmtkit.counting.token_counts import TokenCounter
from fmtkit.findings.box_columns import Objects, read_objects
from fmtkit.findings.score_columns import read_scores
from fmtkit.inspection.collector import RowStatistics, Viewer
from fmtkit.inspection.row_fetch import HELD_ROWS, BlockStart, RowFetch
from fmtkit.inspection.survey_making import BadRows
from fmtkit.running import pipeline
from fmtkit.running.ledger import Ledger
from fmtkit.running.pipeline import Piece, Progress
from fmtkit.running.preparation import Job
from fmtkit.running.progress_bar import Watch
from fmtkit.running.task_work import (
    counts_of,
    limited,
    limited_tasks,
    naming_lost_tasks,
    works_by_tasks,
)
from fmtkit.sources.blocks import Block
from fmtkit.work.engine_choice import engine_of
from fmtkit.work.engines import Inline
from fmtkit.work.tasks import Task, tasks_of

FINDINGS = {
    "no_preference": "chosen_equals_rejected",
    "role_order": "role_order",
    "length_mismatch": "missing_labels",
}
"""Code of a bad row -> the finding that it is as well: a conversion leaves such rows out."""


@dataclass
class Seen:
    """What was seen of rows, in input order; rows and lines are counted from where they begin."""

    statistics: RowStatistics
    ledger: Ledger = field(default_factory=Ledger)
    bad: BadRows = field(default_factory=BadRows)
    progress: Progress = field(default_factory=Progress)
    starts: list[BlockStart] = field(default_factory=list)
    made: set[int] = field(default_factory=set)
    """Rows of the block that is being added of which rows of the table were made."""

    def add(self, piece: Piece) -> BlockStart:
        """Add what was seen of a block, and return where it is."""
        source = piece.source
        start = BlockStart(
            source,
            piece.block,
            self.ledger.rows_read,
            self.progress.rows.get(source, 0),
            piece.counts.rows_read,
            self.progress.lines.get(source, 1),
        )
        self.made.update((piece.records - start.first_of_source).tolist())
        if piece.has_counts:
            self.starts.append(
                _with_left(start, piece, self.made) if piece.counts.joined else start
            )
            self.made = set()
        self.statistics.absorb(piece.result.statistics, start.first)
        self._note_rejects(piece.rejects, start)
        self.ledger.add(piece, skipped=False)
        self.progress.add(piece)
        return start

    def _note_rejects(self, rejects: Sequence[Reject], start: BlockStart) -> None:
        first = start.first - start.first_of_source
        self.bad.add(rejects, first)
        lines = {reject.row + first: reject.line for reject in rejects}
        for reject in rejects:
            code = finding_of(reject)
            if code is not None:
                self.statistics.findings.note(code, np.array([reject.row + first], dtype=np.int64))
        self.statistics.lines |= {
            row: lines[row] for row in self.statistics.findings.named() & lines.keys()
        }

    def absorb(self, other: "Seen", task: Task) -> None:
        """Add what was seen of the task that comes next."""
        first, source = self.ledger.rows_read, task.parts[0][0]
        # Only the first of its sources may have been started by the tasks before.
        rows = self.progress.rows.get(source, 0)
        lines = self.progress.lines.get(source, 1) - 1
        own = other.progress.rows.get(source, 0)
        for start in other.starts:
            begun = start.source == source
            self.starts.append(
                replace(
                    start,
                    first=start.first + first,
                    first_of_source=start.first_of_source + rows * begun,
                    first_line=start.first_line + lines * begun,
                )
            )

        def line(row: int, line: int | None) -> int | None:
            return line if line is None or row >= own else line + lines

        other.statistics.lines = {
            row: line(row, place) for row, place in other.statistics.lines.items()
        }
        self.statistics.absorb(other.statistics, first)
        self.bad.absorb(other.bad.placed(line), first)
        self.ledger.merge(other.ledger)
        self.progress.jump(task, counts_of(other.ledger, other.progress))


def _with_left(start: BlockStart, piece: Piece, made: set[int]) -> BlockStart:
    """Return a block of joined rows with those that made rows or are bad, and are not part of a later one."""
    bad = (reject.row - start.first_of_source for reject in piece.rejects)
    return replace(start, left=tuple(sorted({*made, *bad})))


@dataclass(frozen=True)
class TaskView:
    """Looks at every row of a task; it can be pickled."""

    job: Job
    viewer: "BlockViewer"

    def __call__(self, task: Task) -> Seen:
        """Read and convert a task, and return what was seen."""
        seen = Seen(self.viewer.viewer.empty())
        job = limited(self.job, task)
        pieces = pipeline.stream(job, engine=Inline(), step=self.viewer, tasks=[task])
        for piece in pieces:
            seen.add(piece)
        return seen


def look_at_rows(
    job: Job, viewer: "BlockViewer", watch: Watch | None = None
) -> tuple[Seen, RowFetch]:
    """Examine every row of a job; return what was seen, and how to fetch single rows."""
    seen = Seen(viewer.viewer.empty())
    fetch = RowFetch(job, seen.starts)

    def report_progress() -> None:
        if watch is not None:
            watch(seen.progress.bytes_of_sources(), job.size, seen.ledger)

    if works_by_tasks(job):
        tasks = limited_tasks(job)
        work = engine_of(job.options).map(TaskView(job, viewer), iter(tasks))
        with closing(naming_lost_tasks(work, job.sources)) as found:
            for task, one in zip(tasks, found, strict=True):
                seen.absorb(one, task)
                report_progress()
    else:
        # Cut as the workers' tasks are: what is shown of a block does not depend on the engine.
        read = pipeline.stream(job, step=viewer, tasks=tasks_of(job.sources))
        with closing(read) as pieces:
            for piece in pieces:
                start, view = seen.add(piece), piece.result
                if view.table is not None:
                    fetch.hold(start, view.table, view.records, view.lines)
                report_progress()
    seen.ledger.check()
    return seen, fetch


def finding_of(reject: Reject) -> str | None:
    """Return the finding that a bad row is, None where it is only a bad row."""
    column = reject.column or ""
    if reject.code == "empty_field" and column.endswith("content"):
        return "empty_turn"
    if column.startswith("labels") and reject.code in ("null_field", "type_error"):
        return "missing_labels"
    if reject.code == "no_preference" and not reject.message.startswith("chosen equals rejected"):
        return None  # two replies of which none is preferred
    return FINDINGS.get(reject.code)


@dataclass(frozen=True)
class BlockViewer(PickledByFields):
    """Examines the rows of a block; it can be pickled, to be run in another process."""

    viewer: Viewer
    splits: tuple[str, ...]
    """The split that each source's name suggests."""
    scores: tuple[tuple[str, ...], ...]
    """The columns with scores of two replies in each source."""
    once: tuple[bool, ...]
    """Whether each source can be read only once."""
    boxes: tuple[bool, ...] = ()
    """Whether each source has boxes of its images."""

    def __call__(self, table: pa.Table, piece: Piece, block: Block) -> "BlockView":
        """Look at the table that a block became."""
        table = self._with_scores(table, piece, block)
        statistics = self.viewer.view(
            table,
            piece.records,
            self._counter(),
            self.splits[piece.source],
            self._objects(piece, block),
        )
        if piece.has_counts:
            statistics.columns.add_block(block, piece.block)
        for row in statistics.findings.named():
            statistics.lines[row] = piece.line(int(np.searchsorted(piece.records, row)))
        if not self.once[piece.source] or piece.block:
            return BlockView(statistics)
        first = table.slice(0, HELD_ROWS)
        lines = [piece.line(i) for i in range(first.num_rows)]
        return BlockView(statistics, first, piece.records[: first.num_rows], lines)

    @cached_property
    def _counters(self) -> local:
        return local()

    def _counter(self) -> Counter:
        """Return this thread's counter: its cache of pieces is not for several threads."""
        counters = self._counters
        if not hasattr(counters, "mine"):
            tokenizer = self.viewer.tokenizer
            # What else looks at the rows is told the hashes of their ids.
            hashes = self.viewer.observer is not None
            made = TokenCounter(tokenizer, 1, hashes) if tokenizer else CharacterCounter()
            counters.mine = made
        mine: Counter = counters.mine
        return mine

    def _objects(self, piece: Piece, block: Block) -> Objects:
        is_read = any(self.boxes[piece.source : piece.source + 1])
        return read_objects(block) if is_read else {}

    def _with_scores(self, table: pa.Table, piece: Piece, block: Block) -> pa.Table:
        names = self.scores[piece.source]
        if not names or "chosen" not in table.column_names or not table.num_rows:
            return table
        for name, numbers in read_scores(block, names).items():
            everything = np.full(len(numbers) + len(block.rejects), np.nan)
            everything[block.places(len(numbers))] = numbers
            table = table.append_column(carried(name), pa.array(everything[piece.records]))
        return table


@dataclass(frozen=True)
class BlockView:
    """What was seen of a block, and its first rows where it cannot be read again."""

    statistics: RowStatistics
    table: pa.Table | None = None
    records: Any = None
    lines: Sequence[int | None] = field(default=())
