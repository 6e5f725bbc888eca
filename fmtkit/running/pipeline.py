"""The pipeline: read, convert, pair, render, cut, split; in input order, on threads, in bounded memory.

`stream` yields what each block of a job's sources became. Nothing here writes:
`fmtkit.running.conversions` hands the pieces to a sink.
"""

from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from fmtkit.columns.image_values import RowImages
from fmtkit.core import buffers
from fmtkit.core.codes import PRECEDENCE, Reject
from fmtkit.core.data_classes import dataclass
from fmtkit.core.image_columns import IMAGES
from fmtkit.core.tables import carried
from fmtkit.reading import block_parsing
from fmtkit.reading.binding import Binding
from fmtkit.reading.block_parsing import Parsed, ReadPlan
from fmtkit.reading.column_lines import LinedRows, as_lines
from fmtkit.rendering.content_parts import Cuts
from fmtkit.running.ledger import RowCounts
from fmtkit.running.preparation import Job
from fmtkit.sources.blocks import (
    BLOCK_BYTES,
    ArrowRows,
    Block,
    JoinedRows,
    JsonBlock,
    Records,
    Rows,
)
from fmtkit.sources.parts import blocks_of_part
from fmtkit.stages import control_tokens, pairing
from fmtkit.stages.conversion import convert_frame, reconsidered, refused
from fmtkit.stages.fusing import Fused
from fmtkit.work.engine_choice import engine_of
from fmtkit.work.engines import Cluster, Engine, TaskLostError
from fmtkit.work.tasks import PART_SHIFT, Task, tasks_of
from fmtkit.writing.task_output import Counts

Numbered = tuple[int, int, Block]
"""Index of a source, number of a block in it, and the block."""
GROUP_BYTES = BLOCK_BYTES // 8
"""Blocks of small files are merged up to this size: each costs about 8 ms by itself."""
GROUP_BLOCKS = 256
ROW_BYTES = 4 * BLOCK_BYTES
"""A source row with more pairs than this is processed in several parts."""
HELD_BYTES = 16 * BLOCK_BYTES
"""A group of blocks with more pairs than this is not held at once."""
_NO_BLOCK = JsonBlock(b"", 0)
_TAUGHT_ROWS = 100
"""In blocks longer than _TAUGHT_BYTES, the number of rows that suffice to trace a template."""
_TAUGHT_BYTES = 1 << 20


@dataclass
class Progress:
    """How far a run has come: the state that a resumed run needs."""

    next_block: tuple[int, int] = (0, 0)
    rows: dict[int, int] = field(default_factory=dict)
    """Source -> rows read from it."""
    bytes: dict[int, int] = field(default_factory=dict)
    """Source -> bytes read from it."""
    lines: dict[int, int] = field(default_factory=dict)
    """Source -> the line at which the next part begins."""
    _all_bytes: int = 0

    def __post_init__(self) -> None:
        self._all_bytes = sum(self.bytes.values())

    def add(self, piece: "Piece") -> None:
        """Count a piece, unless its counts come later."""
        if not piece.has_counts:
            return
        self.next_block = (piece.source, piece.next_block)
        self.lines[piece.source] = piece.next_line
        self.rows[piece.source] = self.rows.get(piece.source, 0) + piece.counts.rows_read
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
    """What a block became: rows, rejects, and the counts for the ledger.

    `records` is each row's record, within its source once `stream` yields it (int64).
    """

    source: int
    block: int
    table: pa.Table
    """Its carried columns have the prefix `tables.CARRIED`; `tables.final_rows` takes it off."""
    records: np.ndarray
    lines: np.ndarray | None
    """The physical line of each row's record (int64); None where the source has none, or with `encode`."""
    rejects: tuple[Reject, ...]
    counts: RowCounts
    """Counts over merged blocks are with the last block."""
    bytes_read: int
    result: Any = ()
    """The result of the caller's step for the table, computed on the worker; for `encode`, a list."""
    task: int = 0
    ends_task: bool = False
    next_block: int = 0
    """The block of its source from which a reader continues after this one."""
    next_line: int = 1
    """The line at which the part with that block begins."""
    has_counts: bool = True
    """False for rows of a block whose pairs are too many to hold: the counts come with its last piece."""
    resumable: bool = True
    """Whether all rows of the blocks up to this piece have come, and a run may be continued after it."""

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
    the piece of the last one holds the results of all. Pieces without counts come before those of blocks
    whose pairs are too many to be held at once. With `encode` or `tasks` blocks are read task by task: those
    of the given `tasks`, or of all.
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
    work: Callable[[list[Numbered]], Iterable[Piece]]
    work = partial(_process, replace(job, sources=()), step=step, encode=encode)
    if isinstance(engine, Cluster):
        work = partial(_listed, work)
    for pieces in _mapped(job, engine, work, groups):
        places_read = handed.popleft()
        for piece in pieces:
            place = places_read.pop(0) if piece.has_counts else places_read[0]
            first = places.get(piece.source, 0)
            places[piece.source] = first + piece.counts.rows_read
            yield replace(
                piece,
                records=piece.records + first,
                rejects=tuple(replace(reject, row=reject.row + first) for reject in piece.rejects),
                task=place.task,
                ends_task=place.ends_task,
                next_block=place.next_block,
                next_line=place.next_line,
            )


