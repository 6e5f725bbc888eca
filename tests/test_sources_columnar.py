"""Parquet, Arrow and objects: the same rows, in slices bounded by bytes."""

import gzip
import hashlib
import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmtkit.core.errors import OptionError, SourceError
from fmtkit.sources.blocks import COLUMNS_BYTES, ArrowBlock, JsonBlock
from fmtkit.sources.columnar import cut_tables, decoded
from fmtkit.sources.opening import open_sources
from fmtkit.sources.source import Source

ROWS = 30_000
TABLE = pa.table(
    {
        "n": range(ROWS),
        "text": [f"{n} " + "x" * (n % 1000) for n in range(ROWS)],
        "kind": pa.array(["yes", "no"] * (ROWS // 2)).dictionary_encode(),
        "turns": [[{"role": "user", "content": str(n)}] for n in range(ROWS)],
    }
)
PLAIN = TABLE.set_column(2, "kind", TABLE["kind"].cast(pa.string()))


def write_parquet(path: Path) -> None:
    pq.write_table(TABLE, path, row_group_size=ROWS)


def write_arrow(path: Path) -> None:
    with pa.ipc.new_file(str(path), TABLE.schema) as writer:
        writer.write_table(TABLE)


def write_stream(path: Path) -> None:
    with pa.ipc.new_stream(str(path), TABLE.schema) as writer:
        writer.write_table(TABLE, max_chunksize=1000)


def write_packed(path: Path) -> None:
    sink = io.BytesIO()
    pq.write_table(TABLE, sink)
    path.write_bytes(gzip.compress(sink.getvalue()))


def tables(source: Source, **options: Any) -> list[pa.Table]:
    blocks = list(source.blocks(**options))
    assert all(isinstance(block, ArrowBlock) for block in blocks)
    return [block.batch for block in blocks if isinstance(block, ArrowBlock)]


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("a.parquet", write_parquet),
        ("a.arrow", write_arrow),
        ("stream.arrow", write_stream),
        ("a.parquet.gz", write_packed),
        ("parquet_by_content.jsonl", write_parquet),
    ],
)
def test_columnar_files_give_their_rows_in_bounded_slices(
    tmp_path: Path, name: str, write: Callable[[Path], None]
) -> None:
    write(tmp_path / name)
    (source,) = open_sources(tmp_path / name)
    found = tables(source)
    assert len(found) > 1
    assert max(table.nbytes for table in found) <= COLUMNS_BYTES
    assert pa.concat_tables(found).equals(PLAIN)
    assert source.kind == "arrow"
    assert source.schema is not None
    assert source.schema.equals(PLAIN.schema)
    assert source.sha256() == hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()
    assert [t.num_rows for t in tables(source, start=1)] == [t.num_rows for t in found[1:]]
    chosen = tables(source, columns=["kind", "n", "absent"])
    assert pa.concat_tables(chosen).equals(PLAIN.select(["n", "kind"]))


def test_a_row_group_far_larger_than_its_file_is_read_in_slices(tmp_path: Path) -> None:
    table = pa.table({"system": ["You are helpful. " * 100] * 50_000})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=50_000)
    found = tables(open_sources(tmp_path / "a.parquet")[0])
    assert max(part.nbytes for part in found) <= COLUMNS_BYTES
    assert sum(part.num_rows for part in found) == 50_000


@given(
    st.lists(st.lists(st.integers(0, 200), max_size=6), max_size=6),
    st.integers(1, 300),
)
def test_slices_depend_on_bytes_and_keep_every_row(lengths: list[list[int]], limit: int) -> None:
    batches = [pa.RecordBatch.from_pydict({"a": ["x" * n for n in part]}) for part in lengths]
    batches = [batch.cast(pa.schema([("a", pa.string())])) for batch in batches]
    found = list(cut_tables(batches, limit))
    texts = [text for table in found for text in table["a"].to_pylist()]
    assert texts == ["x" * n for part in lengths for n in part]
    assert all(table.num_rows for table in found)
    assert all(table.nbytes <= limit or table.num_rows == 1 for table in found)


@pytest.mark.parametrize("compression", ["uncompressed", "zstd"])
def test_what_polars_writes_is_read(tmp_path: Path, compression: Any) -> None:
    kinds = pl.Series(["k", None] * 2000, dtype=pl.Categorical)
    frame = pl.DataFrame({"a": [f"long enough for a view {n}" for n in range(4000)], "k": kinds})
    frame.write_ipc(tmp_path / "a.arrow", compression=compression)
    (found,) = tables(open_sources(tmp_path / "a.arrow")[0])
    assert found.to_pydict() == frame.to_dict(as_series=False)
    assert found.schema.types == [pa.large_string(), pa.large_string()]


