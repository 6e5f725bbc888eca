"""Plain types: what each Arrow type becomes before the rest of fmtkit sees it, or why it cannot be read.

Arrow has several layouts of the same values. Dictionaries, views, runs and lists of a fixed size say
nothing that text and lists do not, and polars reads only some of them.
"""

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fmtkit.core.buffers import (
    MAX_INT32,
    Int64s,
    bits,
    ends,
    int64s,
    integers,
    validity,
    with_leaves,
)

EXTENSION_NAME = b"ARROW:extension:name"
"""Field metadata of a column that was of an extension type."""

JSON_NAME = b"arrow.json"
"""The one extension whose columns stay marked: others are what they are stored as, and nothing else."""

VIEWS: dict[pa.DataType, pa.DataType] = {
    pa.string_view(): pa.large_string(),
    pa.binary_view(): pa.large_binary(),
}
"""Types whose slices take as many bytes as the whole array, so that slices cannot be bounded by bytes."""

MOST_DIGITS = 38
"""Digits of a decimal of 128 bits, the widest that polars reads."""


def decoded(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with columns of plain types (`decoded_schema`).

    Raises ArrowInvalid, with the column's name, for a value that its plain type does not hold.
    """
    schema = decoded_schema(batch.schema)
    if schema is batch.schema:
        return batch
    columns = []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        try:
            columns.append(_plain_array(column))
        except pa.ArrowException as error:
            reason = str(error).partition("\n")[0]
            raise pa.ArrowInvalid(f"column {field.name!r} ({field.type}): {reason}") from error
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names).cast(schema)


def decoded_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema with the types that the rest of fmtkit knows, wherever they are inside a column.

    Dictionaries, views, runs and extensions (JSON) become what they stand for, lists of a fixed size and
    views of lists become lists, decimals decimals of 128 bits, times and nulls text: Arrow has the type
    null where all is None or a list is always empty, and a null has the same meaning in any type.

    Raises:
        ArrowInvalid: if two columns have one name, or a column is of a type without a plain equal.
    """
    if twice := [name for name, count in Counter(schema.names).items() if count > 1]:
        raise pa.ArrowInvalid(f"two columns are named {twice[0]!r}; rename one")
    fields = [_plain_field(field) for field in schema]
    if all(new.equals(old, check_metadata=True) for new, old in zip(fields, schema, strict=True)):
        return schema
    return pa.schema(fields, schema.metadata)


def _plain_field(field: pa.Field) -> pa.Field:
    try:
        plain = field.with_type(_plain_type(field.type))
    except pa.ArrowNotImplementedError as error:
        raise pa.ArrowInvalid(f"column {field.name!r} {error}; cast or drop the column") from error
    name = (field.metadata or {}).get(EXTENSION_NAME)
    if isinstance(field.type, pa.BaseExtensionType):
        name = field.type.extension_name.encode()
    if name is None:
        return plain
    # As Arrow itself marks a type that a reader does not know: JSON is not just text. With another mark
    # polars would give the column back as that extension, in a storage type that is not its own.
    return plain.with_metadata({EXTENSION_NAME: JSON_NAME} if name == JSON_NAME else None)


def _plain_type(dtype: pa.DataType) -> pa.DataType:
    return with_leaves(dtype, _plain)


def _plain(dtype: pa.DataType) -> pa.DataType:
    """Return the plain equal of a type that is no struct, list or map."""
    if dtype in VIEWS:
        return VIEWS[dtype]
    if pa.types.is_union(dtype) or pa.types.is_interval(dtype):
        raise pa.ArrowNotImplementedError(f"is or holds a {dtype}, which fmtkit does not read")
    if pa.types.is_null(dtype) or pa.types.is_temporal(dtype):
        # Python has no nanoseconds, and what stands for them depends on the installed packages.
        return pa.string()
    if pa.types.is_decimal(dtype):
        return _decimal(dtype)
    if pa.types.is_fixed_size_list(dtype) or pa.types.is_list_view(dtype):
        return pa.list_(dtype.value_field.with_type(_plain_type(dtype.value_type)))
    if pa.types.is_large_list_view(dtype):
        return pa.large_list(dtype.value_field.with_type(_plain_type(dtype.value_type)))
    if pa.types.is_run_end_encoded(dtype) or pa.types.is_dictionary(dtype):
        return _plain_type(dtype.value_type)
    if isinstance(dtype, pa.BaseExtensionType):
        return _plain_type(dtype.storage_type)
    return dtype


def _decimal(dtype: pa.DataType) -> pa.DataType:
    if dtype.scale > MOST_DIGITS or dtype.scale < 0:
        raise pa.ArrowNotImplementedError(f"is or holds a {dtype}, which fmtkit does not read")
    return pa.decimal128(min(dtype.precision, MOST_DIGITS), dtype.scale)


def _plain_array(array: pa.Array) -> pa.Array:
    """Return an array in its plain type, part by part: Arrow's casts do not look inside of every layout.

    Those of pyarrow 26 refuse runs and dictionaries inside of lists, and lose the items of views of lists.
    """
    dtype = array.type
    plain = _plain_type(dtype)
    if plain == dtype:
        return array
    if isinstance(dtype, pa.BaseExtensionType):
        return _plain_array(array.storage)
    if pa.types.is_dictionary(dtype):
        return _plain_array(array.dictionary).take(array.indices)
    if pa.types.is_run_end_encoded(dtype):
        return _plain_array(array.values).take(int64s(_runs(array)))
    if pa.types.is_struct(dtype):
        parts = [_plain_array(array.field(index)) for index in range(dtype.num_fields)]
        mask = pc.is_null(array) if array.null_count else None
        return pa.StructArray.from_arrays(parts, fields=list(plain), mask=mask)
    if pa.types.is_map(dtype):
        return _plain_map(array, plain)
    if pa.types.is_list(plain) or pa.types.is_large_list(plain):
        return _plain_list(array, plain)
    return array.cast(plain)


def _runs(array: pa.RunEndEncodedArray) -> Int64s:
    """Return for each item the number of its value."""
    places = np.arange(array.offset, array.offset + len(array))
    return np.searchsorted(integers(array.run_ends), places, side="right").astype(np.int64)


def _plain_list(array: pa.Array, plain: pa.DataType) -> pa.Array:
    """Return lists of any layout, one list's items after another's."""
    sizes = pc.list_value_length(array)
    is_valid = validity(array)
    offsets = ends(np.where(is_valid, integers(sizes), 0))
    large = pa.types.is_large_list(plain)
    if not large and int(offsets[-1]) > MAX_INT32:
        raise pa.ArrowInvalid("one batch holds more than 2^31 items; write it in smaller batches")
    stored = offsets if large else offsets.astype(np.int32)
    return pa.Array.from_buffers(
        plain,
        len(array),
        [bits(is_valid), pa.py_buffer(stored)],
        children=[_plain_array(array.flatten())],
    )


def _plain_map(array: pa.MapArray, plain: pa.MapType) -> pa.Array:
    parts = [_plain_array(array.keys), _plain_array(array.items)]
    entries = pa.StructArray.from_arrays(parts, fields=[plain.key_field, plain.item_field])
    return pa.Array.from_buffers(
        plain, len(array), array.buffers()[:2], offset=array.offset, children=[entries]
    )
