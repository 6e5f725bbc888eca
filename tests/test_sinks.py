import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fmtkit.core.errors import OptionError, OutputExistsError, WriteError
from fmtkit.writing import formats
from fmtkit.writing.formats import encode, find
from fmtkit.writing.sinks import Closing, FileSink, RunState

SCRIPT = Path(__file__).with_name("killed_runs.py")
TABLE = pa.table({"text": ["a", "b"]})
ROWS = encode(TABLE, find("parquet"), "snappy")


def closing(**values):
    return Closing(
        report=lambda files: {"fmtkit": "0", "rows": sum(file.rows for file in files)}, **values
    )


def write(path, *, bad=b"{}\n", **options):
    sink = FileSink(path, "parquet", **options)
    sink.write(ROWS)
    sink.quarantine(bad)
    sink.finish(closing())


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("format", formats.names())
def test_a_file_its_quarantine_and_its_report_appear_at_the_end(tmp_path, format):
    path = tmp_path / "new" / f"out.v1.{format}"
    sink = FileSink(path, format)
    for number in range(3):
        sink.write(encode(TABLE, find(format), find(format).compressions[0]))
        sink.quarantine(b"{}\n")
        sink.end_block(RunState((0, number + 1), dict, dict))
    assert all(name.startswith(".") for name in names(path.parent))
    (written,) = sink.finish(closing())
    assert names(path.parent) == [
        f"out.v1.{format}",
        "out.v1.quarantine.jsonl",
        "out.v1.report.json",
    ]
    assert (written.path, written.rows, written.bytes) == (path, 6, path.stat().st_size)
    report = json.loads((path.parent / "out.v1.report.json").read_text())
    assert report == sink.report
    assert (report["rows"], report["output"]) == (6, path.name)
    for file in report["files"]:
        data = (path.parent / file["path"]).read_bytes()
        assert file["bytes"] == len(data)
        assert file["sha256"] == hashlib.sha256(data).hexdigest()
    assert [file["path"] for file in report["files"]] == [path.name, "out.v1.quarantine.jsonl"]


def test_metadata_comes_at_the_end(tmp_path):
    sink = FileSink(tmp_path / "out.parquet", "parquet")
    sink.write(ROWS)
    sink.finish(closing(metadata={"type": "intel"}))
    assert pq.read_schema(tmp_path / "out.parquet").metadata == {b"type": b"intel"}


@pytest.mark.parametrize("end", ["abort", "suspend"])
def test_an_unfinished_file_leaves_nothing(tmp_path, end):
    sink = FileSink(tmp_path / "out.parquet", "parquet")
    sink.write(ROWS)
    sink.quarantine(b"{}\n")
    getattr(sink, end)()
    assert names(tmp_path) == []


def test_a_failure_while_finishing_leaves_no_output(tmp_path):
    sink = FileSink(tmp_path / "out.parquet", "parquet")
    sink.write(ROWS)
    with pytest.raises(TypeError):
        sink.finish(Closing(report=lambda files: {"no JSON": files}))
    sink.abort()
    assert names(tmp_path) == []


def test_a_rejected_run_keeps_quarantine_and_report_only(tmp_path):
    sink = FileSink(tmp_path / "out.parquet", "parquet", overwrite=True)
    sink.write(ROWS)
    sink.quarantine(b"{}\n")
    sink.reject({"fmtkit": "0"})
    assert names(tmp_path) == ["out.quarantine.jsonl", "out.report.json"]
    assert sink.report_path == tmp_path / "out.report.json"


def test_an_output_that_exists_is_refused_before_anything_is_written(tmp_path):
    path = tmp_path / "out.parquet"
    write(path, bad=b"")
    with pytest.raises(
        OutputExistsError, match=r"out.parquet exists already; --overwrite replaces"
    ):
        FileSink(path, "parquet")
    assert names(tmp_path) == ["out.parquet", "out.report.json"]
    with pytest.raises(OutputExistsError, match="is a folder"):
        FileSink(tmp_path, "parquet", overwrite=True)


def test_an_overwritten_file_is_whole_until_the_new_one_is(tmp_path):
    path = tmp_path / "out.parquet"
    write(path, bad=b"old")
    before = contents(tmp_path)
    sink = FileSink(path, "parquet", overwrite=True)
    sink.write(ROWS)
    sink.write(ROWS)
    assert contents(tmp_path).items() >= before.items()
    sink.finish(closing())
    assert pq.read_table(path).num_rows == 4
    assert names(tmp_path) == ["out.parquet", "out.report.json"]


@pytest.mark.slow
@pytest.mark.parametrize("before", ["nothing", "rows", "rows and bad"])
@pytest.mark.parametrize(
    ("kind", "step", "again"), [("file", 1, 0), ("file", 3, 9), ("reject", 1, 0)]
)
def test_killed_at_any_event_a_report_is_true_and_the_next_run_ends_well(
    tmp_path, kind, step, again, before
):
    arguments = [tmp_path, str(step), str(again), kind, before]
    run = subprocess.run(
        [sys.executable, SCRIPT, *arguments], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) > 12


def test_of_two_runs_at_once_the_later_comes_to_its_end(tmp_path):
    path = tmp_path / "out.parquet"
    first = FileSink(path, "parquet")
    second = FileSink(path, "parquet")
    second.quarantine(b"second\n")
    with pytest.raises(WriteError, match="being written by another run"):
        first.quarantine(b"first\n")
    first.abort()
    second.write(ROWS)
    second.finish(closing())
    assert contents(tmp_path)["out.quarantine.jsonl"] == b"second\n"


def test_a_file_holds_one_split(tmp_path):
    sink = FileSink(tmp_path / "out.parquet", "parquet")
    with pytest.raises(OptionError, match="give a folder as OUT"):
        sink.write(ROWS, "validation")


def test_rows_of_another_schema_are_refused(tmp_path):
    sink = FileSink(tmp_path / "out.parquet", "parquet")
    sink.write(ROWS)
    with pytest.raises(WriteError, match="the schema of the rows differs"):
        sink.write(encode(pa.table({"other": [1]}), find("parquet"), "snappy"))


def test_a_file_of_empty_tables_has_their_schema(tmp_path):
    sink = FileSink(tmp_path / "out.parquet", "parquet")
    sink.write(encode(TABLE.slice(0, 0), find("parquet"), "snappy"))
    sink.finish(closing())
    assert pq.read_table(tmp_path / "out.parquet").equals(TABLE.slice(0, 0))


def test_a_folder_that_cannot_be_made_is_one_clear_line(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(WriteError, match="a part of this path is a file"):
        FileSink(tmp_path / "file" / "out.parquet", "parquet")