def _listed(
    work: Callable[[list[Numbered]], Iterable[Piece]], group: list[Numbered]
) -> list[Piece]:
    """Make all pieces at once, to be sent to another process."""
    return list(work(group))


def _mapped(
    job: Job,
    engine: Engine,
    work: Callable[[list[Numbered]], Iterable[Piece]],
    groups: Iterator[list[Numbered]],
) -> Iterator[Iterable[Piece]]:
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
            if part.end is not None and (after_block := block.next_line) is not None:
                following = after_block
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
            # The paths of images begin at their source.
            and (job.images is None or group[0].source == read.source)
            and job.plans[group[0].source].binding.is_like(job.plans[read.source].binding)
        ):
            yield group
            group, size = [], 0
        group.append(read)
        size += own
    if group:
        yield group


def process(job: Job, source: int, number: int, block: Block) -> Iterator[Piece]:
    """Process one block completely; the last piece has the counts."""
    yield from _process(job, [(source, number, block)])


def _process(
    job: Job,
    group: list[Numbered],
    *,
    step: Callable[[pa.Table, Piece, Block], Any] | None = None,
    encode: Callable[[pa.Table, np.ndarray], list[Any]] | None = None,
) -> Iterable[Piece]:
    """Process blocks completely; with a step, one block."""
    records: list[Rows] = [
        block.records(job.plans[source].read_cells) for source, _, block in group
    ]
    if any(isinstance(rows, ArrowRows) for rows in records):
        records = [
            as_lines(rows, job.plans[source].binding) if isinstance(rows, ArrowRows) else rows
            for (source, _, _), rows in zip(group, records, strict=True)
        ]
    own, fused = records[0], None
    if len(group) == 1 and isinstance(own, Records):
        fused = _fused(job, group[0][0], own)
    use = _Use(group, records, step, encode)
    if fused is not None:
        return use.of_parts(*fused)
    source = group[0][0]
    together = own if len(group) == 1 else JoinedRows(records)
    begun = _convert(job, job.plans[source].binding, _parsed(job.plans, group, records), together)
    pairs = begun.pairs
    if pairs is None:
        frames_of, begun.frame = _image_parts(job, source, begun), begun.frame.clear()
        are_many = len(frames_of) > 1
        frames = (frames_of.pop(0) for _ in range(len(frames_of)))
        parts = _rendered(job, source, frames, together, begun)
        return use.one_by_one(begun, parts) if are_many else use.of_parts(begun, parts)
    cuts = pairs.parts(BLOCK_BYTES, ROW_BYTES)
    is_large = pairs.nbytes(cuts[-1].stop) > HELD_BYTES
    if encode is None and not is_large:
        cuts = [pairing.Part(0, cuts[-1].stop)]
    lost = _lost(job, source, begun, cuts, together) if is_large else set()
    frames = (_rows_of(job, pairs, cut) for cut in cuts if cut.row not in lost)
    parts = _rendered(job, source, frames, together, begun)
    return use.one_by_one(begun, parts) if is_large else use.of_parts(begun, parts)


def _rendered(
    job: Job,
    source: int,
    frames: Iterator[pl.DataFrame],
    records: Rows,
    begun: "_Converted",
) -> "Iterator[_Part]":
    """Render frames one after the other; none is held here while it is rendered."""
    for frame in frames:
        held = [frame]
        del frame
        yield _render(job, source, held.pop(), records, begun)


