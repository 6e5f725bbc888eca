"""Reading: by the plan of its source, a block becomes the frame that its converter sees, and rejects.

JSON lines that the native kernel is certain of are read by it, every other line by the strict parser. A row's
verdict and value depend on that row alone: both readers give the same result, and without the kernel the
strict parser reads every line.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property, partial, singledispatch

import numpy as np
import polars as pl
import pyarrow as pa

from fmtkit.columns.flat_messages import flatten, keys_of, lists_of
from fmtkit.columns.image_values import RowImages
from fmtkit.columns.kinds import ConversationKind, TextKind, ToolsKind
from fmtkit.columns.strict_kinds import json_value
from fmtkit.columns.typed_kinds import (
    arrow_type,
    doubts,
    dtype_of,
    holds_strange_numbers,
    may_carry,
    read,
)
from fmtkit.core import buffers
from fmtkit.core.codes import Reject
from fmtkit.core.data_classes import dataclass
from fmtkit.core.pickling import PickledByFields
from fmtkit.reading import clean_lines, json_cells, row_images
from fmtkit.reading.binding import Binding
from fmtkit.reading.bound_column import MEDIA, BoundColumn, Row
from fmtkit.reading.column_lines import LinedRows, is_sound, is_text
from fmtkit.reading.lost_turns import CarriedKind, carried
from fmtkit.rendering.content_parts import Cuts
from fmtkit.sources.blocks import ArrowRows, CellRows, ReadCells, Records, Rows, holds_media
from fmtkit.sources.marks import is_unicode

MOST_NAMES = 256
"""The most columns of a source that are listed: more than that are data."""


@dataclass(frozen=True)
class ReadPlan(PickledByFields):
    """How the rows of a source become what a converter sees."""

    binding: Binding
    seen: tuple[str, ...] = ()
    """The columns of the first block."""

    @classmethod
    def of(cls, binding: Binding, sample: Iterable[Row]) -> "ReadPlan":
        """Plan the reading of a source from the rows of its first block."""
        seen: dict[str, None] = {}
        for row in sample:
            if len(seen) <= MOST_NAMES:
                seen |= dict.fromkeys(filter(is_unicode, row))
        return cls(binding, tuple(seen))

    @cached_property
    def read_cells(self) -> ReadCells:
        """Return what reads the cells of a CSV row, as the kinds of the binding say."""
        return partial(cells, binding=self.binding)

    @property
    def ignored(self) -> tuple[str, ...]:
        """Return the columns of the first block that the type does not use."""
        if self.binding.converter.takes_rows:
            return ()
        used = {column.top for column in (*self.binding.columns, *self.binding.kept)}
        used.update(self.binding.images or ())
        return tuple(name for name in self.seen if name not in used)

    def select(self, batch: pa.Table) -> pl.DataFrame:
        """Turn the columns of a typed source into the frame that the converter sees."""
        tops = dict.fromkeys(column.path[0] for column in self.binding.every)
        there = {name: str(i) for i, name in enumerate(set(batch.schema.names) & tops.keys())}
        # By number: polars renames a column without a name, and `*` or `^a$` would be a pattern. Without the
        # mark of JSON, which would make its text a type of its own.
        # Column by column: of a table polars waits for threads of its own, with the interpreter's lock.
        rows = pl.int_range(0, batch.num_rows, eager=True).alias("__row")
        read_columns = (pl.Series(alias, batch.column(name)) for name, alias in there.items())
        frame = pl.DataFrame([rows, *read_columns])
        expressions = []
        for column in self.binding.every:
            top, dtype = there.get(column.path[0]), dtype_of(column.kind)
            if top is None or column.shape is None:
                empty: list[str] | None = [] if column in self.binding.watched else None
                expressions.append(pl.lit(empty, dtype=dtype).alias(column.name))
            else:
                seen = read(column.kind, pl.col(top), column.shape)
                expressions.append(seen.alias(column.name))
        return frame.select(*expressions, "__row")


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
    images: Mapping[int, RowImages] = field(default_factory=dict)
    """Record -> its images; records without such are not in it."""
    filled: int = 0
    """Rows whose tools or calls had keys that only other rows of the table have."""


@singledispatch
def parse_block(records: Rows, plan: ReadPlan) -> Parsed:
    """Parse the records of a block by the plan of its source."""
    return parse_rows(records, plan.binding)


@parse_block.register
def _(records: Records, plan: ReadPlan) -> Parsed:
    return parse_records(records, plan.binding)


@parse_block.register
def _(records: ArrowRows, plan: ReadPlan) -> Parsed:
    found = _parse_columns(records.batch, plan) or _parse_cells(records, plan.binding)
    return found if found is not None else parse_rows(records, plan.binding)


@parse_block.register
def _(records: LinedRows, plan: ReadPlan) -> Parsed:
    every = np.arange(len(records))
    read = _read_lines(every, records.data, plan.binding)
    if read is None:
        return parse_block(records.rows, plan)
    parsed = _with_others(records.rows, *read, plan.binding)
    filled = records.filled(np.setdiff1d(every, read[1]))
    return replace(parsed, filled=parsed.filled + filled)


@parse_block.register
def _(records: CellRows, plan: ReadPlan) -> Parsed:
    found = _parse_csv(records, plan.binding)
    return found if found is not None else parse_rows(records, plan.binding)


def cells(row: Row, binding: Binding) -> Row:
    """Read the cells of a CSV row: text where text belongs, JSON where anything else does."""
    out = dict(row)
    for column in binding.every:
        cell = out.get(column.path[0]) if column.path else None
        if not isinstance(cell, str) or isinstance(column.kind, TextKind | CarriedKind):
            continue
        is_json = not isinstance(column.kind, ConversationKind) or cell.lstrip()[:1] in ("[", "{")
        out[column.path[0]] = json_value(cell) if is_json else cell
    return out


def parse_rows(records: Rows, binding: Binding, only: Collection[int] | None = None) -> Parsed:
    """Judge rows one by one, all or some of them, and make the frame of the sound ones."""
    sound: list[int] = []
    rows: list[Row] = []
    rejects: list[Reject] = []
    for record, (given, fault) in enumerate(records.values(written=True)):
        if only is not None and record not in only:
            continue
        value = given if fault is not None else binding.unwrapped(given)
        found = [fault] if fault is not None else binding.judge(value)
        if found:
            rejects.append(records.reject(record, found[0].code, found[0].column, found[0].message))
        else:
            sound.append(record)
            rows.append(value)
    filled = 0
    if isinstance(records, ArrowRows):
        bare = [binding.without_filled_keys(row) for row in rows]
        filled = sum(one is not row for one, row in zip(bare, rows, strict=True))
        rows = bare
    frame = binding.frame(rows, sound)
    cuts = {n: cut for n, row in zip(sound, rows, strict=True) if (cut := binding.cuts(row))}
    images = _images(zip(sound, rows, strict=True), binding)
    return Parsed(frame, rejects, len(records), records.blank, 0, cuts, images, filled)


def _images(rows: Iterable[tuple[int, Row]], binding: Binding) -> dict[int, RowImages]:
    """Return the images of those sound rows that have some."""
    if binding.images is None:
        return {}
    return {n: images for n, row in rows if (images := binding.images_of(row)) is not None}


def parse_blocks(records: Sequence[Rows], plan: ReadPlan) -> list[Parsed]:
    """Parse blocks that have one plan; JSON of several at once, since that costs by the call."""
    if len(records) == 1:
        return [parse_block(records[0], plan)]
    lines = [rows for rows in records if isinstance(rows, Records)]
    numbers = [rows.lines_of(np.arange(len(rows))) for rows in lines]
    if len(lines) < len(records) or any(n is None for n in numbers):
        return [parse_block(rows, plan) for rows in records]
    data = b"".join(
        rows.data if rows.data.endswith(b"\n") else rows.data + b"\n" for rows in lines if rows.data
    )
    lines_of = np.concatenate([n for n in numbers if n is not None])
    parsed = parse_records(Records(data, 1, lines_of), plan.binding)
    return [replace(parsed, blank=sum(rows.blank for rows in lines))]


def joined(parsed: Sequence[Parsed]) -> Parsed:
    """Concatenate what was parsed from several blocks, with consecutive numbers for the records."""
    if len(parsed) == 1:
        return parsed[0]
    frames, rejects, first = [], [], 0
    cuts: dict[int, Cuts] = {}
    images: dict[int, RowImages] = {}
    for part in parsed:
        frames.append(part.frame.with_columns(pl.col("__row") + first))
        rejects += [replace(reject, row=reject.row + first) for reject in part.rejects]
        cuts |= {row + first: cut for row, cut in part.cuts.items()}
        images |= {row + first: held for row, held in part.images.items()}
        first += part.records
    return Parsed(
        pl.concat(frames, rechunk=True),
        rejects,
        first,
        sum(part.blank for part in parsed),
        sum(part.fast_rows for part in parsed),
        cuts,
        images,
        sum(part.filled for part in parsed),
    )


def _parse_columns(batch: pa.Table, plan: ReadPlan) -> Parsed | None:
    """Take the columns of a batch as they are; None if each row must be examined."""
    binding = plan.binding
    batch = _without_nulls(batch, binding)
    images = row_images.of_batch(binding.images, batch)
    if images is None:
        return None
    batch = batch.drop_columns([*images.columns])
    if not _fits_columns(batch, binding):
        return None
    count = batch.num_rows
    return Parsed(plan.select(batch), [], count, 0, count, images=images.of_rows())


def _parse_cells(records: ArrowRows, binding: Binding) -> Parsed | None:
    """Read texts of which some are JSON text by the kernel, as lines; None if each row must be examined."""
    batch = records.batch
    used = _used_cells(binding, batch.schema.names)
    if (
        used is None
        or not is_sound(batch)
        or any(holds_media(entry.type) for entry in batch.schema)
    ):
        return None
    if not all(is_text(batch.schema.field(name).type) for name in used):
        return None
    columns = [batch.column(name).to_pylist() for name in used]
    rows = (dict(zip(used, texts, strict=True)) for texts in zip(*columns, strict=True))
    return _parse_texts(records, rows, binding)


def _parse_csv(records: CellRows, binding: Binding) -> Parsed | None:
    """Read cells of which some are JSON text by the kernel, as lines; None if each row must be examined."""
    names = json_cells.names_of(binding)
    there = dict.fromkeys(name for row in records.cells for name in row)
    used = _used_cells(binding, there)
    # Numbers and flags of a CSV are read by their own rules.
    texts = TextKind | CarriedKind | ToolsKind
    others = (c for c in binding.every if c.path[0] in there.keys() - names) if used else ()
    if used is None or not all(isinstance(column.kind, texts) for column in others):
        return None
    rows = ({name: row[name] for name in used if name in row} for row in records.cells)
    return _parse_texts(records, rows, binding)


def _used_cells(binding: Binding, there: Collection[str]) -> list[str] | None:
    """Return the columns in use, of which some hold JSON text; None where rows must be examined."""
    paths = [column.path for column in binding.every]
    if binding.images is not None or any(len(path) != 1 for path in paths):
        return None
    used = [name for name in dict.fromkeys(path[0] for path in paths) if name in there]
    is_free = MEDIA.isdisjoint(there) and not json_cells.names_of(binding).isdisjoint(used)
    return used if is_free else None


def _parse_texts(
    records: Rows, rows: Iterable[Mapping[str, str | None]], binding: Binding
) -> Parsed | None:
    names, every = json_cells.names_of(binding), np.arange(len(records))
    read = _read_cells(every, [json_cells.of_cells(row, names) for row in rows], binding)
    return None if read is None else _with_others(records, *read, binding)


def _with_others(records: Rows, frame: pl.DataFrame, left: np.ndarray, binding: Binding) -> Parsed:
    """Judge the records one by one that the kernel left, and put them between those in the frame."""
    fast = len(records) - len(left)
    if not len(left):
        return Parsed(frame, [], len(records), records.blank, fast)
    others = parse_rows(records, binding, frozenset(left.tolist()))
    frame = pl.concat([frame, others.frame]).sort("__row")
    return replace(others, frame=frame, fast_rows=fast)


def _read_cells(
    numbers: np.ndarray, lines: Sequence[str | None], binding: Binding
) -> tuple[pl.DataFrame, np.ndarray] | None:
    """Read records as other lines, None for those without one, by the kernel.

    Returns:
        The frame of those that it is certain of, and the numbers of the others; None if there is none.
    """
    held = [(number, line) for number, line in zip(numbers.tolist(), lines, strict=True) if line]
    if not held:
        return None
    data = "".join(f"{line}\n" for _, line in held).encode()
    there = np.array([number for number, _ in held])
    read = _read_lines(there, data, binding)
    if read is None:
        return None
    return read[0], np.setdiff1d(numbers, np.setdiff1d(there, read[1]))


def _read_lines(
    numbers: np.ndarray, data: bytes, binding: Binding
) -> tuple[pl.DataFrame, np.ndarray] | None:
    """Read the lines of these records by the kernel, as `_read_cells` does."""
    read = clean_lines.read(data, binding.spec)
    if read is None:
        return None
    is_clean = read.verdicts == clean_lines.CLEAN
    return _as_converters_see(read.frame, numbers[is_clean], binding), numbers[~is_clean]


def _fits_columns(batch: pa.Table, binding: Binding) -> bool:
    """Return whether the types of a batch say of each value in use what it is."""
    names = set(batch.schema.names)
    if any(holds_media(entry.type) for entry in batch.schema):
        return False
    if MEDIA & names or binding.converter.takes_rows or not is_sound(batch):
        return False
    columns = (*binding.columns, *binding.kept)
    return all(_fits_column(batch, c) for c in columns if c.path[0] in names)


def _fits_column(batch: pa.Table, column: BoundColumn) -> bool:
    if len(column.path) > 1 or column.shape is None or column.kind.open:
        return False
    dtype = batch.schema.field(column.path[0]).type
    if not _fits(dtype, arrow_type(column.kind, column.shape)):
        return False
    if isinstance(column.kind, ConversationKind) and may_carry(dtype, column.kind.row_path):
        return False
    values = batch.column(column.path[0]).chunks
    if any(doubts(column.kind, chunk, column.shape) for chunk in values):
        return False
    return not (column.kind.nested and any(map(holds_strange_numbers, values)))


def _without_nulls(batch: pa.Table, binding: Binding) -> pa.Table:
    """Drop what is null in every row: columns, and keys of messages.

    Files that fmtkit wrote have all of them, and pandas and `datasets` write columns in which all is None.
    """
    columns = zip(batch.schema.names, batch.columns, strict=True)
    batch = batch.select([name for name, c in columns if c.null_count < len(c)])
    for column in (*binding.columns, *binding.kept):
        index = batch.schema.get_field_index(column.path[0]) if len(column.path) == 1 else -1
        if index < 0:
            continue
        values, entry = batch.column(index), batch.schema.field(index)
        if isinstance(column.kind, ConversationKind) and may_carry(
            entry.type, column.kind.row_path
        ):
            chunks = [_without_null_keys(chunk, column.kind.row_path) for chunk in values.chunks]
            if chunks and all(chunk.type == chunks[0].type for chunk in chunks):
                batch = batch.set_column(index, entry.with_type(chunks[0].type), chunks)
    return batch


def _without_null_keys(array: pa.Array, keys: frozenset[str]) -> pa.Array:
    """Drop those of these keys that no message in an array of lists of messages has."""
    if not (pa.types.is_list(array.type) and pa.types.is_struct(array.type.value_type)):
        return array
    flat = flatten(array)
    if flat.messages.null_count:
        return array
    kept = {
        name: values
        for name, values in keys_of(flat.messages).items()
        if name not in keys or values.null_count < len(values)
    }
    fields = [field for field in flat.messages.type if field.name in kept]
    made = pa.StructArray.from_arrays(list(kept.values()), fields=fields)
    return lists_of(made, flat.sizes, flat.valid)


def _fits(dtype: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether a column of this Arrow type reads as the wanted one without a check of its values."""
    if pa.types.is_string(wanted):
        return bool(
            pa.types.is_string(dtype)
            or pa.types.is_large_string(dtype)
            or pa.types.is_string_view(dtype)
        )
    if pa.types.is_boolean(wanted):
        return bool(pa.types.is_boolean(dtype))
    if pa.types.is_floating(wanted):
        return bool(pa.types.is_integer(dtype) or pa.types.is_floating(dtype))
    if pa.types.is_list(wanted):
        lists = pa.types.is_list(dtype) or pa.types.is_large_list(dtype)
        return bool(lists and _fits(dtype.value_type, wanted.value_type))
    if pa.types.is_struct(wanted) and pa.types.is_struct(dtype):
        there = {dtype.field(i).name: dtype.field(i).type for i in range(dtype.num_fields)}
        fields = [wanted.field(i) for i in range(wanted.num_fields)]
        return all(f.name in there and _fits(there[f.name], f.type) for f in fields)
    return False


