"""The pipeline: read, convert, pair, render, cut, split; in input order, on threads, in bounded memory.

`stream` yields what each block of a job's sources became. Nothing here writes:
`fmtkit.converting.conversions` hands the pieces to a sink.
"""

import os
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, TypeVar

import numpy as np
import polars as pl
import pyarrow as pa

from fmtkit import buffers
from fmtkit.codes import PRECEDENCE, Reject
from fmtkit.converting import (
    control_tokens,
    pairing,
    reading,
    verdicts,
)
from fmtkit.converting.binding import Binding, ReadPlan
from fmtkit.converting.conversion import convert_frame
from fmtkit.converting.preparation import Job
from fmtkit.sources.blocks import ArrowBlock, Block, MadeBlock

T = TypeVar("T")


@dataclass
class Progress:
    """How far a run has come: what a resumed run must know."""

    next_block: tuple[int, int] = (0, 0)
    rows: dict[int, int] = field(default_factory=dict)
    """Source -> rows read of it."""
    bytes: dict[int, int] = field(default_factory=dict)
    """Source -> bytes read of it."""

    def add(self, piece: "Piece") -> None:
        """Count a piece."""
        self.next_block = (piece.source, piece.block + 1)
        self.rows[piece.source] = self.rows.get(piece.source, 0) + piece.rows_read
        self.bytes[piece.source] = piece.bytes_read

    def bytes_of_sources(self) -> int:
        """Return the bytes read of all sources."""
        return sum(self.bytes.values())

    def as_dict(self) -> dict[str, Any]:
        """Return the progress as it stands in a journal."""
        return {
            "next_block": list(self.next_block),
            "rows": list(self.rows.items()),
            "bytes": list(self.bytes.items()),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Progress":
        """Read what `as_dict` wrote."""
        first, second = data["next_block"]
        return cls((first, second), dict(data["rows"]), dict(data["bytes"]))


@dataclass(frozen=True)
class Piece:
    """What a block became: rows, rejects, and the terms of the ledger.

    `records` is each row's record, within its source once `stream` yields it (int64).
    """

    source: int
    block: int
    table: pa.Table
    records: np.ndarray
    lines: Callable[[int], int | None]
    """Row of the table -> the physical line of its record."""
    rejects: tuple[Reject, ...]
    rows_read: int
    converted: int
    rows_written: int
    no_pair: int
    overlong_dropped: int
    filtered: int
    blank_lines: int
    warnings: Counter[str]
    bytes_read: int
    fast_rows: int
    traced_rows: int
    plain_rows: int
    result: Any = None
    """What the caller's own step made of the table on the worker."""


def stream(
    job: Job,
    *,
    workers: int | None = None,
    step: Callable[[pa.Table, "Piece"], Any] | None = None,
    progress: Progress | None = None,
) -> Iterator[Piece]:
    """Yield what each block becomes, in input order, from where `progress` says on.

    `step` runs on the worker over each table, whose rows are then let go. Records and lines of
    rejects are within their source.
    """
    count = workers or os.cpu_count() or 1
    begun = progress or Progress()
    places = dict(begun.rows)
    tasks = _tasks(job, begun.next_block, sum(places.values()))
    with ThreadPoolExecutor(max_workers=count) as pool:
        for piece in _in_order(pool, tasks, lambda task: process(job, *task, step=step), count + 2):
            first = places.get(piece.source, 0)
            places[piece.source] = first + piece.rows_read
            yield replace(
                piece,
                records=piece.records + first,
                rejects=tuple(replace(reject, row=reject.row + first) for reject in piece.rejects),
            )


def _tasks(job: Job, start: tuple[int, int], done: int) -> Iterator[tuple[int, int, Block]]:
    left = None if job.request.limit is None else job.request.limit - done
    if left is not None and left <= 0:
        return
    for index, source in enumerate(job.sources):
        if index < start[0]:
            continue
        skipped = start[1] if index == start[0] else 0
        for number, block in enumerate(source.blocks(skipped), start=skipped):
            if left is None:
                yield index, number, block
                continue
            kept, left = reading.head(block, left)
            yield index, number, kept
            if left <= 0:
                return


def _in_order(
    pool: ThreadPoolExecutor, tasks: Iterator[Any], work: Callable[[Any], T], ahead: int
) -> Iterator[T]:
    """Run tasks on a pool with at most `ahead` in flight; yield their results in order."""
    waiting: deque[Future[T]] = deque(pool.submit(work, task) for task in islice(tasks, ahead))
    try:
        while waiting:
            result = waiting.popleft().result()
            waiting.extend(pool.submit(work, task) for task in islice(tasks, 1))
            yield result
    finally:
        for future in waiting:
            future.cancel()


def process(
    job: Job,
    source: int,
    number: int,
    block: Block,
    *,
    step: Callable[[pa.Table, Piece], Any] | None = None,
) -> Piece:
    """Take one block the whole way."""
    made = _make(job, source, block)
    piece = Piece(source=source, block=number, bytes_read=block.bytes_read, **made)
    if step is None:
        return piece
    # The rows themselves are not kept: what waits for its turn is what `step` made of them.
    result = step(piece.table, piece)
    return replace(piece, result=result, table=piece.table.slice(0, 0), lines=_no_line)


@dataclass
class _Rows:
    """The canonical rows of a block on their way, and what was said of the others."""

    table: pa.Table
    rows: np.ndarray
    rejects: list[Reject]
    warnings: Counter[str]
    no_pair: int
    blank: int
    fast_rows: int


def _make(job: Job, source: int, block: Block) -> dict[str, Any]:
    """Convert, render and account for a block; return the fields of its piece."""
    binding = job.plans[source].binding
    records = reading.records_of(block, binding)
    begun = _convert(job, job.plans[source], block, records)
    if job.control_tokens:
        begun.warnings["control_tokens"] += control_tokens.count_rows(
            begun.table, job.control_tokens
        )
    done = job.text.apply(begun.table)
    begun.table = begun.table.slice(0, 0)
    rows, rejects = begun.rows, begun.rejects
    rejects += [
        records.reject(int(rows[f.row]), f.code, f.column, f.message) for f in done.failures
    ]
    table, kept = _without(done.table, rows[done.kept], {reject.row for reject in rejects})
    too_long = set(rows[done.overlong].tolist()) - set(kept.tolist()) - {r.row for r in rejects}
    own = () if isinstance(block, ArrowBlock) else block.rejects
    places = reading.places_of(block, len(records))
    rejects = _one_each([*(replace(r, row=int(places[r.row])) for r in rejects), *own])
    filtered = block.filtered if isinstance(block, MadeBlock) else 0
    rows_read = len(records) + len(own) + filtered
    return {
        "table": table,
        "records": places[kept],
        "lines": _lines(records, kept),
        "rejects": tuple(rejects),
        "rows_read": rows_read,
        "converted": rows_read - len(rejects) - begun.no_pair - len(too_long) - filtered,
        "rows_written": table.num_rows,
        "no_pair": begun.no_pair,
        "overlong_dropped": len(too_long),
        "filtered": filtered,
        "blank_lines": begun.blank,
        "warnings": +(begun.warnings + done.warnings),
        "fast_rows": begun.fast_rows,
        "traced_rows": done.traced_rows,
        "plain_rows": done.plain_rows,
    }


def _convert(job: Job, plan: ReadPlan, block: Block, records: reading.Rows) -> _Rows:
    """Parse and convert a block, and pair its rankings; frames die here, before anything is rendered."""
    parsed = reading.parse_block(block, records, plan)
    converted = convert_frame(parsed.frame, plan.binding)
    bad = [verdicts.refused(records, plan.binding, *entry) for entry in converted.bad]
    judged = verdicts.reconsidered(parsed.rejects, records, plan.binding)
    frame, warnings, no_pair = converted.frame, Counter(converted.warnings), 0
    if job.pairs is not None:
        paired = pairing.pair_up(frame, job.pairs, job.request.seed)
        frame, no_pair = paired.frame, len(paired.without_pair)
        warnings["rank_tie"] += paired.tied
    return _Rows(
        table=_canonical(frame, job, plan.binding),
        rows=frame.get_column("__row").to_numpy(),
        rejects=[*judged, *bad],
        warnings=+warnings,
        no_pair=no_pair,
        blank=parsed.blank,
        fast_rows=parsed.fast_rows,
    )


def _no_line(row: int) -> int | None:  # noqa: ARG001
    return None


def _without(table: pa.Table, rows: np.ndarray, lost: set[int]) -> tuple[pa.Table, np.ndarray]:
    """Drop the rows of lost records: if one pair of a row has no text, the row has none."""
    if not lost:
        return table, rows
    keep = ~np.isin(rows, list(lost))
    return (table, rows) if keep.all() else (table.filter(buffers.booleans(keep)), rows[keep])


def _lines(records: reading.Rows, kept: np.ndarray) -> Callable[[int], int | None]:
    return lambda row: records.line(int(kept[row]))


def _one_each(rejects: Sequence[Reject]) -> list[Reject]:
    """Keep one reject for each row, the most telling; a row of several pairs may fail more than once."""
    best: dict[int, Reject] = {}
    for reject in rejects:
        known = best.get(reject.row)
        if known is None or PRECEDENCE[reject.code] < PRECEDENCE[known.code]:
            best[reject.row] = reject
    return [best[row] for row in sorted(best)]


def _canonical(frame: pl.DataFrame, job: Job, binding: Binding) -> pa.Table:
    """Turn a converted frame into the canonical table, messages not yet rendered."""
    names = {kept.name: kept.label for kept in binding.kept}
    out = frame.drop("__row").rename(names)
    schema = job.canonical
    table = out.select(schema.names).to_arrow(compat_level=pl.CompatLevel.newest())
    return table.cast(schema).combine_chunks()