def _image_parts(job: Job, source: int, begun: "_Converted") -> list[pl.DataFrame]:
    """Return the rows in parts whose images can be held at once: files are larger than their paths."""
    frame = begun.frame
    if job.images is None or not begun.images:
        return [frame]
    rows = frame.get_column("__row").to_numpy()
    ends = job.images.parts(source, rows, begun.images, HELD_BYTES)
    return [frame[first:last] for first, last in pairwise((0, *ends))]


def _rows_of(job: Job, pairs: pairing.Paired, cut: pairing.Part) -> pl.DataFrame:
    frame = pairs.rows(cut.first, cut.stop)
    return pairing.unpair(frame) if job.unpairs else frame


def _lost(
    job: Job, source: int, begun: "_Converted", cuts: Sequence[pairing.Part], records: Rows
) -> set[int | None]:
    """Reject the source rows of several parts that have a pair without text, before any part is written."""
    assert begun.pairs is not None
    found: dict[int, Reject] = {}
    for cut in cuts:
        if cut.row is not None:
            part = _render(job, source, _rows_of(job, begun.pairs, cut), records, begun)
            found |= {r.row: r for r in _one_each([*found.values(), *part.rejects])}
    begun.rejects += found.values()
    return set(found)


@dataclass(frozen=True)
class _Use:
    """What is done with the rows of a group of blocks: a step for a table, or encoding."""

    group: list[Numbered]
    records: list[Rows]
    step: Callable[[pa.Table, Piece, Block], Any] | None
    encode: Callable[[pa.Table, np.ndarray], list[Any]] | None

    def of_parts(self, begun: "_Converted", made: "Iterable[_Part]") -> list[Piece]:
        """Return a piece for each block."""
        parts, encoded = [], list[Any]()
        for part in made:
            if self.encode is not None:
                # The rows themselves are not kept: only the results wait for their turn.
                encoded += self.encode(part.table, self._places(part))
                part.table = part.table.slice(0, 0)
            parts.append(part)
        pieces = _account(self.group, self.records, begun, parts)
        if self.encode is not None:
            pieces = [replace(piece, lines=None) for piece in pieces]
            pieces[-1] = replace(pieces[-1], result=encoded)
        return pieces if self.step is None else [self._stepped(*pieces)]

    def one_by_one(self, begun: "_Converted", made: "Iterator[_Part]") -> Iterator[Piece]:
        """Yield a piece without counts for each part as it is asked for, then the pieces of the blocks."""
        counted = []
        for part in made:
            yield self._of(part)
            counted.append(part.counted())
        *others, last = self.of_parts(begun, counted)
        yield from (replace(piece, resumable=False) for piece in others)
        yield last

    def _of(self, part: "_Part") -> Piece:
        task = self.group[0]
        nothing = _piece(task, self.records[0], part.table, [], 0, 0, 0)
        counts = RowCounts()
        piece = replace(nothing, rejects=(), counts=counts, has_counts=False, resumable=False)
        if self.encode is not None:
            return replace(
                piece,
                table=part.table.slice(0, 0),
                result=self.encode(part.table, self._places(part)),
            )
        places = task[2].places(len(self.records[0]))
        lines = self.records[0].lines_of(part.kept)
        piece = replace(piece, records=places[part.kept], lines=lines)
        return piece if self.step is None else self._stepped(piece)

    def _stepped(self, piece: Piece) -> Piece:
        assert self.step is not None
        result = self.step(piece.table, piece, self.group[0][2])
        return replace(piece, result=result, table=piece.table.slice(0, 0), lines=None)

    def _places(self, part: "_Part") -> np.ndarray:
        return _places(self.group, self.records, part.kept)


