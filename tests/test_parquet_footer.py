import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fmtkit.writing.parquet_footer import MAGIC, JoinedFooter, split_file
from fmtkit.writing.thrift import read_struct


def parquet(table, **options):
    out = pa.BufferOutputStream()
    pq.write_table(table, out, **options)
    return out.getvalue()


def join(files, metadata=()):
    joined, out = JoinedFooter(), bytearray(MAGIC)
    for file in files:
        groups, footer = split_file(memoryview(file))
        joined.add(footer, len(out))
        out += groups
    return bytes(out + joined.tail(dict(metadata)))


def test_offsets_are_moved_to_where_the_bytes_lie():
    table = pa.table({"a": ["x", "y", "x"] * 50, "b": range(150)})
    file = parquet(table, row_group_size=60)
    joined = join([file, file])
    metadata = pq.read_metadata(pa.BufferReader(joined))
    whole = pq.read_metadata(pa.BufferReader(file))
    distance = len(split_file(memoryview(file))[0])
    assert metadata.num_row_groups == 6
    for group in range(3):
        for column in range(2):
            before = whole.row_group(group).column(column)
            first = metadata.row_group(group).column(column)
            second = metadata.row_group(group + 3).column(column)
            assert first.data_page_offset == before.data_page_offset
            assert second.data_page_offset == before.data_page_offset + distance
            assert second.dictionary_page_offset == before.dictionary_page_offset + distance
            assert second.statistics.max == before.statistics.max
    assert pq.read_table(pa.BufferReader(joined)).equals(pa.concat_tables([table, table]))


def test_row_groups_are_numbered_through():
    file = parquet(pa.table({"a": [1, 2]}), row_group_size=1)
    footer = read_struct(split_file(memoryview(join([file, file])))[1])
    groups = footer[4].value.values
    assert [group[7].value for group in groups] == [0, 1, 2, 3]
    assert footer[3].value == 4


def test_past_the_last_ordinal_the_field_is_left_out_and_the_file_still_reads(monkeypatch):
    monkeypatch.setattr("fmtkit.writing.parquet_footer._LAST_ORDINAL", 1)
    file = parquet(pa.table({"a": [1, 2]}), row_group_size=1)
    joined = join([file, file])
    groups = read_struct(split_file(memoryview(joined))[1])[4].value.values
    assert [7 in group for group in groups] == [True, True, False, False]
    assert pq.read_table(pa.BufferReader(joined))["a"].to_pylist() == [1, 2, 1, 2]


def test_page_indexes_are_moved_too():
    table = pa.table({"a": range(1000)})
    files = [parquet(table, write_page_index=True)] * 2
    read = pq.read_table(pa.BufferReader(join(files)), filters=[("a", "=", 500)])
    assert read["a"].to_pylist() == [500, 500]


def test_empty_tables_give_a_file_with_a_schema_and_no_row_group():
    empty = parquet(pa.table({"a": pa.array([], pa.string())}))
    metadata = pq.read_metadata(pa.BufferReader(join([empty, empty])))
    assert (metadata.num_rows, metadata.num_row_groups) == (0, 0)
    assert pq.read_table(pa.BufferReader(join([empty]))).schema == pa.schema([("a", pa.string())])


def test_metadata_is_seen_in_the_footer_and_in_the_arrow_schema():
    field = pa.field("a", pa.string(), metadata={"fmtkit:json": "1"})
    file = parquet(pa.table({"a": ["{}"]}, schema=pa.schema([field])))
    joined = join([file], {"type": "intel", "größe": "ß"})
    schema = pq.read_schema(pa.BufferReader(joined))
    assert schema.metadata == {b"type": b"intel", "größe".encode(): "ß".encode()}
    assert schema.field("a").metadata == {b"fmtkit:json": b"1"}
    assert pq.read_metadata(pa.BufferReader(joined)).metadata[b"type"] == b"intel"


def test_metadata_of_the_schema_is_kept_beside_what_is_added():
    schema = pa.schema([("a", pa.string())], metadata={"huggingface": "{}", "type": "old"})
    joined = join([parquet(pa.table({"a": ["x"]}, schema=schema))], {"type": "intel"})
    expected = {b"huggingface": b"{}", b"type": b"intel"}
    assert pq.read_schema(pa.BufferReader(joined)).metadata == expected


def test_another_schema_is_refused():
    text, number = parquet(pa.table({"a": ["x"]})), parquet(pa.table({"a": [1]}))
    with pytest.raises(ValueError, match="the schema of the rows differs"):
        join([text, number])


def test_a_file_of_nothing_is_refused():
    with pytest.raises(ValueError, match="needs a schema"):
        JoinedFooter().tail({})


def test_other_bytes_are_no_parquet_file():
    with pytest.raises(ValueError, match="not a Parquet file"):
        split_file(memoryview(b"PAR1 and more"))
