"""The pipeline: read, convert, pair, render, cut, split; in input order, on threads, in bounded memory.

`stream` yields what each block of a job's sources became. Nothing here writes:
`fmtkit.converting.conversions` hands the pieces to a sink.
"""

from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from fmtkit.converting import control_tokens, pairing, reading
from fmtkit.converting.binding import Binding
from fmtkit.converting.conversion import convert_frame, reconsidered, refused
from fmtkit.converting.engines import Engine, TaskLostError, engine_of
from fmtkit.converting.fusing import Fused
from fmtkit.converting.preparation import Job
from fmtkit.converting.reading import Parsed, ReadPlan
from fmtkit.converting.tasks import PART_SHIFT, Task, tasks_of
from fmtkit.core import buffers
from fmtkit.core.codes import PRECEDENCE, Reject
from fmtkit.core.tables import DIALOG_COLUMNS
from fmtkit.rendering.content_parts import Cuts
from fmtkit.sources.blocks import BLOCK_BYTES, Block, JoinedRows, JsonBlock, Records, Rows
from fmtkit.sources.parts import blocks_of_part
from fmtkit.writing.task_output import Counts

Numbered = tuple[int, int, Block]
"""Index of a source, number of a block in it, and the block."""
GROUP_BYTES = BLOCK_BYTES // 16
"""Blocks of small files are merged up to this size: each costs about 8 ms by itself."""
GROUP_BLOCKS = 256
_NO_BLOCK = JsonBlock(b"", 0)
_TAUGHT_ROWS = 100
"""Rows that are enough to trace a template, in blocks longer than _TAUGHT_BYTES."""
_TAUGHT_BYTES = 1 << 20


