"""Columnar sources: Parquet, Arrow IPC and tables in memory, in slices bounded by bytes."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from fmtkit.core.errors import SourceError
from fmtkit.sources.blocks import COLUMNS_BYTES
from fmtkit.sources.plain_types import decoded, decoded_schema

PARQUET_BATCH_ROWS = 2048
"""Most rows decoded at once: a dictionary-encoded column can be far larger than its file says."""

_BATCH_BYTES = COLUMNS_BYTES * 4 // 5

READ_BUFFER_BYTES = 1 << 20
"""Without a buffer size pyarrow reads a whole column chunk of a row group at once."""

ARROW_MAGIC = b"ARROW1"

BYTES_OF: dict[pa.DataType, pa.DataType] = {
    pa.string(): pa.binary(),
    pa.large_string(): pa.large_binary(),
    pa.string_view(): pa.binary_view(),
}
"""Types of text -> the types of bytes with the same memory layout."""

_LISTS: dict[type, Callable[[pa.DataType], pa.DataType]] = {
    pa.ListType: pa.list_,
    pa.MapType: pa.list_,
    pa.LargeListType: pa.large_list,
    pa.ListViewType: pa.list_view,
    pa.LargeListViewType: pa.large_list_view,
}

IpcFile: TypeAlias = "pa.ipc.RecordBatchFileReader | pa.ipc.RecordBatchStreamReader"

ARROW_ERRORS = (pa.ArrowException, OSError, MemoryError, UnicodeDecodeError)
"""Errors that pyarrow raises for damaged data: impossible lengths, names that are not UTF-8."""


def parquet_batches(
    file: pq.ParquetFile, columns: Sequence[str] | None, groups: Iterable[int]
) -> Iterator[pa.RecordBatch]:
    """Read row groups of a Parquet file in batches of about a block or less.

    In memory a batch is larger than its file says, by offsets and words that the file has once (roles):
    one that was aimed at a whole block would be cut in half.
    """
    for group in groups:
        size = file.metadata.row_group(group)
        if not size.num_rows:
            continue
        rows = size.num_rows * _BATCH_BYTES // max(size.total_byte_size, 1)
        batches = file.iter_batches(
            batch_size=min(max(rows, 1), PARQUET_BATCH_ROWS),
            row_groups=[group],
            columns=None if columns is None else present(columns, file.schema_arrow),
            use_threads=False,
        )
        yield from map(checked, batches)


def ipc_batches(
    reader: IpcFile, columns: Sequence[str] | None, start: int
) -> Iterator[pa.RecordBatch]:
    """Read an Arrow file or stream record batch by record batch, from one of them on."""
    kept = None if columns is None else present(columns, reader.schema)
    for batch in each_batch(reader, start):
        yield checked(batch if kept is None else batch.select(kept))


def each_batch(reader: IpcFile, start: int = 0) -> Iterator[pa.RecordBatch]:
    """Yield the record batches of an Arrow file or stream from one of them on."""
    if isinstance(reader, pa.ipc.RecordBatchStreamReader):
        yield from islice(reader, start, None)
        return
    for index in range(start, reader.num_record_batches):
        yield reader.get_batch(index)


def open_ipc(file: pa.NativeFile) -> IpcFile:
    """Open an Arrow file (which has a footer) or an Arrow stream."""
    magic = file.read(len(ARROW_MAGIC))
    file.seek(0)
    return pa.ipc.open_file(file) if magic == ARROW_MAGIC else pa.ipc.open_stream(file)


def checked(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch whose offsets and lengths are within its buffers; raise ArrowInvalid otherwise.

    Text that is not UTF-8 is not damage, but a fault of a row.
    """
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid as error:
        if "UTF8" not in str(error):
            raise
        for column in batch.columns:
            _check_but_for_text(column)
    return batch


def _check_but_for_text(array: pa.Array) -> None:
    """Validate an array, with its texts as bytes."""
    dtype = array.type
    if dtype in BYTES_OF:
        buffers = array.buffers()
        count, offset = len(array), array.offset
        pa.Array.from_buffers(BYTES_OF[dtype], count, buffers, offset=offset).validate(full=True)
    elif pa.types.is_struct(dtype):
        for index in range(dtype.num_fields):
            _check_but_for_text(array.field(index))
    elif type(dtype) in _LISTS:
        made = _LISTS[type(dtype)]
        held = [array.keys, array.items] if pa.types.is_map(dtype) else [array.values]
        own = array.buffers()[: 3 if "view" in made.__name__ else 2]
        items = [pa.nulls(len(held[0]))]
        pa.Array.from_buffers(
            made(pa.null()), len(array), own, offset=array.offset, children=items
        ).validate(full=True)
        for one in held:
            _check_but_for_text(one)
    elif pa.types.is_fixed_size_list(dtype):
        _check_but_for_text(array.values)
    elif pa.types.is_run_end_encoded(dtype):
        pa.RunEndEncodedArray.from_arrays(array.run_ends, pa.nulls(len(array.values)))
        _check_but_for_text(array.values)
    elif pa.types.is_dictionary(dtype):
        pa.DictionaryArray.from_arrays(array.indices, pa.nulls(len(array.dictionary)))
        _check_but_for_text(array.dictionary)
    elif isinstance(dtype, pa.BaseExtensionType):
        _check_but_for_text(array.storage)
    else:
        array.validate(full=True)


@contextmanager
def arrow_errors(name: str) -> Iterator[None]:
    """Name the file for which pyarrow raises an error."""
    try:
        yield
    except SourceError:
        raise
    except ARROW_ERRORS as error:
        raise SourceError(f"{name} cannot be read: {reason(error)}") from error


def reason(error: BaseException) -> str:
    """Return pyarrow's error in one line."""
    if isinstance(error, MemoryError) and not str(error):
        return "a length in it is beyond all memory: it is damaged"
    if isinstance(error, UnicodeDecodeError):
        return "the name of a column is not UTF-8"
    return str(error).partition("\n")[0] or type(error).__name__


def present(columns: Sequence[str], schema: pa.Schema) -> list[str]:
    """Return those of the columns that the schema has, once each, in the schema's order."""
    wanted = set(columns)
    decoded_schema(schema)
    return [name for name in schema.names if name in wanted]


def cut_tables(
    batches: Iterable[pa.RecordBatch], block_bytes: int = COLUMNS_BYTES
) -> Iterator[pa.Table]:
    """Join small batches and slice large ones into tables of about `block_bytes`."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        for part in _slices(decoded(batch), block_bytes):
            if held and size + part.nbytes > block_bytes:
                yield pa.Table.from_batches(held)
                held, size = [], 0
            held.append(part)
            size += part.nbytes
    if held:
        yield pa.Table.from_batches(held)


def _slices(batch: pa.RecordBatch, block_bytes: int) -> Iterator[pa.RecordBatch]:
    """Halve a batch until each part fits, so that one giant row does not make other parts small."""
    if batch.num_rows <= 1 or batch.nbytes <= block_bytes:
        if batch.num_rows:
            yield batch
        return
    middle = batch.num_rows // 2
    yield from _slices(batch.slice(0, middle), block_bytes)
    yield from _slices(batch.slice(middle), block_bytes)
