"""Parquet as fmtkit joins it is read alike by pyarrow, polars, `datasets` and duckdb, statistics included."""

import importlib.util
import io
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from random_tables import FEW

from fmtkit.writing import formats
from fmtkit.writing.formats import encode, find

NAMES = st.lists(
    st.sampled_from(
        ["prompt", "выбор", "回答", "a b", "a.b", "café", "cafe\u0301", "🙂", "x" * 300, "'\""]
    ),
    min_size=1,
    max_size=4,
    unique=True,
)
TEXT = st.none() | st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12
)
LONG = st.integers(0, 3).map(lambda n: "слово " * (n * 20_000))
"""Values that fill pages, of which statistics are left out or cut."""
VALUES = {
    pa.string(): TEXT | LONG,
    pa.int64(): st.none() | st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.none() | st.floats(allow_nan=False),
    pa.bool_(): st.none() | st.booleans(),
    pa.list_(pa.string()): st.none() | st.lists(TEXT, max_size=3),
}


@st.composite
def tables_of(draw: st.DrawFn) -> list[pa.Table]:
    """Return tables of one schema, some of them empty, some columns null throughout."""
    schema = pa.schema([(name, draw(st.sampled_from([*VALUES]))) for name in draw(NAMES)])
    tables = []
    for _ in range(draw(st.integers(1, 4))):
        count = draw(st.sampled_from([0, 1, 2, 5]))
        columns = [
            draw(st.lists(VALUES[field.type], min_size=count, max_size=count)) for field in schema
        ]
        arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
        tables.append(pa.table(arrays, schema=schema))
    return tables


def joined(tables: list[pa.Table], compression: str) -> bytes:
    stitcher, out = formats.find("parquet").stitcher(), bytearray()
    for table in tables:
        for buffer in stitcher.add(encode(table, find("parquet"), compression), len(out)):
            out += buffer
    return bytes(out + stitcher.end({"type": "intel"}))


@FEW
@given(tables_of(), st.sampled_from(["snappy", "zstd", "none"]))
def test_readers_and_statistics_agree(tables: list[pa.Table], compression: str) -> None:
    data, expected = joined(tables, compression), pa.concat_tables(tables)
    file = pq.ParquetFile(pa.BufferReader(data))
    assert file.read().replace_schema_metadata().equals(expected)
    assert pl.read_parquet(io.BytesIO(data)).equals(pl.from_arrow(expected))
    for index in range(file.metadata.num_row_groups):
        group, rows = file.metadata.row_group(index), file.read_row_group(index)
        assert group.num_rows == len(rows)
        for place in range(group.num_columns):
            column = group.column(place)
            told = column.statistics
            if told is None or "." in column.path_in_schema.removeprefix("a.b"):
                continue
            values = rows.column(place)
            if told.has_null_count:
                assert told.null_count == values.null_count
            if told.has_min_max:
                least, most = pc.min_max(values).as_py().values()
                assert told.min <= least
                assert told.max >= most
    # What skips row groups by statistics finds what is there.
    for name in expected.schema.names:
        value = next(
            (v for v in expected.column(name).to_pylist() if isinstance(v, str | int)), None
        )
        if value is not None:
            found = (
                pl.scan_parquet(io.BytesIO(data)).filter(pl.col(name) == pl.lit(value)).collect()
            )
            assert len(found) == sum(v == value for v in expected.column(name).to_pylist())


@settings(FEW, max_examples=8)
@given(tables_of())
def test_datasets_and_duckdb_read_the_same(tables: list[pa.Table]) -> None:
    import datasets

    expected = pa.concat_tables(tables)
    assume(len(expected))  # `datasets` refuses a file without rows, whoever wrote it.
    with TemporaryDirectory() as folder:
        path = Path(folder, "rows.parquet")
        path.write_bytes(joined(tables, "snappy"))
        read = datasets.Dataset.from_parquet(str(path), cache_dir=folder, keep_in_memory=True)
        assert [read[i] for i in range(len(read))] == expected.to_pylist()
        if importlib.util.find_spec("duckdb") is not None:
            import duckdb

            rows = duckdb.sql(f"select * from read_parquet('{path}')").fetchall()
            assert rows == [tuple(row.values()) for row in expected.to_pylist()]
