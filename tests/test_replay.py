"""fmtkit replay: the output is what it would have been had the rows been right at first."""

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import fmtkit
from fmtkit.commands.application import application

RIGHT = [{"question": f"q{n}", "chosen": "good é", "rejected": "bad"} for n in range(60)]
FIX = (
    "def mend(row):\n"
    "    if isinstance(row, str):\n"
    "        return row + '}'\n"
    "    return {('chosen' if k == 'choosen' else k): v for k, v in row.items()}\n"
)


def line(row: Any) -> bytes:
    return json.dumps(row, ensure_ascii=False).encode() + b"\n"


def wrong_lines() -> list[bytes]:
    lines = [line(row) for row in RIGHT]
    lines[7] = lines[7].replace(b"chosen", b"choosen", 1)
    lines[20] = lines[20][:-2] + b"\n"
    return lines


def write(path: Path, lines: list[bytes]) -> Path:
    data = b"".join(lines)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def run(*arguments: Any) -> Any:
    return CliRunner().invoke(application(), [str(a) for a in arguments])


def rows_of(out: Path) -> dict[str, bytes]:
    files = sorted(out.rglob("*.parquet")) if out.is_dir() else [out]
    return {file.name: file.read_bytes() for file in files}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("fix.py").write_text(FIX)
    return tmp_path


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.jsonl.gz"])
@pytest.mark.parametrize(
    ("out", "flags"),
    [
        ("out.parquet", []),
        ("out", ["--val-size", "0.2", "--seed", "3"]),
        (
            "out.jsonl",
            ["--to", "sharegpt-preference", "--keep", "question", "--allow-loss", "question"],
        ),
    ],
)
def test_the_same_file_as_if_the_rows_had_been_right(name: str, out: str, flags: list[str]) -> None:
    source, kind = write(Path(name), wrong_lines()), "intel"
    done = run("convert", source, "-t", kind, "-o", out, *flags, "-q")
    assert done.exit_code == 0, done.output
    quarantine = Path(out, "quarantine.jsonl") if out == "out" else Path("out.quarantine.jsonl")
    done = run("replay", quarantine, "--fix", "fix.mend", "-q")
    assert done.exit_code == 0, done.output
    assert not quarantine.exists()
    found = rows_of(Path(out))
    shutil.rmtree(out) if out == "out" else Path(out).unlink()
    for report in Path().glob("out.report.json"):
        report.unlink()
    write(source, [line(row) for row in RIGHT])
    assert run("convert", source, "-t", kind, "-o", out, *flags, "-q").exit_code == 0
    right = rows_of(Path(out))
    assert found.keys() == right.keys()
    if not name.endswith(".gz") or out == "out.jsonl":
        assert found == right


def test_rows_edited_by_hand_one_after_the_other() -> None:
    source = write(Path("rows.jsonl"), wrong_lines())
    run("convert", source, "-t", "intel", "-o", "out.parquet", "-q")
    quarantine = Path("out.quarantine.jsonl")
    first, second = quarantine.read_text().splitlines(keepends=True)
    quarantine.write_text(first.replace("choosen", "chosen") + second)
    done = run("replay", quarantine)
    assert done.exit_code == 1
    assert "1 row is still bad" in done.output
    left = json.loads(quarantine.read_text())
    assert (left["line"], left["code"]) == (21, "json_syntax")
    left["raw"] += "}"
    quarantine.write_text(json.dumps(left) + "\n")
    assert run("replay", quarantine).exit_code == 0
    found = rows_of(Path("out.parquet"))
    write(source, [line(row) for row in RIGHT])
    run("convert", source, "-t", "intel", "-o", "out.parquet", "--overwrite", "-q")
    assert rows_of(Path("out.parquet")) == found


