"""Encode a table as canonical JSON lines, column by column.

One object on each line, keys in column order, no spaces, UTF-8 with the fewest escapes. A null stays at
the top level, so that every row has every column, except for columns that say otherwise; inside a message a
null key is left out. JSON (the Arrow type arrow.json) is written as the value that it is. Floats
keep a point or an exponent, so that 1.0 is not read back as an integer.
"""

import json
from functools import reduce
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from fmtkit.core import buffers
from fmtkit.core.errors import WriteError

OPTIONAL = b"fmtkit:optional"
"""Metadata of a column whose nulls are left out, as within a message."""


def encode(table: pa.Table) -> pa.Buffer:
    """Return the lines of all rows, each ended by a newline; they must be shorter than 2 GiB.

    Raises:
        WriteError: if a value is not finite, or of a type that JSON does not have.
    """
    if not table.num_rows:
        return pa.py_buffer(b"")
    arrays = [pa.concat_arrays(column.chunks) for column in table.columns]
    members = [
        _member(field.name, _top(_texts(array, field.name), field))
        for field, array in zip(table.schema, arrays, strict=True)
    ]
    inner = _joined(*members, by=",", null_handling="skip")
    return _joined("{", inner, "}\n").buffers()[2]


def _top(texts: pa.StringArray, field: pa.Field) -> pa.StringArray:
    """Write the nulls of a column, unless its metadata says that they are left out."""
    return texts if OPTIONAL in (field.metadata or {}) else texts.fill_null(_text("null"))


def _texts(array: pa.Array, path: str) -> pa.StringArray:
    """Return the JSON text of every value, null where the value is."""
    dtype = array.type
    if isinstance(dtype, pa.JsonType):
        return array.storage
    if pa.types.is_struct(dtype):
        return _objects(array, path)
    if pa.types.is_list(dtype) or pa.types.is_large_list(dtype):
        return _lists(array, path)
    if pa.types.is_string(dtype) or pa.types.is_large_string(dtype):
        return _strings(array)
    if pa.types.is_floating(dtype):
        return _floats(array, path)
    if pa.types.is_boolean(dtype) or pa.types.is_integer(dtype) or pa.types.is_null(dtype):
        return array.cast(pa.string())
    raise WriteError(f"column {path!r}: JSON has no {dtype}; write .parquet or .arrow instead")


def _objects(array: pa.StructArray, path: str) -> pa.StringArray:
    present = [
        (child, field)
        for child, field in zip(array.flatten(), array.type, strict=True)
        if child.null_count < len(child)
    ]
    if not present:
        return pc.if_else(array.is_valid(), _text("{}"), _text(None))
    members = [
        _member(field.name, _texts(child, f"{path}.{field.name}")) for child, field in present
    ]
    # Joining skips nulls: that leaves the null keys out. But pyarrow 26 returns too few texts if
    # all inputs are null.
    is_empty = reduce(pc.and_, [member.is_null() for member in members])
    members[0] = pc.if_else(is_empty, _text(""), members[0])
    inner = _joined(*members, by=",", null_handling="skip")
    return _between("{", inner, "}", array)


def _member(name: str, texts: pa.StringArray) -> pa.StringArray:
    return _joined(json.dumps(name, ensure_ascii=False) + ":", texts)


def _lists(array: pa.ListArray, path: str) -> pa.StringArray:
    items = _texts(array.flatten(), path).fill_null(_text("null"))
    sizes = np.diff(buffers.offsets_of(array)) * buffers.validity(array)
    offsets = pa.py_buffer(buffers.ends(sizes).astype(np.int32))
    lists = pa.Array.from_buffers(
        pa.list_(items.type), len(array), [None, offsets], children=[items]
    )
    return _between("[", pc.binary_join(lists, _text(",")), "]", array)


def _strings(array: pa.StringArray) -> pa.StringArray:
    # polars escapes at 450 MB/s, json.dumps at 110, pyarrow's replace_substring in a row at 115.
    # It does so for structs only: the key and the braces around the text are removed again.
    frame = pl.DataFrame({"": pl.Series(array, dtype=pl.String)})
    text = pl.struct("").struct.json_encode().str.strip_prefix('{"":').str.strip_suffix("}")
    texts = frame.select(pl.when(pl.col("").is_not_null()).then(text)).to_series()
    return texts.to_arrow().cast(pa.string())


def _floats(array: pa.Array, path: str) -> pa.StringArray:
    if pc.any(pc.invert(pc.is_finite(array))).as_py():
        raise WriteError(f"column {path!r}: JSON has no NaN or Infinity; write .parquet instead")
    texts = array.cast(pa.string())
    whole = pc.invert(pc.match_substring_regex(texts, "[.e]"))
    return pc.if_else(whole, _joined(texts, ".0"), texts)


def _between(opening: str, inner: pa.StringArray, closing: str, array: pa.Array) -> pa.StringArray:
    """Put brackets around each text; null where `array` is."""
    return pc.if_else(array.is_valid(), _joined(opening, inner, closing), _text(None))


def _joined(*texts: pa.StringArray | str, by: str = "", null_handling: str = "emit_null") -> Any:
    """Join texts row by row; constant ones are Python strings."""
    parts = [_text(text) if isinstance(text, str) else text for text in (*texts, by)]
    return pc.binary_join_element_wise(*parts, null_handling=null_handling)


def _text(value: str | None) -> pa.StringScalar:
    """Return a string for pyarrow's functions: they import pandas to look at one of Python's."""
    return buffers.texts([value])[0]
