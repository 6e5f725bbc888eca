"""Which kinds of JSON value the columns of sources hold, all of their rows seen.

pyarrow's parser finds the types of most units; where it may not see one, refuses it, or cannot tell how a
number was written, the strict parser looks at every value.
"""

import re
from collections.abc import Iterable, Iterator
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as pajson

from fmtkit.converting import reading
from fmtkit.converting.engines import Threads
from fmtkit.sources import guards
from fmtkit.sources.blocks import ArrowBlock, Block, Readable
from fmtkit.sources.marks import NonFinite, NotText, Overflow, WrittenFloat, is_unicode
from fmtkit.sources.records import Records

Seen = dict[str, set[str]]
"""Column -> kinds, in the order in which the columns were met."""

MOST_CELLS = 1_000_000
"""Of a unit: objects times the keys that any of them has, each of which takes pyarrow 90 ns."""
_STRINGS = re.compile(rb'"((?:[^"\\]++|\\.)*+)"[ \t\r]*+(:?)')
UNIT_BYTES = 512 * 1024
"""Small units: one that is refused is looked at value by value."""
EXACT_INTEGERS = 2**53
_EXACT = pa.decimal256(76, 30)
"""Wide enough for numbers as people write them; others are looked at one by one."""


def kinds_of_columns(sources: Iterable[Readable]) -> Seen:
    """Return every column of the sources with the kinds of JSON value that it holds."""
    return _together(Threads().map(_of_block, _blocks(sources)))


def _blocks(sources: Iterable[Readable]) -> Iterator[Block]:
    for source in sources:
        source.keep()
        yield from source.blocks()


def _of_block(block: Block) -> Seen:
    records = reading.records_of(block)
    if isinstance(records, Records):
        return _together(_of_unit(records, start, stop) for start, stop in _units(records))
    found = _of_batch(block.batch) if isinstance(block, ArrowBlock) else None
    return found or kinds_of_rows(records.values(written=True))


def _together(parts: Iterable[Seen]) -> Seen:
    seen: Seen = {}
    for part in parts:
        for name, kinds in part.items():
            seen.setdefault(name, set()).update(kinds)
    return seen


def kinds_of_rows(rows: Iterator[tuple[Any, Any]]) -> Seen:
    """Look at every value of rows that were parsed strictly."""
    seen: Seen = {}
    for row, fault in rows:
        # A row with half a surrogate pair in a key is refused: it adds no column.
        if fault is None and all(map(is_unicode, row)):
            for name, value in row.items():
                seen.setdefault(name, set()).add(_kind(value))
    return seen


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        return "text"
    if isinstance(value, int):
        return "integer" if abs(value) <= EXACT_INTEGERS else "long integer"
    if isinstance(value, float):
        token = value.token if isinstance(value, WrittenFloat) else repr(value)
        return "float" if is_exact(token, float(value)) else "json"
    # A row with NaN or 1e400 is refused, so that it has no say in how the others are kept.
    return "refused" if isinstance(value, NonFinite | Overflow | NotText) else "json"


def is_exact(token: str, value: float) -> bool:
    """Tell whether a float is the number that was written."""
    try:
        return Decimal(token) == Decimal(repr(value))
    except InvalidOperation:
        # An exponent beyond even a Decimal's, such as that of 1e-9999999999999999999.
        return False


def _of_unit(records: Records, start: int, stop: int) -> Seen:
    """Look at the types that pyarrow finds, and at values only where types do not tell."""
    unit = _plain_unit(records, start, stop)
    sound = unit is not None and _is_shallow(*unit) and not _is_sparse(unit[0])
    table = read_json(unit[0], None, "infer") if unit is not None and sound else None
    if unit is not None and table is not None and table.num_rows == stop - start:
        found = {
            field.name: _of_column(column) or _of_numbers(column, field.name, unit[0])
            for field, column in zip(table.schema, table.columns, strict=True)
        }
        if all(found.values()):
            return found
    return kinds_of_rows(records.value(record, written=True) for record in range(start, stop))


