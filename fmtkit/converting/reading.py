"""Reading: any block of a source becomes the frame that its converter sees, and rejects."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from math import isfinite
from typing import Any, Protocol

import numpy as np
import polars as pl
import pyarrow as pa

from fmtkit.codes import Reject
from fmtkit.converting.binding import Binding
from fmtkit.converting.bound_column import MEDIA, Row
from fmtkit.converting.parse import RAW_LIMIT, Parsed, Records, parse_records
from fmtkit.converting.read_plan import ReadPlan
from fmtkit.kinds import TextKind
from fmtkit.message_kinds import DialogKind, json_value, may_carry
from fmtkit.number_kinds import holds_strange_numbers
from fmtkit.rendering.content_parts import Cuts
from fmtkit.sources.blocks import ArrowBlock, Block, JsonBlock, MadeBlock, RowsBlock
from fmtkit.sources.canonical_json import canonical, number_of
from fmtkit.sources.marks import NON_FINITE, NOT_TEXT, OVERFLOW, Fault, NotText
from fmtkit.sources.strict import parse


class Rows(Protocol):
    """The records of a block, for who needs one of them: its value, its line, its reject."""

    def __len__(self) -> int: ...
    def value(self, record: int, *, written: bool = False) -> tuple[Any, Any]:
        """Return a record's value and the fault that it has none for."""
        ...

    def values(self, *, written: bool = False) -> Iterator[tuple[Any, Any]]:
        """Yield the value of every record, or its fault."""
        ...

    def line(self, record: int) -> int | None:
        """Return the physical line on which a record begins."""
        ...

    def reject(self, record: int, code: str, column: str | None, message: str) -> Reject:
        """Make the reject of a record."""
        ...


class ListedRows:
    """Records that are Python objects: of CSV, of columnar sources, of a user's function."""

    def __init__(self, rows: Sequence[Row], lines: Sequence[int] | None = None) -> None:
        self.rows = rows
        self.lines = lines

    def __len__(self) -> int:
        return len(self.rows)

    def value(self, record: int, *, written: bool = False) -> tuple[Any, Any]:  # noqa: ARG002
        """Return a record's value; it has one, always."""
        return self.rows[record], None

    def values(self, *, written: bool = False) -> Iterator[tuple[Any, Any]]:
        """Yield the value of every record."""
        return (self.value(record, written=written) for record in range(len(self)))

    def line(self, record: int) -> int | None:
        """Return the line of a record, None where the source has no lines."""
        return None if self.lines is None else self.lines[record]

    def reject(self, record: int, code: str, column: str | None, message: str) -> Reject:
        """Make the reject of a record; its bytes are its canonical JSON text."""
        raw = canonical(plain_json(self.rows[record])).encode("utf-8", "surrogatepass")
        whole = len(raw) if len(raw) > RAW_LIMIT else None
        return Reject(record, self.line(record), code, column, message, raw[:RAW_LIMIT], whole)


class JoinedRows:
    """The records of several blocks, counted one after the other."""

    def __init__(self, parts: Sequence[Rows]) -> None:
        self.parts = parts
        self.ends = np.cumsum([len(part) for part in parts])

    def _find(self, record: int) -> tuple[Rows, int]:
        part = int(np.searchsorted(self.ends, record, side="right"))
        return self.parts[part], record - int(self.ends[part]) + len(self.parts[part])

    def __len__(self) -> int:
        return int(self.ends[-1])

    def value(self, record: int, *, written: bool = False) -> tuple[Any, Any]:
        """Return a record's value and the fault that it has none for."""
        rows, own = self._find(record)
        return rows.value(own, written=written)

    def values(self, *, written: bool = False) -> Iterator[tuple[Any, Any]]:
        """Yield the value of every record, or its fault."""
        return (value for rows in self.parts for value in rows.values(written=written))

    def line(self, record: int) -> int | None:
        """Return the physical line on which a record begins, in its own source."""
        rows, own = self._find(record)
        return rows.line(own)

    def reject(self, record: int, code: str, column: str | None, message: str) -> Reject:
        """Make the reject of a record."""
        rows, own = self._find(record)
        return replace(rows.reject(own, code, column, message), row=record)


