"""Conversations and tools in columns, as JSON lines: the kernel reads those as it reads a file of lines.

Parquet and Arrow give each message the keys of all others, and each call the arguments of all others. Row by
row that costs ten times as much as lines do; as they are only the columns of plain messages can be taken.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from fmtkit.columns.kinds import ConversationKind, Kind, ListKind, ToolsKind
from fmtkit.core import buffers
from fmtkit.reading.binding import Binding
from fmtkit.reading.bound_column import MEDIA
from fmtkit.reading.native import kernel
from fmtkit.sources.blocks import ArrowRows, Records, holds_media
from fmtkit.sources.marks import Fault

OTHER, PLAIN, TOOLS, CALLS = range(4)
"""What a column holds: anything, conversations without calls, tools, or conversations with calls."""
_NUMBERS = {OTHER: 0, PLAIN: 0, TOOLS: 1, CALLS: 2}
"""How the kernel numbers it: within tools and calls null keys are left out."""


class LinedRows(Records):
    """Rows of a batch and their lines; one is `!` where only the strict parser can judge a row.

    Its values are those of the batch.
    """

    def __init__(self, rows: ArrowRows, data: bytes, filled: np.ndarray) -> None:
        super().__init__(data)
        self.rows, self._filled = rows, filled

    @property
    def blank(self) -> int:
        """Count no blank lines."""
        return 0

    def __len__(self) -> int:
        return len(self.rows)

    def raw(self, record: int) -> bytes:
        """Return the canonical JSON text of a record."""
        return self.rows.raw(record)

    def value(self, record: int, *, written: bool = False) -> tuple[Any, Fault | None]:
        """Return a record's value, or why it has none."""
        return self.rows.value(record, written=written)

    def values(self, *, written: bool = False) -> Iterator[tuple[Any, Fault | None]]:
        """Yield the value of every record."""
        return self.rows.values(written=written)

    def picked(self, records: np.ndarray) -> "LinedRows":
        """Return some of the records."""
        starts, ends = self.found.starts[records].tolist(), self.found.ends[records].tolist()
        lines = (self.data[start:end] + b"\n" for start, end in zip(starts, ends, strict=True))
        rows = ArrowRows(self.rows.batch.take(buffers.int64s(records)))
        return LinedRows(rows, b"".join(lines), self._filled[records])

    def filled(self, records: np.ndarray) -> int:
        """Count those of these records whose tools or calls had keys that only other rows have."""
        return int(self._filled[records].sum())


def as_lines(records: ArrowRows, binding: Binding) -> ArrowRows | LinedRows:
    """Return the rows of a batch with the columns in use as lines, or as they are if other ways read them.

    That is without a kernel, for rows with media or with values that JSON does not have, for types that read
    rows as a whole or what is within columns, and where no column has conversations or tools: what else there
    is, such as tokens, is read faster as it is.
    """
    native, batch = kernel(), records.batch
    names = [*dict.fromkeys(batch.schema.names)]
    if native is None or not batch.num_rows or any(len(c.path) != 1 for c in binding.every):
        return records
    if len(names) < batch.num_columns or not MEDIA.isdisjoint(names):
        return records
    if binding.images is not None or any(holds_media(entry.type) for entry in batch.schema):
        return records
    holds = _holds(binding)
    held = {entry.name: entry.type for entry in batch.schema if holds.get(entry.name)}
    if not any(dtype.num_fields for dtype in held.values()) or not is_sound(batch):
        return records
    if any(is_text(dtype) and holds[name] != TOOLS for name, dtype in held.items()):
        return records  # the text may be that of JSON, in which a null was written
    used = batch.select([name for name in names if name in holds])
    if not all(map(_is_writable, used.schema)):
        return records
    each = tuple(_NUMBERS[holds[name]] for name in used.schema.names)
    parts = [native.lines(*part.__arrow_c_array__(), each) for part in used.to_batches()]
    data, filled = (b"".join(column) for column in zip(*parts, strict=True))
    return LinedRows(records, data, np.frombuffer(filled, np.bool_))


def is_text(dtype: pa.DataType) -> bool:
    """Return whether values are texts."""
    return bool(pa.types.is_string(dtype) or pa.types.is_large_string(dtype))


def is_sound(batch: pa.Table) -> bool:
    """Return whether every offset is within its buffer and every text UTF-8: polars crashes on others."""
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _holds(binding: Binding) -> dict[str, int]:
    """Return what each column in use holds, by its name at the top."""
    found: dict[str, int] = {}
    for column in binding.every:
        name = column.path[0]
        found[name] = max(found.get(name, OTHER), _held(column.kind))
    return found


def _held(kind: Kind) -> int:
    if isinstance(kind, ListKind):
        return _held(kind.item)
    if isinstance(kind, ConversationKind):
        return CALLS if kind.wide else PLAIN
    return TOOLS if isinstance(kind, ToolsKind) else OTHER


def _is_writable(field: pa.Field) -> bool:
    """Return whether a field can be written as JSON, name and values."""
    dtype, types = field.type, pa.types
    try:
        if "\0" in field.name:  # Arrow's C interface ends a name there
            return False
    except UnicodeDecodeError:  # of a damaged file
        return False
    if types.is_struct(dtype) or types.is_list(dtype) or types.is_large_list(dtype):
        return all(_is_writable(dtype.field(number)) for number in range(dtype.num_fields))
    return any(one(dtype) for one in _WRITABLE)


_WRITABLE = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_float32,
    pa.types.is_float64,
    pa.types.is_null,
)
