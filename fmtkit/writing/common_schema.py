"""One schema for the rows of several conversions of one table, whatever types they come from.

Narrow and wide messages, hard and soft labels and numbers of two sizes have one form that holds both. A
column that some rows lack is null in them; a margin is 0, as without one.
"""

from collections.abc import Sequence
from itertools import chain

import pyarrow as pa

from fmtkit.core.errors import OptionError
from fmtkit.core.image_columns import type_with_parts
from fmtkit.core.tables import (
    MESSAGE,
    STORED_MESSAGE,
    WIDE_MESSAGE,
    has_images,
    with_images,
    without_any_image,
)

_WIDER = {
    MESSAGE: STORED_MESSAGE,
    type_with_parts(MESSAGE): type_with_parts(STORED_MESSAGE),
}
"""A narrow message -> the wide one that holds it."""
_WITHOUT = {"margin": 0.0}
"""Column -> what stands for its absence."""


def common_schema(schemas: Sequence[pa.Schema], names: Sequence[str]) -> pa.Schema:
    """Return the schema that holds the rows of all; `names` say whose they are.

    Raises OptionError where a column holds different kinds of value.
    """
    if any(map(has_images, schemas)):
        schemas = [*map(with_images, schemas)]
    fields: dict[str, tuple[pa.Field, str]] = {}
    for schema, name in zip(schemas, names, strict=True):
        for field in schema:
            known, whose = fields.get(field.name, (field, name))
            dtype = _common(known.type, field.type)
            if dtype is None:
                raise OptionError(
                    f"column {field.name!r} holds {_spoken(known.type)} in rows of {whose}, but "
                    f"{_spoken(field.type)} in rows of {name}; give a folder as OUT, or make them the same"
                )
            fields[field.name] = (known.with_type(dtype), whose)
    return pa.schema([field for field, _ in fields.values()])


def fitted(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table with the columns of the schema, in its order and its types."""
    if has_images(schema) and not has_images(table.schema):
        table = without_any_image(table)
    columns = []
    for field in schema:
        if field.name in table.schema.names:
            columns.append(table.column(field.name).cast(field.type))
        elif field.name in _WITHOUT:
            columns.append(pa.repeat(pa.scalar(_WITHOUT[field.name], field.type), table.num_rows))
        else:
            columns.append(pa.nulls(table.num_rows, field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def _common(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the type to which values of both can be cast; None if there is none."""
    if one == other:
        return one
    if pa.types.is_list(one) and pa.types.is_list(other):
        inner = _common(one.value_type, other.value_type)
        return None if inner is None else pa.list_(inner)
    for narrow, wide in _WIDER.items():
        if {one, other} == {narrow, wide}:
            return wide
    if pa.types.is_nested(one) or pa.types.is_nested(other):
        return None
    if {pa.types.is_boolean(t) or pa.types.is_floating(t) for t in (one, other)} == {True}:
        return pa.float64()
    try:
        schemas = [pa.schema([("x", dtype)]) for dtype in (one, other)]
        unified: pa.DataType = pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    except pa.ArrowTypeError:
        return None
    return unified


def _spoken(dtype: pa.DataType) -> str:
    if pa.types.is_string(dtype) or pa.types.is_large_string(dtype):
        return "text"
    if pa.types.is_list(dtype):
        return (
            "messages" if dtype.value_type in (WIDE_MESSAGE, *chain(*_WIDER.items())) else "a list"
        )
    return str(dtype)
