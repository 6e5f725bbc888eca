import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_tables import FEW, tables

from fmtkit.core.errors import OptionError
from fmtkit.writing import formats
from fmtkit.writing.formats import compression_of, encode, find

FORMATS = [(name, c) for name in formats.names() for c in formats.find(name).compressions]


def file_of(encoded):
    stitcher, out = formats.find(encoded.format).stitcher(), bytearray()
    for buffer in stitcher.add(encoded, 0):
        out += buffer
    return bytes(out + stitcher.end({}))


@pytest.mark.parametrize(("format", "compression"), FORMATS)
@FEW
@given(table=tables(), cut=st.integers(0, 6))
def test_equal_tables_give_equal_bytes_however_they_are_chunked(format, compression, table, cut):
    chunked = pa.concat_tables([table.slice(0, cut), table.slice(cut)])
    longer = pa.concat_tables([table, table]).combine_chunks()
    expected = encode(table, find(format), compression)
    for same in (chunked, longer.slice(len(table)), longer.slice(0, len(table))):
        assert encode(same, find(format), compression) == expected


@pytest.mark.parametrize("format", formats.names())
def test_what_lies_under_nulls_does_not_reach_the_bytes(format):
    def column(dtype, garbage):
        validity = pa.py_buffer(b"\x05")
        return pa.Array.from_buffers(dtype, 3, [validity, pa.py_buffer(garbage)])

    def table(number, bits):
        numbers = column(pa.int64(), np.array([1, number, 3], np.int64).tobytes())
        flags = column(pa.bool_(), bytes([bits]))
        structs = pa.StructArray.from_arrays([numbers, flags], ["n", "f"])
        return pa.table({"n": numbers, "f": flags, "s": structs})

    one, other = table(5, 0b00000101), table(6, 0b11110111)
    assert one.equals(other)
    first = compression_of(format)
    assert encode(one, find(format), first) == encode(other, find(format), first)


@pytest.mark.parametrize("format", formats.names())
def test_threads_give_the_same_bytes(format):
    parts = [pa.table({"text": [f"{i} {k}" * 50 for k in range(50)]}) for i in range(16)]
    first = compression_of(format)
    alone = [encode(part, find(format), first) for part in parts]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda part: encode(part, find(format), first), parts)) == alone


def test_a_big_table_becomes_several_row_groups(monkeypatch):
    monkeypatch.setattr("fmtkit.writing.formats.ROW_GROUP_BYTES", 10_000)
    table = pa.table({"text": ["x" * 996] * 35})
    metadata = pq.read_metadata(pa.BufferReader(file_of(encode(table, find("parquet"), "none"))))
    rows = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    assert rows == [9, 9, 9, 8]
    assert [message.size > 8000 for message in encode(table, find("arrow"), "none").payload] == [
        True
    ] * 4
    assert b"".join(encode(table, find("jsonl"), "none").payload).count(b"\n") == 35


def test_texts_are_plain_and_roles_and_numbers_are_dictionaries():
    messages = [[{"role": "user", "content": "hi"}]]
    table = pa.table({"prompt": messages, "ids": [[1, 2]], "text": ["x"]})
    metadata = pq.read_metadata(pa.BufferReader(file_of(encode(table, find("parquet"), "snappy"))))
    columns = [metadata.row_group(0).column(i) for i in range(metadata.num_columns)]
    compact = {c.path_in_schema: c.has_dictionary_page for c in columns}
    assert compact == {
        "prompt.list.element.content": False,
        "prompt.list.element.role": True,
        "ids.list.element": True,
        "text": False,
    }
    assert {c.path_in_schema for c in columns if c.is_stats_set} == {
        path for path, is_compact in compact.items() if is_compact
    }


def test_metadata_of_the_schema_is_left_out_and_that_of_fields_is_kept():
    field = pa.field("tools", pa.string(), metadata={"fmtkit:json": "1"})
    schema = pa.schema([field], metadata={"pandas": "{}"})
    table = pa.Table.from_pylist([{"tools": "{}"}], schema=schema)
    read = pq.read_schema(pa.BufferReader(file_of(encode(table, find("parquet"), "snappy"))))
    assert read.metadata is None
    assert read.field("tools").metadata == {b"fmtkit:json": b"1"}


def test_json_text_stays_text_in_json_lines():
    table = pa.table({"tools": ['{"a":1.0}']})
    line = encode(table, find("jsonl"), "none").payload[0].to_pybytes()
    assert json.loads(line) == {"tools": '{"a":1.0}'}


def test_a_format_that_there_is_not_is_refused():
    assert formats.find("jsonl").name == "jsonl"
    with pytest.raises(OptionError, match="--format csv: choose one of parquet, jsonl, arrow"):
        formats.find("csv")


def test_a_compression_that_the_format_has_not_is_refused():
    assert [compression_of(name) for name in formats.names()] == ["snappy", "none", "none"]
    assert compression_of("arrow", "zstd") == "zstd"
    with pytest.raises(OptionError, match="--compression zstd: jsonl takes none"):
        compression_of("jsonl", "zstd")


def test_a_misspelled_format_is_refused_with_the_near_one():
    with pytest.raises(OptionError, match="--format parket: did you mean 'parquet'\\? choose one"):
        formats.find("parket")
