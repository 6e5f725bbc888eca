"""Parse a block of JSON lines: fast where nothing is suspicious, line by line where something is.

A row's verdict and value depend on that row alone. The native kernel reads what is certain, and the
strict parser judges every other line. Where there is no kernel, pyarrow reads units of lines: one that
raises a suspicion is judged line by line, its plain rows are joined and parsed again by pyarrow, so
that values come from one parser; rows of another legal shape are read from the strict parser's values.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl
import pyarrow as pa
from pyarrow import json as pajson

from fmtkit.codes import Reject
from fmtkit.converting.binding import Binding
from fmtkit.converting.read_plan import ReadPlan, ReadState
from fmtkit.converting.unread_turns import carried
from fmtkit.reading import clean_lines
from fmtkit.rendering.content_parts import Cuts
from fmtkit.sources import guards, skipping
from fmtkit.sources.records import Records, Row
from fmtkit.typed_kinds import doubts, holds_strange_numbers

UNIT_BYTES = 512 * 1024
"""Small units keep one bad row in 1,000 cheap: 512 KiB cost 0.5 s on 839 MB, 8 MiB 5 s."""
PART_BYTES = 64 * 1024
"""What is judged line by line at least, where a line of it is suspicious."""


@dataclass(frozen=True)
class Parsed:
    """The sound rows of a block as the converter sees them, and the rejects.

    `frame` has one column for each bound column and `__row`, the record's number within the block.
    """

    frame: pl.DataFrame
    rejects: list[Reject]
    records: int
    blank: int
    fast_rows: int
    cuts: Mapping[int, Cuts] = field(default_factory=dict)
    """Record -> which of its contents came in parts; records without such are not in it."""


def parse_records(records: Records, state: ReadState, unit_bytes: int = UNIT_BYTES) -> Parsed:
    """Parse the records of a block by the plan of its source; how it is cut changes nothing about rows.

    Without the kernel: after a block without a suspicion the next one is tried as a whole, which
    saves a tenth of the time. Of a suspicious unit only the parts with a suspicion are judged line by
    line.
    """
    plan = state.plan
    natively = _parse_natively(records, plan)
    if natively is not None:
        return natively
    frames: list[pl.DataFrame] = []
    rejects: list[Reject] = []
    cuts: dict[int, Cuts] = {}
    fast = _FastRows(plan)
    count = len(records)
    runs = [(0, count)] if state.last_was_clean and count else units(records, unit_bytes)
    sizes = (unit_bytes, PART_BYTES)
    for begin, end in runs:
        for start, stop, table in _fast_runs(records, state, begin, end, sizes):
            if table is not None:
                fast.add(table, start)
                continue
            judged, wrong, cut = _parse_strictly(records, start, stop, state)
            frames.append(judged)
            rejects += wrong
            cuts |= cut
    state.last_was_clean = not frames
    fast_frames = fast.frames()
    every = [*fast_frames, *frames]
    if not every:
        every.append(pl.DataFrame(schema={**plan.binding.schema(), "__row": pl.Int64}))
    whole = every[0] if len(every) == 1 else pl.concat(every)
    if frames and len(every) > 1:
        whole = whole.sort("__row")
    rows = sum(frame.height for frame in fast_frames)
    return Parsed(whole.rechunk(), rejects, len(records), records.found.blank, rows, cuts)


def _parse_natively(records: Records, plan: ReadPlan) -> Parsed | None:
    """Take the clean lines as the kernel reads them, and judge the others; None where it reads none."""
    binding = plan.binding
    read = clean_lines.read(records.data, binding.spec) if plan.natively else None
    if read is None:
        return None
    verdicts = read.verdicts[read.verdicts != clean_lines.BLANK]
    clean = np.flatnonzero(verdicts == clean_lines.CLEAN)
    unsure = np.flatnonzero(verdicts == clean_lines.UNSURE).tolist()
    frame = _as_converters_see(read.frame, clean, binding)
    judged = _judge(records, unsure, binding)
    if judged.sound:
        frame = pl.concat([frame, judged.frame(binding)]).sort("__row")
    return Parsed(
        frame, judged.rejects, len(records), records.found.blank, len(clean), judged.cuts(binding)
    )


def _as_converters_see(frame: pl.DataFrame, rows: np.ndarray, binding: Binding) -> pl.DataFrame:
    """Number the rows of a frame that the kernel read, and tell what its watched columns carry."""
    columns = {column.name: frame.get_column(column.name) for column in binding.every}
    for watched in binding.watched:
        texts = columns[watched.name]
        if texts.null_count() < len(texts):
            columns[watched.name] = carried(texts)
    return pl.DataFrame([*columns.values(), pl.Series("__row", rows, dtype=pl.Int64)])


@dataclass(frozen=True)
class _Judged:
    """Records that the strict parser took one by one, and the rejects of the others."""

    sound: list[tuple[int, Row]] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)

    def frame(self, binding: Binding) -> pl.DataFrame:
        """Return what converters see of the sound ones."""
        return binding.frame([row for _, row in self.sound], [record for record, _ in self.sound])

    def cuts(self, binding: Binding) -> dict[int, Cuts]:
        """Return the parts of contents that came in parts."""
        return {record: cut for record, row in self.sound if (cut := binding.cuts(row))}


def _judge(records: Records, numbers: Iterable[int], binding: Binding) -> _Judged:
    """Judge records one by one."""
    judged = _Judged()
    for record in numbers:
        value, fault = records.value(record, written=True)
        found = [fault] if fault else binding.judge(value)
        if found:
            first = found[0]
            judged.rejects.append(records.reject(record, first.code, first.column, first.message))
        else:
            judged.sound.append((record, value))
    return judged


class _FastRows:
    """What the fast parser read of a block's units: turned into one frame, since that costs by the call."""

    def __init__(self, plan: ReadPlan) -> None:
        self.plan = plan
        self.runs: list[tuple[list[pa.Table], list[np.ndarray]]] = []

    def add(self, table: pa.Table, start: int) -> None:
        """Add the table of a unit whose records are counted from `start`."""
        # The schema may have grown since the unit before: a column that was first seen.
        if not self.runs or self.runs[-1][0][0].schema != table.schema:
            self.runs.append(([], []))
        tables, numbers = self.runs[-1]
        tables.append(table)
        numbers.append(np.arange(start, start + table.num_rows))

    def frames(self) -> list[pl.DataFrame]:
        """Return what converters see of the rows."""
        return [
            self.plan.select(
                _to_polars(pa.concat_tables(tables)), pl.Series(np.concatenate(numbers))
            )
            for tables, numbers in self.runs
        ]


