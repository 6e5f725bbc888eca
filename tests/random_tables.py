"""Canonical-like tables of any content, for property tests of the writing side."""

import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st

from fmtkit.core.tables import WIDE_MESSAGE

FEW = settings(max_examples=30, deadline=None)
"""For properties that cost milliseconds an example."""

JSON_FIELD = pa.field("tools", pa.string(), metadata={"fmtkit:json": "1"})

SCHEMA = pa.schema(
    [
        pa.field("prompt", pa.list_(WIDE_MESSAGE)),
        pa.field("replies", pa.list_(pa.list_(pa.string()))),
        pa.field("text", pa.large_string()),
        pa.field("margin", pa.float64()),
        pa.field("soft", pa.list_(pa.float32())),
        pa.field("label", pa.bool_()),
        pa.field("ids", pa.list_(pa.int32())),
        pa.field("count", pa.int64()),
        pa.field("nothing", pa.null()),
        JSON_FIELD,
    ]
)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def values(dtype: pa.DataType) -> st.SearchStrategy:
    """Return values of an Arrow type, None among them."""
    if pa.types.is_struct(dtype):
        some = st.fixed_dictionaries({field.name: values(field.type) for field in dtype})
    elif pa.types.is_list(dtype):
        some = st.lists(values(dtype.value_type), max_size=3)
    elif pa.types.is_boolean(dtype):
        some = st.booleans()
    elif pa.types.is_floating(dtype):
        some = st.floats(allow_nan=False, allow_infinity=False, width=dtype.bit_width)
    elif pa.types.is_integer(dtype):
        limit = 2 ** (dtype.bit_width - 1)
        some = st.integers(-limit, limit - 1)
    elif pa.types.is_null(dtype):
        return st.none()
    else:
        some = texts
    return st.none() | some


def tables(max_rows: int = 6) -> st.SearchStrategy[pa.Table]:
    """Return tables of some columns of SCHEMA."""
    columns = st.lists(st.sampled_from(SCHEMA.names), min_size=1, unique=True)
    return columns.flatmap(
        lambda names: rows_of(pa.schema([SCHEMA.field(n) for n in names]), max_rows)
    )


def rows_of(schema: pa.Schema, max_rows: int = 6) -> st.SearchStrategy[pa.Table]:
    """Return tables of one schema."""
    row = st.fixed_dictionaries({field.name: values(field.type) for field in schema})
    rows = st.lists(row, max_size=max_rows)
    return rows.map(lambda found: pa.Table.from_pylist(found, schema=schema))