def _fused(job: Job, source: int, records: Records) -> "tuple[_Converted, list[_Part]] | None":
    """Fuse the rows of a block as it is read, and convert the remaining rows by columns."""
    fusion = job.fusions[source]
    if fusion is not None and fusion.awaits_paths and len(records.data) > _TAUGHT_BYTES:
        _teach(job, source, records)
    fused = None if fusion is None else fusion.fuse(records)
    if fused is None:
        return None
    begun, part = _left(job, source, records, fused)
    begun.counts.merge(RowCounts(tiers=Counter(fast_rows=len(fused.rows))))
    begun.counts.blank_lines = records.blank
    begun.rejects = [replace(r, row=int(fused.left[r.row])) for r in begun.rejects]
    kept = fused.left[part.kept]
    table, rows = _merged((fused.table, fused.rows), (part.table, kept))
    warnings = Counter(fused.warnings)
    if isinstance(records, LinedRows):
        warnings["filled_keys"] += records.filled(fused.rows)
    own = RowCounts(warnings=+warnings, tiers=Counter(traced_rows=fused.traced))
    part.counts.merge(own)
    return begun, [
        replace(
            part,
            table=table,
            kept=rows,
            rejects=[replace(r, row=int(fused.left[r.row])) for r in part.rejects],
            overlong={int(fused.left[row]) for row in part.overlong},
        )
    ]


def _teach(job: Job, source: int, records: Records) -> None:
    """Process the first rows of a block by columns, so that the others can be fused.

    Processing the whole first block of each worker by columns took 5 to 20 MiB more at the peak.
    """
    first = records.picked(np.arange(min(_TAUGHT_ROWS, len(records))))
    parsed = block_parsing.parse_block(first, job.plans[source])
    if parsed.frame.height:
        begun = _convert(job, job.plans[source].binding, parsed, first)
        _render(job, source, begun.frame, first, begun)


def _left(job: Job, source: int, records: Records, fused: Fused) -> "tuple[_Converted, _Part]":
    """Convert the records that a layout did not fuse; without a frame if all are bad."""
    nothing = np.empty(0, np.int64)
    begun = _Converted(pl.DataFrame(), None, [], nothing, {}, {}, RowCounts())
    part = _Part(fused.table.slice(0, 0), nothing, [], set(), RowCounts())
    if not len(fused.left):
        return begun, part
    plan, picked = job.plans[source], records.picked(fused.left)
    parsed = block_parsing.parse_block(picked, plan)
    if parsed.frame.height:
        begun = _convert(job, plan.binding, parsed, picked)
        return begun, _render(job, source, begun.frame, picked, begun)
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
        parsed += block_parsing.parse_blocks(own, plans[tasks[0][0]])
    return block_parsing.joined(parsed)


@dataclass
class _Converted:
    """The converted rows of a block with `__row`, the rejects of the others, and counts of all."""

    frame: pl.DataFrame
    pairs: pairing.Paired | None
    """The pairs of rankings, which are not in the frame."""
    rejects: list[Reject]
    without_pair: np.ndarray
    """The records of rankings that make no pair (int64)."""
    cuts: Mapping[int, Cuts]
    images: Mapping[int, RowImages]
    counts: RowCounts


@dataclass
class _Part:
    """Some of the rows as they are written, the record of each in its block, and the fate of the others."""

    table: pa.Table
    kept: np.ndarray
    rejects: list[Reject]
    overlong: set[int]
    counts: RowCounts
    rows: np.ndarray | None = None
    """How many rows each record has, where `kept` has it once."""

    def counted(self) -> "_Part":
        """Return the part without its rows."""
        kept, rows = np.unique(self.kept, return_counts=True)
        return replace(self, table=self.table.slice(0, 0), kept=kept, rows=rows)

    def rows_by_block(self, ends: np.ndarray) -> np.ndarray:
        """Count rows by block; `ends` are the ends of the blocks."""
        return _by_block(self.kept, ends, self.rows)


