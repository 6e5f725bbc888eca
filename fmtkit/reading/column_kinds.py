"""Which kinds of JSON value the columns of sources hold, over all rows."""

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal, InvalidOperation
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fmtkit.reading import clean_lines
from fmtkit.sources.blocks import ArrowRows, Block, Readable, Records
from fmtkit.sources.marks import Media, NonFinite, NotText, Overflow, WrittenFloat, is_unicode
from fmtkit.sources.strict import MAX_DEPTH
from fmtkit.work.engines import Engine
from fmtkit.work.tasks import scan_blocks

Seen = dict[str, set[str]]
"""Column -> kinds, in the order of first occurrence."""

EXACT_INTEGERS = 2**53


def kinds_of_columns(sources: Sequence[Readable], engine: Engine | None = None) -> Seen:
    """Return every column of the sources with the kinds of JSON value that it holds."""
    return scan_blocks(sources, engine, kinds_of_block, _together)


def kinds_of_block(block: Block) -> Seen:
    """Return every column of the rows of a block with the kinds of JSON value that it holds."""
    records = block.records()
    if isinstance(records, Records):
        return _of_lines(records)
    found = _of_batch(records.batch) if isinstance(records, ArrowRows) else None
    return found or kinds_of_rows(records.values(written=True))


def _together(parts: Iterable[Seen]) -> Seen:
    seen: Seen = {}
    for part in parts:
        for name, kinds in part.items():
            seen.setdefault(name, set()).update(kinds)
    return seen


def kinds_of_rows(rows: Iterator[tuple[Any, Any]]) -> Seen:
    """Collect the kinds of every value of strictly parsed rows."""
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
    # A row with NaN or 1e400 is refused, so it does not decide how the others are kept.
    return "refused" if isinstance(value, NonFinite | Overflow | NotText | Media) else "json"


def is_exact(token: str, value: float) -> bool:
    """Return whether a float equals the number as it was written."""
    try:
        return Decimal(token) == Decimal(repr(value))
    except InvalidOperation:
        # An exponent beyond even a Decimal's, such as that of 1e-9999999999999999999.
        return False


def _of_lines(records: Records) -> Seen:
    """Look at JSON lines natively, and with the strict parser at those that the kernel is not sure of."""
    read = clean_lines.kinds(records.data, MAX_DEPTH)
    if read is None:
        return kinds_of_rows(records.values(written=True))
    met: list[tuple[int, int, str, Iterable[str]]] = [*read.met]
    lines = np.flatnonzero(read.verdicts != clean_lines.BLANK)
    for record in np.flatnonzero(read.verdicts[lines] == clean_lines.UNSURE).tolist():
        judged = kinds_of_rows(iter([records.value(record, written=True)]))
        met += ((int(lines[record]), place, *each) for place, each in enumerate(judged.items()))
    met.sort(key=itemgetter(0, 1))
    return _together({name: set(kinds)} for _, _, name, kinds in met)


def _of_batch(batch: pa.Table) -> Seen | None:
    """Look at the types of a batch; None where they are not sufficient."""
    columns = zip(batch.schema.names, batch.columns, strict=True)
    found = {name: _of_column(column) or _of_floats(column) for name, column in columns}
    return found if all(found.values()) else None


def _of_column(column: pa.ChunkedArray) -> set[str]:
    """Return the kinds of a column whose type determines them; empty where it does not."""
    dtype = column.type
    if column.null_count == len(column):
        return {"null"}
    if pa.types.is_boolean(dtype):
        return {"bool"}
    # pyarrow's JSON reader makes timestamps of texts that look like dates.
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
    """Return the kinds of floats of typed sources."""
    if not pa.types.is_floating(column.type):
        return set()
    finite = pc.any(pc.is_finite(column.cast(pa.float64()))).as_py()
    return {"float"} if finite else {"refused"}