@dataclass
class Progress:
    """How far a run has come: the state that a resumed run needs."""

    next_block: tuple[int, int] = (0, 0)
    rows: dict[int, int] = field(default_factory=dict)
    """Source -> rows read of it."""
    bytes: dict[int, int] = field(default_factory=dict)
    """Source -> bytes read of it."""
    lines: dict[int, int] = field(default_factory=dict)
    """Source -> the line at which the next part begins."""
    _all_bytes: int = 0

    def __post_init__(self) -> None:
        self._all_bytes = sum(self.bytes.values())

    def add(self, piece: "Piece") -> None:
        """Count a piece."""
        self.next_block = (piece.source, piece.next_block)
        self.lines[piece.source] = piece.next_line
        self.rows[piece.source] = self.rows.get(piece.source, 0) + piece.rows_read
        self._all_bytes += piece.bytes_read - self.bytes.get(piece.source, 0)
        self.bytes[piece.source] = piece.bytes_read

    def jump(self, task: Task, counts: Counts) -> None:
        """Count a task that was done elsewhere."""
        self.next_block = task.next_block
        for source, rows in counts.rows.items():
            self.rows[source] = self.rows.get(source, 0) + rows
        for source, lines in counts.lines.items():
            self.lines[source] = self.lines.get(source, 1) + lines
        for source, end in counts.ends.items():
            self._all_bytes += end - self.bytes.get(source, 0)
            self.bytes[source] = end

    def since(self, source: int) -> dict[str, Any]:
        """Return the progress of a source and those after it, as `as_dict` does."""

        def of(counts: dict[int, int]) -> dict[int, int]:
            return {
                index: counts[index]
                for index in range(source, self.next_block[0] + 1)
                if index in counts
            }

        return Progress(self.next_block, of(self.rows), of(self.bytes), of(self.lines)).as_dict()

    def bytes_of_sources(self) -> int:
        """Return the bytes read of all sources."""
        return self._all_bytes

    def as_dict(self) -> dict[str, Any]:
        """Return the progress as it is in a journal."""
        return {
            "next_block": list(self.next_block),
            "rows": _keyed(self.rows),
            "bytes": _keyed(self.bytes),
            "lines": _keyed(self.lines),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Progress":
        """Read what `as_dict` wrote."""
        first, second = data["next_block"]
        names = ("rows", "bytes", "lines")
        rows, read, lines = ({int(k): n for k, n in data[name].items()} for name in names)
        return cls((first, second), rows, read, lines)


def _keyed(counts: Mapping[int, int]) -> dict[str, int]:
    return {str(source): count for source, count in counts.items()}


@dataclass(frozen=True)
class Piece:
    """What a block became: rows, rejects, and the terms of the ledger.

    `records` is each row's record, within its source once `stream` yields it (int64).
    """

    source: int
    block: int
    table: pa.Table
    records: np.ndarray
    lines: np.ndarray | None
    """The physical line of each row's record (int64); None where the source has none, or with `encode`."""
    rejects: tuple[Reject, ...]
    rows_read: int
    converted: int
    rows_written: int
    no_pair: int
    unpaired: int
    """Pairs that were split into two rows each."""
    overlong_dropped: int
    filtered: int
    joined: int
    blank_lines: int
    warnings: Counter[str]
    unread: Counter[str]
    """Column -> rows in which it carries turns that the type does not read."""
    losses: Counter[str]
    """Field that a target does not hold -> rows that were written without it."""
    bytes_read: int
    fast_rows: int
    traced_rows: int
    plain_rows: int
    result: Any = ()
    """What the caller's own step made of the table on the worker; of `encode`, a list."""
    task: int = 0
    ends_task: bool = False
    next_block: int = 0
    """The block of its source from which a reader continues after this one."""
    next_line: int = 1
    """The line at which the part begins that holds that block."""

    def line(self, row: int) -> int | None:
        """Return the physical line of the record of a row of the table, where it is known."""
        return None if self.lines is None else int(self.lines[row])


def stream(
    job: Job,
    *,
    engine: Engine | None = None,
    step: Callable[[pa.Table, "Piece", Block], Any] | None = None,
    encode: Callable[[pa.Table, np.ndarray], list[Any]] | None = None,
    progress: Progress | None = None,
    tasks: Sequence[Task] | None = None,
) -> Generator[Piece, None, None]:
    """Yield what each block becomes, in input order, from the position of `progress` on.

    The engine is the one of the job's options, unless another is passed in.
    `step` runs on the worker over each table, with the block that it was made of; the rows are then released.
    So does `encode`, which is given source, block and place in the block of each row (int64, n x 3), but a
    table that pairs have made much larger than its block is passed to it in parts. Either can be pickled,
    with what it returns, where the engine is of other processes. Records and lines of rejects are within
    their source. With `encode` small blocks are processed together, so that a file of one row costs little:
    the piece of the last one holds the results of all. With `encode` or `tasks` blocks are read task by task:
    those of the given `tasks`, or of all.
    """
    begun = progress or Progress()
    places = dict(begun.rows)
    read: Iterator[list[_Read]] = ([each] for each in _whole(job, begun.next_block))
    if tasks is not None:
        read = ([each] for each in _one_by_one(job, begun, tasks))
    if encode is not None:
        read = _groups(job, begun, tasks_of(job.sources) if tasks is None else tasks)
    handed: deque[list[_Read]] = deque()
    groups = _handed(_limited(job, read, sum(places.values())), handed)
    engine = engine or engine_of(job.options)
    # Workers get blocks: what only this process can read stays here.
    work = partial(_process, replace(job, sources=()), step=step, encode=encode)
    for pieces in _mapped(job, engine, work, groups):
        for piece, place in zip(pieces, handed.popleft(), strict=True):
            first = places.get(piece.source, 0)
            places[piece.source] = first + piece.rows_read
            yield replace(
                piece,
                records=piece.records + first,
                rejects=tuple(replace(reject, row=reject.row + first) for reject in piece.rejects),
                task=place.task,
                ends_task=place.ends_task,
                next_block=place.next_block,
                next_line=place.next_line,
            )


def _mapped(
    job: Job,
    engine: Engine,
    work: Callable[[list[Numbered]], list[Piece]],
    groups: Iterator[list[Numbered]],
) -> Iterator[list[Piece]]:
    """Map over the blocks; SourceError names those that crash their worker."""
    try:
        yield from engine.map(work, groups)
    except TaskLostError as error:
        source, _, block = error.task[0]
        more = f" and {len(error.task) - 1} blocks more" if error.task[1:] else ""
        raise error.named(
            f"{job.sources[source].name}, the block up to byte {block.bytes_read}{more}"
        ) from error


@dataclass(frozen=True)
class _Read:
    """A block that was read, and where a reader continues after it."""

    source: int
    number: int
    block: Block
    next_block: int
    next_line: int = 1
    task: int = 0
    ends_task: bool = False


def _handed(groups: Iterator[list[_Read]], handed: deque[list[_Read]]) -> Iterator[list[Numbered]]:
    """Pass blocks to an engine, and remember the places of those without a result yet."""
    for group in groups:
        handed.append([replace(read, block=_NO_BLOCK) for read in group])
        yield [(read.source, read.number, read.block) for read in group]


def _limited(job: Job, groups: Iterator[list[_Read]], done: int) -> Iterator[list[_Read]]:
    """Stop at the last row that --limit allows; some were read before."""
    left = job.options.limit
    if left is None:
        yield from groups
        return
    left -= done
    while left > 0 and (group := next(groups, None)) is not None:
        kept = []
        for read in group:
            if left > 0:
                block, left = read.block.head(left)
                kept.append(replace(read, block=block))
        if left <= 0:
            kept[-1] = replace(kept[-1], ends_task=True)
        yield kept


def _whole(job: Job, start: tuple[int, int]) -> Iterator[_Read]:
    """Read every source from its start, or from a block on."""
    for index in range(start[0], len(job.sources)):
        skipped = start[1] if index == start[0] else 0
        for number, block in enumerate(job.sources[index].blocks(skipped), start=skipped):
            yield _Read(index, number, block, number + 1)


def _one_by_one(job: Job, begun: Progress, tasks: Sequence[Task]) -> Iterator[_Read]:
    """Read tasks block by block."""
    start, lines = begun.next_block, dict(begun.lines)
    for task in tasks:
        yield from _blocks_of_task(job, task, start, lines)


def _groups(job: Job, begun: Progress, tasks: Sequence[Task]) -> Iterator[list[_Read]]:
    """Read tasks; adjacent small blocks of a task that are converted in the same way are merged."""
    # The consumer of the pieces counts them in the same progress, which lags behind what is read.
    start, lines = begun.next_block, dict(begun.lines)
    for task in tasks:
        following: list[_Read] | None = None
        for group in _grouped(job, _blocks_of_task(job, task, start, lines)):
            if following is not None:
                yield following
            following = group
        if following is not None:
            following[-1] = replace(following[-1], ends_task=True)
            yield following


def _blocks_of_task(
    job: Job, task: Task, start: tuple[int, int], lines: dict[int, int]
) -> Iterator[_Read]:
    """Read the parts of a task from a block on; `lines` has the line at which the next part begins."""
    for index, part in task.parts:
        first = part.number << PART_SHIFT
        if (index, part.number) < (start[0], start[1] >> PART_SHIFT):
            continue
        skipped = max(start[1] - first, 0) if index == start[0] else 0
        line = lines.get(index, 1)
        # One block is read ahead: after the last of a part, a reader continues with the next part.
        blocks = blocks_of_part(job.sources[index], part, line)
        block = next(blocks, None)
        place, following = 0, line
        while block is not None:
            after = next(blocks, None)
            if isinstance(block, JsonBlock) and part.end is not None:
                following = block.next_line
            ends_part = after is None
            if place >= skipped:
                yield _Read(
                    index,
                    first + place,
                    block,
                    (part.number + 1) << PART_SHIFT if ends_part else first + place + 1,
                    following if ends_part else line,
                    task.number,
                )
            block, place = after, place + 1
        lines[index] = following


def _grouped(job: Job, blocks: Iterator[_Read]) -> Iterator[list[_Read]]:
    """Merge adjacent small blocks that are converted in the same way."""
    group: list[_Read] = []
    size = 0
    for read in blocks:
        own = read.block.nbytes
        if group and not (
            own + size <= GROUP_BYTES
            and len(group) < GROUP_BLOCKS
            and job.plans[group[0].source].binding.is_like(job.plans[read.source].binding)
        ):
            yield group
            group, size = [], 0
        group.append(read)
        size += own
    if group:
        yield group


def process(job: Job, source: int, number: int, block: Block) -> Piece:
    """Process one block completely."""
    return _process(job, [(source, number, block)])[0]


def _process(
    job: Job,
    group: list[Numbered],
    *,
    step: Callable[[pa.Table, Piece, Block], Any] | None = None,
    encode: Callable[[pa.Table, np.ndarray], list[Any]] | None = None,
) -> list[Piece]:
    """Process blocks completely; with a step, one block."""
    records: list[Rows] = [
        block.records(job.plans[source].read_cells) for source, _, block in group
    ]
    own, fused = records[0], None
    if len(group) == 1 and isinstance(own, Records):
        fused = _fused(job, group[0][0], own)
    begun, made = fused or _by_columns(job, group, records, in_parts=encode is not None)
    parts: list[_Part] = []
    encoded: list[Any] = []
    for part in made:
        if encode is not None:
            # The rows themselves are not kept: only the results wait for their turn.
            encoded += encode(part.table, _places(group, records, part.kept))
            part.table = part.table.slice(0, 0)
        parts.append(part)
    pieces = _account(group, records, begun, parts)
    if encode is not None:
        pieces = [replace(piece, lines=None) for piece in pieces]
        pieces[-1] = replace(pieces[-1], result=encoded)
    if step is None:
        return pieces
    (piece,) = pieces
    result = step(piece.table, piece, group[0][2])
    return [replace(piece, result=result, table=piece.table.slice(0, 0), lines=None)]


def _by_columns(
    job: Job, group: list[Numbered], records: list[Rows], *, in_parts: bool
) -> "tuple[_Converted, Iterator[_Part]]":
    """Process blocks by columns: read, convert, render."""
    source = group[0][0]
    together = records[0] if len(group) == 1 else JoinedRows(records)
    begun = _convert(job, job.plans[source].binding, _parsed(job.plans, group, records), together)
    frames = _parts(begun.frame, job) if in_parts else [begun.frame]
    begun.frame = begun.frame.clear()

    def parts() -> Iterator[_Part]:
        while frames:
            yield _render(job, source, frames.pop(0), together, begun.cuts)

    return begun, parts()


def _fused(job: Job, source: int, records: Records) -> "tuple[_Converted, list[_Part]] | None":
    """Fuse the rows of a block as it is read, and convert the remaining rows by columns."""
    fusion = job.fusions[source]
    if fusion is not None and fusion.awaits_paths and len(records.data) > _TAUGHT_BYTES:
        _teach(job, source, records)
    fused = None if fusion is None else fusion.fuse(records)
    if fused is None:
        return None
    begun, part = _left(job, source, records, fused)
    begun.blank, begun.fast_rows = records.blank, begun.fast_rows + len(fused.rows)
    begun.rejects = [replace(r, row=int(fused.left[r.row])) for r in begun.rejects]
    kept = fused.left[part.kept]
    table, rows = _merged((fused.table, fused.rows), (part.table, kept))
    return begun, [
        replace(
            part,
            table=table,
            kept=rows,
            rejects=[replace(r, row=int(fused.left[r.row])) for r in part.rejects],
            overlong={int(fused.left[row]) for row in part.overlong},
            warnings=part.warnings + fused.warnings,
            traced_rows=part.traced_rows + fused.traced,
        )
    ]


def _teach(job: Job, source: int, records: Records) -> None:
    """Process the first rows of a block by columns, so that the others can be fused.

    To process the whole first block of each worker that way took 5 to 20 MiB more at the peak.
    """
    first = records.picked(np.arange(min(_TAUGHT_ROWS, len(records))))
    parsed = reading.parse_block(first, job.plans[source])
    if parsed.frame.height:
        begun = _convert(job, job.plans[source].binding, parsed, first)
        _render(job, source, begun.frame, first, begun.cuts)


def _left(job: Job, source: int, records: Records, fused: Fused) -> "tuple[_Converted, _Part]":
    """Convert the records that a layout did not fuse; without a frame if all are bad."""
    nothing = np.empty(0, np.int64)
    begun = _Converted(pl.DataFrame(), [], Counter(), nothing, Counter(), 0, 0, 0, {})
    part = _Part(fused.table.slice(0, 0), nothing, [], set(), Counter(), Counter(), 0, 0)
    if not len(fused.left):
        return begun, part
    plan, picked = job.plans[source], records.picked(fused.left)
    parsed = reading.parse_block(picked, plan)
    if parsed.frame.height:
        begun = _convert(job, plan.binding, parsed, picked)
        return begun, _render(job, source, begun.frame, picked, begun.cuts)
    begun.rejects = reconsidered(parsed.rejects, picked, plan.binding)
    return begun, part


def _merged(
    one: tuple[pa.Table, np.ndarray], other: tuple[pa.Table, np.ndarray]
) -> tuple[pa.Table, np.ndarray]:
    """Merge the rows of two tables in the order of their records; few are from the second one."""
    (table, rows), (few, places) = one, other
    if not few.num_rows:
        return table, rows
    parts, done = [], 0
    for number, at in enumerate(np.searchsorted(rows, places).tolist()):
        parts += [table.slice(done, at - done), few.slice(number, 1)]
        done = at
    parts.append(table.slice(done))
    merged = pa.concat_tables(parts).combine_chunks()
    return merged, np.sort(np.concatenate([rows, places]))


def _places(group: Sequence[Numbered], records: Sequence[Rows], kept: np.ndarray) -> np.ndarray:
    """Return source, block and place in the block for the records of blocks that were merged."""
    ends = np.cumsum([len(rows) for rows in records])
    block = np.searchsorted(ends, kept, side="right")
    own = [task[2].places(len(rows)) for task, rows in zip(group, records, strict=True)]
    place = np.concatenate(own)[kept] if len(kept) else kept
    tasks = np.array([task[:2] for task in group], dtype=np.int64)
    return np.column_stack((tasks[block], place))


def _parsed(
    plans: Sequence[ReadPlan], group: Sequence[Numbered], records: Sequence[Rows]
) -> Parsed:
    """Parse blocks, in one call where their sources have one plan."""
    parsed, at = [], 0
    for _, run in groupby(group, lambda task: id(plans[task[0]])):
        tasks = list(run)
        own = records[at : at + len(tasks)]
        at += len(tasks)
        parsed += reading.parse_blocks(own, plans[tasks[0][0]])
    return reading.joined(parsed)


@dataclass
class _Converted:
    """The converted rows of a block with `__row`, and the rejects and warnings of the others."""

    frame: pl.DataFrame
    rejects: list[Reject]
    warnings: Counter[str]
    without_pair: np.ndarray
    """The records of rankings that make no pair (int64)."""
    unread: Counter[str]
    unpaired: int
    blank: int
    fast_rows: int
    cuts: Mapping[int, Cuts]


@dataclass
class _Part:
    """Some of the rows as they are written, the record of each in its block, and the fate of the others."""

    table: pa.Table
    kept: np.ndarray
    rejects: list[Reject]
    overlong: set[int]
    warnings: Counter[str]
    losses: Counter[str]
    traced_rows: int
    plain_rows: int


def _parts(frame: pl.DataFrame, job: Job) -> list[pl.DataFrame]:
    """Cut the pairs of a block, between source rows, into parts of about BLOCK_BYTES of text."""
    if job.pairs is None or not frame.height:
        return [frame]
    content = pl.element().struct.field("content").str.len_bytes()
    names = [name for name in DIALOG_COLUMNS if name in frame.columns]
    said = pl.sum_horizontal(pl.col(name).list.eval(content).list.sum() for name in names)
    sizes = frame.select(said.fill_null(0)).to_series().to_numpy().astype(np.int64)
    rows = frame.get_column("__row").to_numpy()
    firsts = np.flatnonzero(np.diff(rows, prepend=rows[0] - 1))
    part = (np.cumsum(sizes) - sizes)[firsts] // BLOCK_BYTES
    cuts = [*firsts[np.flatnonzero(np.diff(part, prepend=-1))].tolist(), frame.height]
    return [frame.slice(at, end - at) for at, end in pairwise(cuts)]


def _render(
    job: Job,
    source: int,
    frame: pl.DataFrame,
    records: Rows,
    cuts: Mapping[int, Cuts],
) -> _Part:
    """Render converted rows; a row that has no text is rejected."""
    table, rows = (
        _canonical(frame, job, job.plans[source].binding),
        frame.get_column("__row").to_numpy(),
    )
    # The only reference: the parsed frame is released before anything is rendered.
    del frame
    warnings: Counter[str] = Counter()
    if job.control_tokens:
        warnings["control_tokens"] = control_tokens.count_rows(table, job.control_tokens)
    cut = (
        {place: cuts[row] for place, row in enumerate(rows.tolist()) if row in cuts} if cuts else {}
    )
    done = job.text.apply(table, cut)
    fusion = job.fusions[source]
    if fusion is not None and isinstance(records, Records):
        # The rows of later blocks may take the same paths.
        fusion.take_paths()
    rejects = [records.reject(int(rows[f.row]), f.code, f.column, f.message) for f in done.failures]
    written, kept = _without(done.table, rows[done.kept], {reject.row for reject in rejects})
    return _Part(
        table=written,
        kept=kept,
        rejects=rejects,
        overlong=set(rows[done.overlong].tolist()),
        warnings=warnings + done.warnings,
        losses=done.losses,
        traced_rows=done.traced_rows,
        plain_rows=done.plain_rows,
    )


def _account(
    group: Sequence[Numbered],
    records: Sequence[Rows],
    begun: _Converted,
    parts: Sequence[_Part],
) -> list[Piece]:
    """Merge the parts of blocks; every record is counted in one term of the ledger.

    What is counted over all blocks at once is with the last of them.
    """
    ends = np.cumsum([len(rows) for rows in records])
    kept = np.concatenate([part.kept for part in parts])
    found = [*begun.rejects, *(reject for part in parts for reject in part.rejects)]
    overlong = {row for part in parts for row in part.overlong}
    too_long = overlong - set(kept.tolist()) - {reject.row for reject in found}
    counts = [
        _by_block(np.fromiter(rows, np.int64), ends)
        for rows in (kept, too_long, begun.without_pair)
    ]
    rejects: list[list[Reject]] = [[] for _ in group]
    for reject in found:
        block = int(np.searchsorted(ends, reject.row, side="right"))
        rejects[block].append(
            replace(reject, row=reject.row - int(ends[block]) + len(records[block]))
        )
    empty = parts[0].table.slice(0, 0)
    pieces = [
        _piece(task, rows, empty, rejects[i], *(int(count[i]) for count in counts))
        for i, (task, rows) in enumerate(zip(group, records, strict=True))
    ]
    if len(group) == 1:
        places = group[0][2].places(len(records[0]))
        pieces[0] = replace(pieces[0], records=places[kept], lines=records[0].lines_of(kept))
    pieces[-1] = replace(
        pieces[-1],
        table=parts[0].table if len(parts) == 1 else empty,
        unpaired=begun.unpaired,
        blank_lines=begun.blank,
        warnings=+sum((part.warnings for part in parts), begun.warnings),
        unread=begun.unread,
        losses=sum((part.losses for part in parts), Counter()),
        fast_rows=begun.fast_rows,
        traced_rows=sum(part.traced_rows for part in parts),
        plain_rows=sum(part.plain_rows for part in parts),
    )
    return pieces


def _by_block(rows: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Count records by block; `ends` are the ends of the blocks."""
    return np.bincount(np.searchsorted(ends, rows, side="right"), minlength=len(ends))


def _piece(
    task: Numbered,
    records: Rows,
    empty: pa.Table,
    found: Sequence[Reject],
    written: int,
    too_long: int,
    no_pair: int,
) -> Piece:
    """Account for the rows of one block."""
    source, number, block = task
    own = block.rejects
    places = block.places(len(records))
    rejects = _one_each([*(replace(r, row=int(places[r.row])) for r in found), *own])
    filtered = block.filtered + block.joined
    rows_read = len(records) + len(own) + filtered
    return Piece(
        source=source,
        block=number,
        bytes_read=block.bytes_read,
        table=empty,
        records=places[:0],
        lines=None,
        rejects=tuple(rejects),
        rows_read=rows_read,
        converted=rows_read - len(rejects) - no_pair - too_long - filtered,
        rows_written=written,
        no_pair=no_pair,
        unpaired=0,
        overlong_dropped=too_long,
        filtered=block.filtered,
        joined=block.joined,
        blank_lines=0,
        warnings=Counter(),
        unread=Counter(),
        losses=Counter(),
        fast_rows=0,
        traced_rows=0,
        plain_rows=0,
    )


def _convert(job: Job, binding: Binding, parsed: Parsed, records: Rows) -> _Converted:
    """Convert what was parsed of blocks, and pair the rankings."""
    converted = convert_frame(parsed.frame, binding)
    bad = [refused(records, binding, *entry) for entry in converted.bad]
    judged = reconsidered(parsed.rejects, records, binding)
    frame, warnings = converted.frame, Counter(converted.warnings)
    without_pair = np.empty(0, np.int64)
    if job.pairs is not None:
        paired = pairing.pair_up(frame, job.pairs, job.options.seed)
        frame, without_pair = paired.frame, paired.without_pair.to_numpy()
        warnings["rank_tie"] += paired.tied
        warnings["ranking_without_pair"] += paired.some_without_pair
    unpaired = 0
    if job.unpairs:
        unpaired, frame = frame.height, pairing.unpair(frame)
    return _Converted(
        frame=frame,
        rejects=[*judged, *bad],
        warnings=+warnings,
        without_pair=without_pair,
        unread=converted.unread,
        unpaired=unpaired,
        blank=parsed.blank,
        fast_rows=parsed.fast_rows,
        cuts=parsed.cuts,
    )


def _without(table: pa.Table, rows: np.ndarray, lost: set[int]) -> tuple[pa.Table, np.ndarray]:
    """Drop the rows of rejected records: if one pair of a row has no text, the whole row is dropped."""
    if not lost:
        return table, rows
    keep = ~np.isin(rows, list(lost))
    return (table, rows) if keep.all() else (table.filter(buffers.booleans(keep)), rows[keep])


def _one_each(rejects: Sequence[Reject]) -> list[Reject]:
    """Keep one reject for each row, the most specific; a row of several pairs may fail more than once."""
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