class ArrowRows(ListedRows):
    """Records of a columnar batch, made Python objects one at a time."""

    def __init__(self, batch: pa.Table) -> None:
        super().__init__(())
        self.batch = batch

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def value(self, record: int, *, written: bool = False) -> tuple[Any, Any]:  # noqa: ARG002
        """Return a record's value; None and a fault if one of its texts is not UTF-8."""
        row = self.batch.slice(record, 1)
        for name, column in zip(row.schema.names, row.columns, strict=True):
            try:
                column.to_pylist()
            except UnicodeDecodeError:
                return None, Fault("invalid_utf8", name, f"{name} is not UTF-8")
        return marked(row.to_pylist()[0]), None

    def values(self, *, written: bool = False) -> Iterator[tuple[Any, Any]]:
        """Yield the value of every record, all made at once where their texts are UTF-8."""
        try:
            rows = self.batch.to_pylist()
        except UnicodeDecodeError:
            return super().values(written=written)
        return ((marked(row), None) for row in rows)

    def reject(self, record: int, code: str, column: str | None, message: str) -> Reject:
        """Make the reject of a record."""
        row = self.batch.slice(record, 1)
        fields = [f.with_type(_undecoded(f.type)) for f in row.schema]
        made = ListedRows(row.cast(pa.schema(fields)).to_pylist())
        return replace(made.reject(0, code, column, message), row=record)


def _undecoded(dtype: pa.DataType) -> pa.DataType:
    """Return the type with bytes for text, which may not be UTF-8."""
    if pa.types.is_string(dtype):
        return pa.binary()
    if pa.types.is_large_string(dtype):
        return pa.large_binary()
    if pa.types.is_list(dtype) or pa.types.is_large_list(dtype):
        make = pa.list_ if pa.types.is_list(dtype) else pa.large_list
        return make(_undecoded(dtype.value_type))
    if pa.types.is_struct(dtype):
        fields = [dtype.field(i) for i in range(dtype.num_fields)]
        return pa.struct([f.with_type(_undecoded(f.type)) for f in fields])
    return dtype


class MadeRows:
    """Records that a user's function made; they parse like lines of a file."""

    def __init__(self, block: MadeBlock) -> None:
        self.block = block

    def __len__(self) -> int:
        return len(self.block.rows)

    def value(self, record: int, *, written: bool = False) -> tuple[Any, Any]:
        """Parse a record."""
        return parse(self.block.rows[record], written=written)

    def values(self, *, written: bool = False) -> Iterator[tuple[Any, Any]]:
        """Parse every record."""
        return (parse(row, written=written) for row in self.block.rows)

    def line(self, record: int) -> int | None:
        """Return the line of the row that the record was made of."""
        return self.block.lines[record]

    def reject(self, record: int, code: str, column: str | None, message: str) -> Reject:
        """Make the reject of a record; its bytes are what the function made."""
        raw = self.block.rows[record]
        whole = len(raw) if len(raw) > RAW_LIMIT else None
        return Reject(record, self.line(record), code, column, message, raw[:RAW_LIMIT], whole)


