"""Arrow arrays from numpy and Python values, and back, without the code paths that import pandas.

Where pandas is installed, pyarrow imports it (0.9 s, 55 MB) at the first `pa.array(...)`,
`pa.scalar(...)`, `Array.to_numpy()` or `pc.equal(array, "x")`: whenever it must recognise a Python
object. Buffers are never recognised: `pa.py_buffer` takes a numpy array as it is.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]

MAX_INT32 = 2**31 - 1


def with_leaves(dtype: pa.DataType, made: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return a type with a function applied to each type inside its structs, lists and maps, or to itself."""
    if pa.types.is_struct(dtype):
        return pa.struct([field.with_type(with_leaves(field.type, made)) for field in dtype])
    if pa.types.is_list(dtype) or pa.types.is_large_list(dtype):
        list_of = pa.list_ if pa.types.is_list(dtype) else pa.large_list
        return list_of(dtype.value_field.with_type(with_leaves(dtype.value_type, made)))
    if pa.types.is_map(dtype):
        parts = (
            f.with_type(with_leaves(f.type, made)) for f in (dtype.key_field, dtype.item_field)
        )
        return pa.map_(*parts, keys_sorted=dtype.keys_sorted)
    return made(dtype)


def texts(values: Iterable[str | None]) -> pa.Array:
    """Make a string array (large_string beyond 2 GiB) of Python strings."""
    encoded = [None if value is None else value.encode() for value in values]
    sizes = np.fromiter((len(value or b"") for value in encoded), np.int64, len(encoded))
    valid = np.fromiter((value is not None for value in encoded), np.bool_, len(encoded))
    return from_offsets(ends(sizes), pa.py_buffer(b"".join(v or b"" for v in encoded)), valid)


def from_offsets(offsets: Int64s, data: pa.Buffer, valid: Bools | None = None) -> pa.Array:
    """Make a string array of its parts; `offsets` has one entry more than there are strings."""
    count = len(offsets) - 1
    large = bool(count) and int(offsets[-1]) > MAX_INT32
    stored = offsets if large else offsets.astype(np.int32)
    buffers = [bits(valid), pa.py_buffer(stored), data]
    return pa.Array.from_buffers(pa.large_string() if large else pa.string(), count, buffers)


def bits(valid: Bools | None) -> pa.Buffer | None:
    """Pack booleans as Arrow does; None, which stands for no nulls, if all are true."""
    if valid is None or valid.all():
        return None
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def int64s(values: Int64s) -> pa.Array:
    """Make an int64 array, sharing memory."""
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])


def booleans(values: Bools) -> pa.Array:
    """Make a boolean array."""
    packed = pa.py_buffer(np.packbits(values, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, packed])


def values_of(values: Sequence[Any], dtype: pa.DataType) -> pa.Array:
    """Make an array of Python values: texts, booleans, lists and structs of those; None is a null."""
    valid = np.fromiter((value is not None for value in values), np.bool_, len(values))
    children: list[pa.Array] = []
    parts = [bits(valid)]
    if pa.types.is_string(dtype):
        return texts(values)
    if pa.types.is_boolean(dtype):
        parts.append(booleans(np.fromiter(map(bool, values), np.bool_, len(values))).buffers()[1])
    elif pa.types.is_list(dtype):
        sizes = np.fromiter((len(value or ()) for value in values), np.int64, len(values))
        parts.append(pa.py_buffer(ends(sizes).astype(np.int32)))
        items = [item for value in values for item in value or ()]
        children = [values_of(items, dtype.value_type)]
    elif pa.types.is_struct(dtype):
        for field in dtype:
            held = [None if value is None else value.get(field.name) for value in values]
            children.append(values_of(held, field.type))
    else:
        raise TypeError(f"no array of {dtype} is made of Python values")
    return pa.Array.from_buffers(dtype, len(values), parts, children=children)


def empty_table(schema: pa.Schema) -> pa.Table:
    """Make a table without rows."""
    return pa.Table.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def ends(sizes: Int64s) -> Int64s:
    """Return the offsets of items of these sizes that stand one after another."""
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return offsets


def numbers(buffer: pa.Buffer | None, dtype: Any, offset: int, count: int) -> NDArray[Any]:
    """View a part of a buffer as numbers."""
    if buffer is None or not count:
        return np.zeros(count, dtype)
    return np.frombuffer(buffer, dtype, count, offset * np.dtype(dtype).itemsize)


def integers(array: pa.Array) -> Int64s:
    """Return a signed integer array as it is in its buffer; the value of a null is undefined."""
    dtype = np.dtype(f"i{array.type.bit_width // 8}")
    found: Int64s = numbers(array.buffers()[1], dtype, array.offset, len(array)).astype(np.int64)
    return found


def whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array; pyarrow's combine_chunks copies even where there is one chunk."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if not column.num_chunks:
        return pa.nulls(0, column.type)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def validity(array: pa.Array) -> Bools:
    """Return for each item whether it is not null."""
    if not array.null_count:
        return np.ones(len(array), np.bool_)
    return _unpacked(pc.is_valid(array))


def truths(array: pa.BooleanArray) -> Bools:
    """Return for each item of a boolean array whether it is true; a null is not."""
    return _unpacked(array) & validity(array)


def _unpacked(array: pa.BooleanArray) -> Bools:
    if not len(array):
        return np.zeros(0, np.bool_)
    packed = np.frombuffer(array.buffers()[1], np.uint8)
    unpacked = np.unpackbits(packed, bitorder="little", count=array.offset + len(array))
    return unpacked[array.offset :].astype(np.bool_)


def offsets_of(array: pa.Array) -> Int64s:
    """Return the offsets of a string or list array as they are in its buffer."""
    wide = pa.types.is_large_string(array.type) or pa.types.is_large_list(array.type)
    count = len(array) + 1 if array.buffers()[1] is not None else 0
    found = numbers(array.buffers()[1], np.int64 if wide else np.int32, array.offset, count)
    return found.astype(np.int64) if count else np.zeros(len(array) + 1, np.int64)


def sample_of(column: pa.Array, *, one_in: int) -> Int64s:
    """Choose about one text in `one_in`, by its length and eight of its bytes: the same in any batch."""
    bounds = offsets_of(column)
    data = np.frombuffer(column.buffers()[2], np.uint8)
    sizes = bounds[1:] - bounds[:-1]
    rows = np.flatnonzero(sizes)
    at = bounds[rows][:, None] + (sizes[rows][:, None] * np.arange(8)[None, :]) // 8
    words: NDArray[np.uint64] = np.ascontiguousarray(data[at]).view(np.uint64).ravel()
    mixed = (words ^ sizes[rows].astype(np.uint64)) * _SPREAD >> np.uint64(32)
    chosen: Int64s = rows[mixed % np.uint64(one_in) == 0]
    return chosen


_SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""2 ** 64 divided by the golden ratio: multiplied by it, similar words differ in their high bits."""