def parse_records(records: Records, binding: Binding) -> Parsed:
    """Parse the records of a block: the clean lines natively, the others one by one."""
    read = clean_lines.read(records.data, binding.spec)
    if read is None:
        judged = _judge(records, range(len(records)), binding)
        return _parsed(records, judged.frame(binding), judged, 0, binding)
    records.blank_lines = read.verdicts == clean_lines.BLANK
    verdicts = read.verdicts[~records.blank_lines]
    clean = np.flatnonzero(verdicts == clean_lines.CLEAN)
    unsure = np.flatnonzero(verdicts == clean_lines.UNSURE)
    frames = [_as_converters_see(read.frame, clean, binding)]
    names = json_cells.names_of(binding)
    if len(unsure) and names:
        lines = [json_cells.in_line(records.raw(number), names) for number in unsure.tolist()]
        cells = _read_cells(unsure, lines, binding)
        if cells is not None:
            frames.append(cells[0])
            unsure = cells[1]
    fast = sum(frame.height for frame in frames)
    judged = _judge(records, unsure.tolist(), binding)
    if judged.sound:
        frames.append(judged.frame(binding))
    frame = pl.concat(frames).sort("__row") if len(frames) > 1 else frames[0]
    return _parsed(records, frame, judged, fast, binding)