def marked(value: Any) -> Any:
    """Turn a row of a columnar source into what the strict parser makes of a line."""
    if isinstance(value, dict):
        return {str(key): marked(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [marked(item) for item in value]
    if isinstance(value, Decimal):
        value = number_of(value)
    if isinstance(value, float) and not isfinite(value):
        return NON_FINITE
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return OVERFLOW
    if isinstance(value, bytes):
        return _text_or_mark(value)
    return plain_json(value)


def _text_or_mark(value: bytes) -> str | NotText:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return NOT_TEXT


def plain_json(value: Any) -> Any:
    """Turn what columnar sources hold beside JSON (decimals, bytes, times) into numbers and texts."""
    if isinstance(value, dict):
        return {str(key): plain_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_json(item) for item in value]
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Decimal):
        return number_of(value)
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def records_of(block: Block, binding: Binding | None = None) -> Rows:
    """Return the records of a block; CSV cells are read as the binding's kinds say."""
    if isinstance(block, JsonBlock):
        return Records(block)
    if isinstance(block, ArrowBlock):
        return ArrowRows(block.batch)
    if isinstance(block, MadeBlock):
        return MadeRows(block)
    rows = block.rows if binding is None else [cells(row, binding) for row in block.rows]
    return ListedRows(rows, block.lines)


def parse_block(block: Block, records: Rows, plan: ReadPlan) -> Parsed:
    """Parse a block by the plan of its source; the block's own rejects are not in the result."""
    if isinstance(block, JsonBlock):
        assert isinstance(records, Records)
        return parse_records(records, plan)
    if isinstance(block, ArrowBlock):
        fast = _parse_columns(block.batch, plan)
        if fast is not None:
            return fast
        return parse_rows(records, plan.binding)
    parsed = parse_rows(records, plan.binding)
    return replace(parsed, blank=block.blank_lines)


def cells(row: Row, binding: Binding) -> Row:
    """Read the cells of a CSV row: text where text belongs, JSON where anything else does."""
    out = dict(row)
    for column in binding.every:
        cell = out.get(column.path[0]) if column.path else None
        if not isinstance(cell, str) or isinstance(column.kind, TextKind):
            continue
        is_json = not isinstance(column.kind, DialogKind) or cell.lstrip()[:1] in ("[", "{")
        out[column.path[0]] = json_value(cell) if is_json else cell
    return out


def parse_rows(records: Rows, binding: Binding) -> Parsed:
    """Judge rows one by one and make the frame of the sound ones."""
    sound: list[int] = []
    rows: list[Row] = []
    rejects: list[Reject] = []
    for record, (value, fault) in enumerate(records.values(written=True)):
        found = [fault] if fault is not None else binding.judge(value)
        if found:
            rejects.append(records.reject(record, found[0].code, found[0].column, found[0].message))
        else:
            sound.append(record)
            rows.append(value)
    frame = binding.frame(rows, sound)
    cuts = {n: cut for n, row in zip(sound, rows, strict=True) if (cut := binding.cuts(row))}
    return Parsed(frame, rejects, len(records), 0, 0, cuts)


def parse_blocks(blocks: Sequence[Block], records: Sequence[Rows], plan: ReadPlan) -> list[Parsed]:
    """Parse blocks that have one plan; JSON of several at once, since that costs by the call."""
    lines = [rows for rows in records if isinstance(rows, Records)]
    numbers = [rows.line(record) for rows in lines for record in range(len(rows))]
    if len(blocks) == 1 or len(lines) < len(blocks) or None in numbers:
        return [parse_block(b, rows, plan) for b, rows in zip(blocks, records, strict=True)]
    data = b"".join(
        rows.data if rows.data.endswith(b"\n") else rows.data + b"\n" for rows in lines if rows.data
    )
    parsed = parse_records(Records(JsonBlock(data, 1, np.array(numbers, np.int64))), plan)
    return [replace(parsed, blank=sum(rows.found.blank for rows in lines))]


def joined(parsed: Sequence[Parsed]) -> Parsed:
    """Put what was parsed of several blocks together, its records counted one after the other."""
    if len(parsed) == 1:
        return parsed[0]
    frames, rejects, first = [], [], 0
    cuts: dict[int, Cuts] = {}
    for part in parsed:
        frames.append(part.frame.with_columns(pl.col("__row") + first))
        rejects += [replace(reject, row=reject.row + first) for reject in part.rejects]
        cuts |= {row + first: cut for row, cut in part.cuts.items()}
        first += part.records
    return Parsed(
        pl.concat(frames, rechunk=True),
        rejects,
        first,
        sum(part.blank for part in parsed),
        sum(part.fast_rows for part in parsed),
        cuts,
    )


def blank_lines(records: Rows) -> int:
    """Return how many blank lines lie between the records of a block of JSON lines."""
    return records.found.blank if isinstance(records, Records) else 0


def places_of(block: Block, records: int) -> np.ndarray:
    """Return the row of each parsed record among all records of its block."""
    if isinstance(block, ArrowBlock):
        return np.arange(records)
    if isinstance(block, MadeBlock):
        return np.asarray(block.places, dtype=np.int64)
    return places(block.rejects, records)


def _parse_columns(batch: pa.Table, plan: ReadPlan) -> Parsed | None:
    """Take the columns of a batch as they are; None where only a look at each row will do."""
    binding = plan.binding
    names = set(batch.schema.names)
    if MEDIA & names or binding.converter.takes_rows or not _is_utf8(batch):
        return None
    types = {}
    for column in binding.every:
        if column.path[0] not in names:
            if column.shape is not None:
                types[column.path[0]] = pa.null()
            continue
        if len(column.path) > 1 or column.shape is None or column.kind.open:
            return None
        dtype = batch.schema.field(column.path[0]).type
        if not _fits(dtype, column.kind.read_type(column.shape, None)):
            return None
        if isinstance(column.kind, DialogKind) and may_carry(dtype):
            return None
        types[column.path[0]] = dtype
        values = batch.column(column.path[0]).chunks
        if any(column.kind.doubts(chunk, column.shape) for chunk in values):
            return None
        if column.kind.nested and any(map(holds_strange_numbers, values)):
            return None
    present = [name for name in types if name in names]
    read = pl.from_arrow(batch.select(present))
    assert isinstance(read, pl.DataFrame)
    frame = read.with_columns(
        pl.lit(None, dtype=pl.String).alias(name) for name in types if name not in names
    )
    numbers = pl.int_range(0, batch.num_rows, eager=True)
    return Parsed(plan.select(frame, numbers), [], batch.num_rows, 0, batch.num_rows)


def _is_utf8(batch: pa.Table) -> bool:
    """Tell whether every text of a batch is UTF-8: polars crashes on what is not."""
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _fits(dtype: pa.DataType, wanted: pa.DataType) -> bool:
    """Tell whether a column of this Arrow type reads as the wanted one without a look at its values."""
    if pa.types.is_null(dtype):
        return True
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


def places(own: Sequence[Reject], records: int) -> np.ndarray:
    """Return the row of each parsed record among all records of the block, the block's own rejects too."""
    everything = np.arange(records + len(own))
    return np.delete(everything, [reject.row for reject in own]) if own else everything


def head(block: Block, rows: int) -> tuple[Block, int]:
    """Return the first rows of a block, and how many more rows are wanted after them."""
    own = () if isinstance(block, ArrowBlock) else block.rejects
    if isinstance(block, ArrowBlock):
        return replace(block, batch=block.batch.slice(0, rows)), rows - min(
            rows, block.batch.num_rows
        )
    count = len(records_of(block)) + len(own)
    if isinstance(block, MadeBlock):
        count += block.filtered
    if count <= rows:
        return block, rows - count
    kept = tuple(reject for reject in own if reject.row < rows)
    records = rows - len(kept)
    if isinstance(block, MadeBlock):
        return _head_of_made(block, rows), 0
    if isinstance(block, RowsBlock):
        return replace(
            block, rows=block.rows[:records], lines=block.lines[:records], rejects=kept
        ), 0
    found = Records(block).found
    end = int(found.ends[records - 1]) if records else 0
    return replace(block, data=block.data[:end], rejects=kept, line_feeds=None), 0


def _head_of_made(block: MadeBlock, rows: int) -> MadeBlock:
    """Return what a user's function made of the first rows of a block."""
    kept = [i for i, place in enumerate(block.places) if place < rows]
    rejects = tuple(reject for reject in block.rejects if reject.row < rows)
    return replace(
        block,
        rows=[block.rows[i] for i in kept],
        lines=[block.lines[i] for i in kept],
        places=[block.places[i] for i in kept],
        rejects=rejects,
        filtered=rows - len(kept) - len(rejects),
    )