def _render(
    job: Job,
    source: int,
    frame: pl.DataFrame,
    records: Rows,
    begun: _Converted,
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
    cuts = begun.cuts
    rejects: list[Reject] = []
    if job.images is not None:
        shown = job.images.apply(source, table, rows, begun.images)
        rejects += [
            records.reject(int(rows[f.row]), f.code, f.column, f.message) for f in shown.failures
        ]
        table, rows, cuts = shown.table, rows[shown.kept], shown.cuts(rows, cuts)
    cut = (
        {place: cuts[row] for place, row in enumerate(rows.tolist()) if row in cuts} if cuts else {}
    )
    done = job.text.apply(table, cut)
    fusion = job.fusions[source]
    if fusion is not None and isinstance(records, Records):
        # The rows of later blocks may take the same paths.
        fusion.take_paths()
    rejects += [
        records.reject(int(rows[f.row]), f.code, f.column, f.message) for f in done.failures
    ]
    written, kept = _without(done.table, rows[done.kept], {reject.row for reject in rejects})
    return _Part(
        table=written,
        kept=kept,
        rejects=rejects,
        overlong=set(rows[done.overlong].tolist()),
        counts=RowCounts(
            warnings=warnings + done.warnings,
            losses=done.losses,
            tiers=Counter(traced_rows=done.traced_rows, plain_rows=done.plain_rows),
        ),
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
        np.sum([part.rows_by_block(ends) for part in parts], axis=0, initial=0),
        *(_by_block(np.fromiter(rows, np.int64), ends) for rows in (too_long, begun.without_pair)),
    ]
    rejects: list[list[Reject]] = [[] for _ in group]
    for reject in found:
        block = int(np.searchsorted(ends, reject.row, side="right"))
        rejects[block].append(
            replace(reject, row=reject.row - int(ends[block]) + len(records[block]))
        )
    empty = parts[0].table.slice(0, 0)
    is_whole = len(parts) == 1 and parts[0].rows is None
    pieces = [
        _piece(task, rows, empty, rejects[i], *(int(count[i]) for count in counts))
        for i, (task, rows) in enumerate(zip(group, records, strict=True))
    ]
    if len(group) == 1:
        places = group[0][2].places(len(records[0]))
        rows = kept if is_whole else kept[:0]
        pieces[0] = replace(pieces[0], records=places[rows], lines=records[0].lines_of(rows))
    for counts_of_all in (begun.counts, *(part.counts for part in parts)):
        pieces[-1].counts.merge(counts_of_all)
    pieces[-1] = replace(pieces[-1], table=parts[0].table if is_whole else empty)
    return pieces


def _by_block(records: np.ndarray, ends: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
    """Count records by block, or the rows of each; `ends` are the ends of the blocks."""
    blocks = np.searchsorted(ends, records, side="right")
    return np.bincount(blocks, weights=rows, minlength=len(ends)).astype(np.int64)


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
        counts=RowCounts(
            rows_read=rows_read,
            converted=rows_read - len(rejects) - no_pair - too_long - filtered,
            rows_written=written,
            no_pair=no_pair,
            overlong_dropped=too_long,
            filtered=block.filtered,
            joined=block.joined,
        ),
    )


def _convert(job: Job, binding: Binding, parsed: Parsed, records: Rows) -> _Converted:
    """Convert what was parsed of blocks, and pair the rankings."""
    converted = convert_frame(parsed.frame, binding)
    bad = [refused(records, binding, *entry) for entry in converted.bad]
    judged = reconsidered(parsed.rejects, records, binding)
    frame, warnings = converted.frame, Counter(converted.warnings)
    without_pair = np.empty(0, np.int64)
    warnings["filled_keys"] += parsed.filled
    pairs = None
    if job.pairs is not None:
        pairs = pairing.pair_up(frame, job.pairs, job.options.seed)
        frame, without_pair = frame.clear(), pairs.without_pair.to_numpy()
        warnings["rank_tie"] += pairs.tied
        warnings["ranking_without_pair"] += pairs.some_without_pair
    unpaired = 0
    if job.unpairs:
        unpaired = frame.height if pairs is None else pairs.count
        frame = pairing.unpair(frame) if pairs is None else frame
    return _Converted(
        frame=frame,
        pairs=pairs,
        rejects=[*judged, *bad],
        without_pair=without_pair,
        cuts=parsed.cuts,
        images=parsed.images,
        counts=RowCounts(
            unpaired=unpaired,
            blank_lines=parsed.blank,
            warnings=+warnings,
            unread=converted.unread,
            tiers=Counter(fast_rows=parsed.fast_rows),
        ),
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
    held = {carried(kept.label): kept.name for kept in binding.kept}
    schema = job.canonical
    if job.images is not None:
        # They come with their stage.
        schema = schema.remove(schema.get_field_index(IMAGES))
    out = frame.select(held.get(name, name) for name in schema.names)
    table = out.to_arrow(compat_level=pl.CompatLevel.newest()).rename_columns(schema.names)
    return table.cast(schema).combine_chunks()