def units(
    records: Records, unit_bytes: int = UNIT_BYTES, start: int = 0, stop: int | None = None
) -> list[tuple[int, int]]:
    """Cut records into runs of about so many bytes."""
    count = len(records) if stop is None else stop
    units = []
    while start < count:
        limit = records.found.starts[start] + unit_bytes
        end = int(np.searchsorted(records.found.ends, limit, side="right"))
        end = min(max(end, start + 1), count)
        units.append((start, end))
        start = end
    return units


def _fast_runs(
    records: Records, state: ReadState, start: int, stop: int, sizes: Sequence[int]
) -> Iterator[tuple[int, int, pa.Table | None]]:
    """Yield records in runs as long as the fast parser takes them; None for those that it does not."""
    table = _parse_fast(records, start, stop, state)
    cut = [(start, stop)]
    while table is None and state.plan.mode != "strict" and sizes and len(cut) == 1:
        cut, sizes = units(records, sizes[0], start, stop), sizes[1:]
    if len(cut) == 1:
        yield start, stop, table
        return
    for begin, end in cut:
        yield from _fast_runs(records, state, begin, end, sizes)


def _parse_fast(records: Records, start: int, stop: int, state: ReadState) -> pa.Table | None:
    """Parse a unit with pyarrow; None if anything about it is suspicious."""
    plan, schema, mixed = state.plan, state.schema(), state.mixed
    if schema is None:
        return None
    unit = plain_unit(records, start, stop)
    if unit is None:
        return None
    buffer, lines = unit
    if mixed:
        rest = skipping.without(buffer.to_pybytes(), lines.starts, lines.ends, mixed)
        if rest is None:
            return None
        buffer = pa.py_buffer(rest)
    table = read_json(buffer, schema, "error") if state.is_closed else None
    # An unexpected field or shape ends the parse at once; a field that is skipped may nest deep.
    if table is None and plan.mode == "ignore" and is_shallow(buffer, lines):
        table = read_json(buffer, schema, "ignore")
        state.is_closed = state.is_closed and table is None
    if table is None or table.num_rows != stop - start or is_doubtful(table, plan.binding):
        return None
    return table