def _parsed(
    records: Records, frame: pl.DataFrame, judged: "_Judged", clean: int, binding: Binding
) -> Parsed:
    return Parsed(
        frame,
        judged.rejects,
        len(records),
        records.blank,
        clean,
        judged.cuts(binding),
        _images(judged.sound, binding),
    )


def _as_converters_see(frame: pl.DataFrame, rows: np.ndarray, binding: Binding) -> pl.DataFrame:
    """Number the rows of a frame that the kernel read, and report what its watched columns carry."""
    columns = {column.name: frame.get_column(column.name) for column in binding.every}
    for watched in binding.watched:
        texts = columns[watched.name]
        if texts.null_count() < len(texts):
            columns[watched.name] = carried(texts)
    # By way of Arrow: for numpy arrays polars imports numpy.ma, which takes 20 ms.
    numbers = pl.Series("__row", buffers.int64s(rows))
    return pl.DataFrame([*columns.values(), numbers])


@dataclass(frozen=True)
class _Judged:
    """Records that the strict parser read one by one, and the rejects of the others."""

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
        given, fault = records.value(record, written=True)
        value = given if fault else binding.unwrapped(given)
        found = [fault] if fault else binding.judge(value)
        if found:
            first = found[0]
            judged.rejects.append(records.reject(record, first.code, first.column, first.message))
        else:
            judged.sound.append((record, value))
    return judged