def _units(records: Records) -> list[tuple[int, int]]:
    """Cut records into runs of about so many bytes."""
    count, start = len(records), 0
    units = []
    while start < count:
        limit = records.found.starts[start] + UNIT_BYTES
        end = int(np.searchsorted(records.found.ends, limit, side="right"))
        end = min(max(end, start + 1), count)
        units.append((start, end))
        start = end
    return units


def _plain_unit(records: Records, start: int, stop: int) -> tuple[pa.Buffer, guards.Lines] | None:
    """Return the bytes of some records if pyarrow may see them, where none nests too deep."""
    found = records.found
    first, end = int(found.starts[start]), int(found.ends[stop - 1])
    lines = guards.Lines(
        found.starts[start:stop] - first, found.ends[start:stop] - first, found.numbers, 0
    )
    if not guards.look_like_objects(records.array[first:end], lines):
        return None
    buffer = records.buffer.slice(first, end - first)
    return (buffer, lines) if records.is_utf8 or guards.is_utf8(buffer) else None


def _is_shallow(buffer: pa.Buffer, lines: guards.Lines) -> bool:
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


def _is_sparse(buffer: pa.Buffer) -> bool:
    """Tell whether objects have so many different keys that a null for each is too much."""
    data = buffer.to_pybytes()
    if data.count(b":") ** 2 <= MOST_CELLS:
        return False
    keys = [text for text, colon in _STRINGS.findall(data) if colon]
    return len(set(keys)) * len(keys) > MOST_CELLS


def _of_batch(batch: pa.Table) -> Seen | None:
    """Look at the types of a batch; None where they do not tell."""
    columns = zip(batch.schema.names, batch.columns, strict=True)
    found = {name: _of_column(column) or _of_floats(column) for name, column in columns}
    return found if all(found.values()) else None


def _of_column(column: pa.ChunkedArray) -> set[str]:
    """Return the kinds of a column whose type tells them; none where it does not."""
    dtype = column.type
    if column.null_count == len(column):
        return {"null"}
    if pa.types.is_boolean(dtype):
        return {"bool"}
    # Texts that look like dates become timestamps where pyarrow is to find the types of JSON.
    if pa.types.is_string(dtype) or pa.types.is_large_string(dtype) or pa.types.is_timestamp(dtype):
        return {"text"}
    if pa.types.is_struct(dtype) or pa.types.is_list(dtype) or pa.types.is_large_list(dtype):
        return {"json"}
    if pa.types.is_signed_integer(dtype):
        ends = pc.min_max(column).as_py()
        is_long = max(-ends["min"], ends["max"]) > EXACT_INTEGERS
        return {"long integer" if is_long else "integer"}
    return set()


def _of_floats(column: pa.ChunkedArray) -> set[str]:
    """Return the kinds of floats that were never text."""
    if not pa.types.is_floating(column.type):
        return set()
    finite = pc.any(pc.is_finite(column.cast(pa.float64()))).as_py()
    return {"float"} if finite else {"refused"}


def _of_numbers(column: pa.ChunkedArray, name: str, buffer: pa.Buffer) -> set[str]:
    """Return the kinds of numbers that were read as floats; none where that hides what they were."""
    if not pa.types.is_floating(column.type):
        return set()
    if not pc.all(pc.less_equal(pc.abs(column), EXACT_INTEGERS)).as_py():
        return set()
    table = read_json(buffer, pa.schema([(name, _EXACT)]), "ignore")
    if table is None:
        return set()
    pairs = pa.table({"written": table.column(0), "read": column}).group_by(["written", "read"])
    distinct = pairs.aggregate([]).drop_null()
    written, read = (distinct.column(key).to_pylist() for key in ("written", "read"))
    exact = all(one == Decimal(repr(other)) for one, other in zip(written, read, strict=True))
    return {"float"} if exact else {"json"}