def plain_unit(records: Records, start: int, stop: int) -> tuple[pa.Buffer, guards.Lines] | None:
    """Return the bytes of some records if the fast parser may see them, where none nests too deep."""
    found = records.found
    first, end = int(found.starts[start]), int(found.ends[stop - 1])
    lines = guards.Lines(
        found.starts[start:stop] - first, found.ends[start:stop] - first, found.numbers, 0
    )
    if not guards.look_like_objects(records.array[first:end], lines):
        return None
    buffer = records.buffer.slice(first, end - first)
    return (buffer, lines) if records.is_utf8 or guards.is_utf8(buffer) else None


def is_shallow(buffer: pa.Buffer, lines: guards.Lines) -> bool:
    """Tell whether no record of a unit nests deeper than the limit."""
    return guards.is_shallow(np.frombuffer(buffer, np.uint8), lines)


def read_json(buffer: pa.Buffer, schema: pa.Schema | None, mode: str) -> pa.Table | None:
    """Read JSON lines, with an explicit schema if there is one; None if pyarrow refuses them."""
    try:
        return pajson.read_json(
            pa.BufferReader(buffer),
            read_options=pajson.ReadOptions(use_threads=False, block_size=buffer.size + 1),
            parse_options=pajson.ParseOptions(
                explicit_schema=schema, newlines_in_values=False, unexpected_field_behavior=mode
            ),
        )
    except pa.ArrowInvalid:
        return None


def _to_polars(table: pa.Table) -> pl.DataFrame:
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame


def is_doubtful(table: pa.Table, binding: Binding) -> bool:
    """Tell whether a value that was read is one that the strict parser would refuse (NaN, a flag of 2)."""
    for column in binding.every:
        if column.shape is None:
            continue
        for chunk in table.column(column.path[0]).chunks:
            values = chunk
            for key in column.path[1:]:
                values = values.field(key)
            if doubts(column.kind, values, column.shape):
                return True
            if column.kind.nested and holds_strange_numbers(values):
                return True
    return False


def _parse_strictly(
    records: Records, start: int, stop: int, state: ReadState
) -> tuple[pl.DataFrame, list[Reject], dict[int, Cuts]]:
    """Judge each record of a unit; parse the sound ones."""
    plan, binding = state.plan, state.plan.binding
    judged = _judge(records, range(start, stop), binding)
    for _, value in judged.sound:
        state.learn(value)
    plain = [
        record
        for record, value in judged.sound
        if plan.mode != "strict" and binding.is_plain(value)
    ]
    quick = set(plain)
    others = _Judged([entry for entry in judged.sound if entry[0] not in quick])
    frames = [_parse_plain(records, plain, state)] if plain else []
    if others.sound or not frames:
        frames.append(others.frame(binding))
    frame = frames[0] if len(frames) == 1 else pl.concat(frames).sort("__row")
    return frame, judged.rejects, others.cuts(binding)


def _parse_plain(records: Records, plain: Sequence[int], state: ReadState) -> pl.DataFrame:
    """Parse sound rows of the bound shapes with the fast parser, once more and without their company."""
    buffer = pa.py_buffer(b"\n".join(records.raw(record) for record in plain) + b"\n")
    plan, schema = state.plan, _used_schema(state)
    table = read_json(buffer, schema, "ignore")
    if table is not None and table.num_rows == len(plain):
        return plan.select(_to_polars(table), pl.Series(plain, dtype=pl.Int64))
    rows = [records.value(record, written=True)[0] for record in plain]
    return plan.binding.frame(rows, plain)


def _used_schema(state: ReadState) -> pa.Schema:
    bare = ReadState(ReadPlan(state.plan.binding, "ignore", dict(state.extra)))
    schema = bare.schema()
    assert schema is not None
    return schema