def test_nested_dictionaries_are_decoded() -> None:
    words = pa.array(["a", "b", "a"]).dictionary_encode()
    nested = pa.StructArray.from_arrays([words], ["x"])
    listed = pa.ListArray.from_arrays([0, 2, 2, 3], nested)
    (plain,) = decoded(pa.RecordBatch.from_arrays([listed], ["l"])).columns
    assert plain.type == pa.list_(pa.struct([("x", pa.string())]))
    assert plain.to_pylist() == [[{"x": "a"}, {"x": "b"}], [], [{"x": "a"}]]


@pytest.mark.parametrize("write", [write_parquet, write_arrow, write_stream])
def test_a_file_that_is_cut_short_is_an_error(tmp_path: Path, write: Any) -> None:
    path = tmp_path / "a.bin"
    write(path)
    path.write_bytes(path.read_bytes()[:-5000])
    with pytest.raises(SourceError, match=r"a\.bin cannot be read"):
        list(open_sources(path)[0].blocks())


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
@pytest.mark.parametrize("data", [b"", b"not what the name says"])
def test_a_name_that_lies_is_an_error(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(SourceError, match=name):
        open_sources(tmp_path / name)


def test_parquet_on_stdin_is_read(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet")
    code = (
        "from fmtkit.sources.opening import open_sources\n"
        "(source,) = open_sources('-')\n"
        "rows = sum(block.batch.num_rows for block in source.blocks())\n"
        "print(source.schema.names, rows, source.sha256())"
    )
    data = (tmp_path / "a.parquet").read_bytes()
    done = subprocess.run([sys.executable, "-c", code], input=data, capture_output=True, check=True)
    expected = f"{TABLE.schema.names} {ROWS} {hashlib.sha256(data).hexdigest()}\n"
    assert done.stdout.decode() == expected


def test_tables_and_frames_in_memory_are_sources() -> None:
    frame = pl.DataFrame(PLAIN)
    for value in (PLAIN, frame, frame.lazy(), PLAIN.to_reader(1000)):
        (source,) = open_sources(value)
        assert (source.name, source.kind) == ("<memory>", "arrow")
        first = source.first_block()
        found = tables(source)
        assert isinstance(first, ArrowBlock)
        assert found[0].equals(first.batch)
        assert max(table.nbytes for table in found) <= COLUMNS_BYTES
        assert pl.concat([pl.DataFrame(table) for table in found]).equals(frame)


def test_a_table_in_memory_has_the_hash_of_its_rows() -> None:
    assert open_sources(PLAIN)[0].sha256() == open_sources(PLAIN)[0].sha256()
    assert open_sources(PLAIN)[0].sha256() != open_sources(PLAIN.slice(1))[0].sha256()


def test_datasets_are_sources() -> None:
    datasets = pytest.importorskip("datasets")
    dataset = datasets.Dataset.from_list([{"a": n} for n in range(5000)])
    for value in (
        dataset.select(range(4999, -1, -1)),
        datasets.DatasetDict({"train": dataset.select(range(4999, -1, -1)), "test": dataset}),
        dataset.to_iterable_dataset().skip(0).map(lambda row: {"a": 4999 - row["a"]}),
    ):
        (source,) = open_sources(value)
        assert source.kind == "arrow"
        found = pa.concat_tables(tables(source))
        assert found["a"].to_pylist() == list(range(4999, -1, -1))
    with pytest.raises(OptionError, match="a, b"):
        open_sources(datasets.DatasetDict({"a": dataset, "b": dataset}))
    (chosen,) = open_sources(datasets.DatasetDict({"a": dataset, "b": dataset}), split="b")
    assert chosen.schema is not None


def test_json_columns_of_datasets_are_text_that_is_marked_as_json() -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"a": datasets.Json()})
    rows = [{"a": {"x": 1}}, {"a": "s"}]
    (table,) = tables(open_sources(datasets.Dataset.from_list(rows, features=features))[0])
    assert table["a"].to_pylist() == ['{"x":1}', '"s"']
    assert table.schema.field("a").metadata == {b"ARROW:extension:name": b"arrow.json"}


def test_dicts_in_memory_are_read_as_lines_of_json() -> None:
    rows = [{"a": 1.0, "b": "é"}, {"a": "\ud800"}, {"a": b"bytes"}, 5, {"a": float("nan")}]
    for value in (rows[:3], iter(rows)):
        (source,) = open_sources(value)
        (block,) = source.blocks()
        assert isinstance(block, JsonBlock)
        lines = block.data.decode().splitlines()
        assert lines[:2] == ['{"a": 1.0, "b": "é"}', '{"a": "\\ud800"}']
        assert block.first_line == 0
        (reject,) = block.rejects
        assert (reject.row, reject.line, reject.code) == (2, None, "type_error")
        assert source.sha256() == hashlib.sha256(block.data).hexdigest()
    assert lines[2:] == ["5", '{"a": NaN}']


@pytest.mark.parametrize("value", [5, b"bytes", {"a": [1]}, None])
def test_what_holds_no_rows_is_an_error(value: object) -> None:
    with pytest.raises(SourceError, match=type(value).__name__):
        open_sources(value)