def test_a_source_of_several_ranges_is_what_the_run_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fmtkit.sources.raw.RANGE_BYTES", 1000)
    source = write(Path("rows.jsonl"), wrong_lines())
    run("convert", source, "-t", "intel", "-o", "out.jsonl", "-q")
    (read,) = json.loads(Path("out.report.json").read_text())["sources"]
    assert "-" in read["sha256"]
    done = run("replay", "out.quarantine.jsonl", "--fix", "fix.mend")
    assert done.exit_code == 0, done.output
    assert len(Path("out.jsonl").read_bytes().splitlines()) == len(RIGHT)


def test_a_row_that_was_cut_in_the_quarantine_is_read_again() -> None:
    long = {"question": "q" * (3 << 20), "choosen": "a", "rejected": "b"}
    source = write(Path("rows.jsonl"), [line(RIGHT[0]), line(long)])
    run("convert", source, "-t", "intel", "-o", "out.jsonl", "-q")
    assert json.loads(Path("out.quarantine.jsonl").read_text())["raw_bytes"] > 3 << 20
    done = run("replay", "out.quarantine.jsonl", "--fix", "fix.mend")
    assert done.exit_code == 0, done.output
    assert len(Path("out.jsonl").read_bytes()) > 3 << 20


def test_what_cannot_be_replayed_is_one_line_and_changes_nothing() -> None:
    source = write(Path("rows.jsonl"), wrong_lines())
    run("convert", source, "-t", "intel", "-o", "out.parquet", "-q")
    before = rows_of(Path("out.parquet"))

    def refused(code: int, words: str, *arguments: Any) -> None:
        done = run("replay", *arguments)
        text = str(done.exception or "") + done.output
        assert words in text
        assert getattr(done.exception, "exit_code", done.exit_code) == code
        assert rows_of(Path("out.parquet")) == before

    quarantine = Path("out.quarantine.jsonl")
    refused(3, "no such file", "nothing.quarantine.jsonl")
    refused(2, "is not a quarantine file", "fix.py")
    refused(2, "no file nofile.py", quarantine, "--fix", "nofile.mend")
    refused(2, "has no function 'mnd'", quarantine, "--fix", "fix.mnd")
    Path("bad.py").write_text("def mend(row):\n    return row['nothing']\n")
    refused(2, "KeyError: 'nothing' (bad.py:2)", quarantine, "--fix", "bad.mend")
    kept = quarantine.read_bytes()
    quarantine.write_bytes(kept + b"no JSON\n")
    refused(2, "out.quarantine.jsonl:3: not a line of a quarantine file", quarantine)
    quarantine.write_bytes(kept)
    write(source, [line(row) for row in RIGHT])
    refused(2, "rows.jsonl was changed since the run read it", quarantine, "--fix", "fix.mend")
    source.unlink()
    refused(3, "no longer there", quarantine, "--fix", "fix.mend")


def test_a_plugin_that_the_run_did_not_have_is_named() -> None:
    write(Path("s.jsonl"), wrong_lines())
    fmtkit.convert("s.jsonl", "intel", "out.jsonl")
    Path("new.py").write_text("x = 1")
    done = run("replay", "out.quarantine.jsonl", "--plugin", "new.py")
    assert "did not use new.py; replay it with the plugins that it had" in str(done.exception)


def test_a_plugin_of_the_run_must_be_given_again() -> None:
    Path("mine.py").write_text(
        "from fmtkit.columns import Text\nfrom fmtkit.columns.conversations import pair\n"
        "from fmtkit.formats.registry import converter\nfrom fmtkit.core.tables import Preference\n\n\n"
        "@converter()\ndef rows(question: Text, chosen: Text, rejected: Text) -> Preference:\n"
        "    return pair(question, chosen, rejected)\n"
    )
    source = write(Path("rows.jsonl"), wrong_lines())
    fmtkit.convert(source, "mine", "out.jsonl", plugins=["mine.py"])
    done = run("replay", "out.quarantine.jsonl", "--fix", "fix.mend")
    assert "--plugin mine.py: give it to replay too" in str(done.exception)
    done = run("replay", "out.quarantine.jsonl", "--fix", "fix.mend", "--plugin", "mine.py")
    assert done.exit_code == 0, done.output
