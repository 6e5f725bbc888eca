import io

import polars as pl
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_tables import FEW, SCHEMA, rows_of

from fmtkit.writing import formats
from fmtkit.writing.formats import encode, find

METADATA = {"type": "chatml.intel"}
COMPRESSIONS = ("none", "zstd")
NARROW = pa.schema([SCHEMA.field(name) for name in ("prompt", "text", "label", "margin", "tools")])


def stitch(tables, format, compression, metadata=None):
    stitcher, out = formats.find(format).stitcher(), bytearray()
    for table in tables:
        for buffer in stitcher.add(encode(table, find(format), compression), len(out)):
            out += buffer
    return bytes(out + stitcher.end(metadata or {}))


@pytest.mark.parametrize("compression", COMPRESSIONS)
@FEW
@given(st.lists(rows_of(SCHEMA), min_size=1, max_size=4))
def test_parquet_reads_as_the_tables_one_after_the_other(compression, tables):
    file = stitch(tables, "parquet", compression, METADATA)
    read = pq.read_table(pa.BufferReader(file))
    read.validate(full=True)
    assert read.equals(pa.concat_tables(tables))
    assert read.schema.metadata == {b"type": b"chatml.intel"}
    assert read.schema.field("tools").metadata == {b"fmtkit:json": b"1"}


@pytest.mark.parametrize("compression", COMPRESSIONS)
@FEW
@given(st.lists(rows_of(SCHEMA), min_size=1, max_size=4))
def test_arrow_reads_as_the_tables_one_after_the_other(compression, tables):
    file = stitch(tables, "arrow", compression, METADATA)
    read = pa.ipc.open_file(pa.BufferReader(file)).read_all()
    read.validate(full=True)
    assert read.equals(pa.concat_tables(tables))
    assert read.schema.metadata == {b"type": b"chatml.intel"}
    assert read.schema.field("tools").metadata == {b"fmtkit:json": b"1"}


@FEW
@given(st.lists(rows_of(NARROW), min_size=1, max_size=4))
def test_polars_reads_the_same(tables):
    expected = pl.from_arrow(pa.concat_tables(tables))
    assert pl.read_parquet(io.BytesIO(stitch(tables, "parquet", "snappy"))).equals(expected)
    scan = pl.scan_parquet(io.BytesIO(stitch(tables, "parquet", "zstd")))
    assert scan.select(pl.len()).collect().item() == len(expected)
    assert pl.read_ipc(io.BytesIO(stitch(tables, "arrow", "none"))).equals(expected)


def test_one_table_gives_what_pyarrow_writes_itself():
    table = pa.table({"text": ["a", "b"]})
    out = pa.BufferOutputStream()
    with pa.ipc.new_file(out, table.schema) as writer:
        writer.write_table(table)
    mine = stitch([table], "arrow", "none")
    # The messages are equal; in the footer pyarrow puts the list of blocks elsewhere.
    assert mine[: mine.rindex(b"\xff\xff\xff\xff\0\0\0\0")] in out.getvalue().to_pybytes()


def test_json_lines_are_lines_after_lines():
    tables = [pa.table({"a": ["x"]}), pa.table({"a": pa.array([], pa.string())})] * 2
    assert stitch(tables, "jsonl", "none") == b'{"a":"x"}\n{"a":"x"}\n'


@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_another_schema_is_refused(format):
    with pytest.raises(ValueError, match="the schema of the rows differs"):
        stitch([pa.table({"a": ["x"]}), pa.table({"b": ["x"]})], format, "none")
