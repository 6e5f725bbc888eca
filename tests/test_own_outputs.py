"""What fmtkit made of the files of a folder is no source of that folder, wherever in it the output is."""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
from runs import INTEL, fmtkit, lines

import fmtkit as package
from fmtkit.core.errors import SourceError, UnreadFilesWarning


@pytest.fixture
def run(capsys: Any, tmp_path: Path, monkeypatch: Any) -> Any:
    """Run commands in a folder of the test, over three files of one row in the folder `rows`."""
    monkeypatch.chdir(tmp_path)
    Path("rows").mkdir()
    for name in "abc":
        Path("rows", f"{name}.jsonl").write_bytes(lines([INTEL | {"question": name}]))
    return lambda *arguments: fmtkit(capsys, *arguments)


@pytest.mark.parametrize("out", ["rows/out/", "rows/out.jsonl", "rows/deep/er/out.parquet"])
def test_an_output_within_its_source_is_left_out_by_the_next_run(out, run):
    convert = ("convert", "rows", "-t", "intel", "-o", out)
    Path(out).parent.mkdir(parents=True, exist_ok=True)
    assert run(*convert).code == 0
    again = run(*convert)
    assert "note: rows: " in again.err
    assert "which fmtkit made of its files, is not read" in again.err
    assert (again.code, "exists already" in again.err) == (2, True)
    for flag in ("--overwrite", "--resume"):
        done = run(*convert, flag, "--json")
        assert (done.code, json.loads(done.out)["rows_read"]) == (0, 3)


def test_other_outputs_of_a_folder_are_left_out_too_and_read_where_they_are_named(run, monkeypatch):
    run("convert", "rows", "-t", "intel", "-o", "rows/one/")
    run("convert", "rows", "-t", "intel", "-o", "rows/two.jsonl")
    with pytest.warns(UnreadFilesWarning, match=r"one/data/.*, two.jsonl, .* are not read"):
        assert package.validate("rows", "intel").ledger.rows_read == 3
    with pytest.warns(UnreadFilesWarning):
        assert package.inspect("rows").best_guess == "intel"
    assert package.table("rows/two.jsonl", "passthrough").num_rows == 3
    assert package.table("rows/one", "passthrough").num_rows == 3
    monkeypatch.chdir("rows")
    with pytest.warns(UnreadFilesWarning, match=r"^\.: one/data/"):
        assert package.table(".", "intel").num_rows == 3


def test_outputs_of_sources_elsewhere_are_data_of_their_folder(run):
    Path("made").mkdir()
    for name in "ab":
        run("convert", f"rows/{name}.jsonl", "-t", "intel", "-o", f"made/{name}.jsonl")
    with warnings.catch_warnings(action="error"):
        assert package.table("made", "passthrough").num_rows == 2
    # Their names alone say nothing, once the sources are gone.
    for name in "abc":
        Path("rows", f"{name}.jsonl").unlink()
    with warnings.catch_warnings(action="error"):
        assert package.table("made", "passthrough").num_rows == 2


def test_outputs_are_read_where_their_sources_are_gone(run):
    run("convert", "rows", "-t", "intel", "-o", "rows/out.jsonl")
    for name in "abc":
        Path("rows", f"{name}.jsonl").unlink()
    with warnings.catch_warnings(action="error"):
        assert package.table("rows", "passthrough").num_rows == 3


def test_a_report_that_cannot_be_read_is_one_line(run, monkeypatch):
    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    Path("rows/a.report.json").write_text("{}")
    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(SourceError, match=r"a.report.json cannot be read: Permission denied"):
        package.table("rows", "intel")
