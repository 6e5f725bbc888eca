"""Arrow's functions without a start that makes them all.

Importing `pyarrow.compute` makes a Python function with its signature and its help of each of some 300, and
takes a fifth as long as importing all of this package. What each conversion calls is called here by its
name; any other function is taken from `pyarrow.compute`, once somebody asks for it.
"""

from typing import Any

import pyarrow as pa
from pyarrow._compute import CastOptions, call_function


def __getattr__(name: str) -> Any:
    # The methods of arrays that have the names of functions import it too.
    import pyarrow.compute

    return getattr(pyarrow.compute, name)


def cast(column: pa.Array | pa.ChunkedArray, dtype: pa.DataType) -> Any:
    """Return a column as one of another type, as its method of this name does.

    Raises:
        pa.ArrowInvalid: if a value is not one of that type.
    """
    if column.type == dtype:
        return column
    return call_function("cast", [column], CastOptions.safe(dtype))


def cast_table(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table with the columns of a schema, which has their names in the same order.

    Raises:
        ValueError: if the names are others.
        pa.ArrowInvalid: if a value is not one of its column's type.
    """
    if table.schema.names != schema.names:
        raise ValueError(f"the columns are {table.schema.names}, not {schema.names}")
    columns = [
        cast(column, field.type) for column, field in zip(table.columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def dictionary_encode(array: pa.Array) -> pa.DictionaryArray:
    """Return an array as the distinct values and the place of each item's among them."""
    return call_function("dictionary_encode", [array])


def equal(one: pa.Array, other: pa.Array) -> pa.BooleanArray:
    """Return for each pair of items whether they are equal, null where one is null."""
    return call_function("equal", [one, other])


def is_valid(array: pa.Array) -> pa.BooleanArray:
    """Return for each item whether it is not null."""
    return call_function("is_valid", [array])
