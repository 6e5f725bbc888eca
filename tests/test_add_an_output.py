"""The format of docs/add-an-output.md: a package adds it, and conversions write it."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import warm

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "add-an-output.md"
ROWS = [
    {"question": "Tea?", "chosen": 'Yes, "tea".\nHot.', "rejected": "No."},
    {"question": "Sea?", "chosen": "", "rejected": "No."},
    {"question": "Wörter?", "chosen": "😀", "rejected": "No."},
]
WANTED = [("Tea?", 'Yes, "tea".\nHot.'), ("Wörter?", "😀")]


def block(language: str) -> str:
    found = re.search(
        rf"^```{language}\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    assert found is not None
    return found[1]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the package of the page in `site`, and rows to convert."""
    package = tmp_path / "site" / "acme_outputs"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "array.py").write_text(block("python"), encoding="utf-8")
    metadata = tmp_path / "site" / "acme_outputs-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-outputs\nVersion: 1.0\n")
    points = block("toml").replace('[project.entry-points."fmtkit.outputs"]', "[fmtkit.outputs]")
    (metadata / "entry_points.txt").write_text(points.replace('"', ""))
    rows = "".join(f"{json.dumps(row)}\n" for row in ROWS)
    (tmp_path / "rows.jsonl").write_text(rows, encoding="utf-8")
    return tmp_path


def fmtkit(folder: Path, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(folder / "site")}
    done = warm.fmtkit(*arguments, cwd=folder, env=environment)
    assert done.returncode == code, done.stderr
    return done


def convert(folder: Path, *flags: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    return fmtkit(folder, "convert", "rows.jsonl", "--type", "intel", *flags, code=code)


def read(file: Path) -> list[tuple[str, str]]:
    rows = json.loads(file.read_text(encoding="utf-8"))
    return [(row["prompt"][0]["content"], row["chosen"][0]["content"]) for row in rows]


def test_a_file_by_its_suffix(folder: Path) -> None:
    convert(folder, "--method", "dpo", "-o", "out.json")
    assert read(folder / "out.json") == WANTED
    report = json.loads((folder / "out.report.json").read_text(encoding="utf-8"))
    assert (report["rows_read"], report["quarantined"]) == (3, 1)
    # fmtkit replaces what it wrote itself, of this format as of any.
    convert(folder, "--method", "dpo", "-o", "out.json", "--overwrite")
    assert read(folder / "out.json") == WANTED


def test_a_folder_of_shards_that_a_later_run_takes_for_done(folder: Path) -> None:
    flags = ("--method", "dpo", "-o", "out", "--format", "json")
    convert(folder, *flags)
    (shard,) = (folder / "out" / "data").iterdir()
    assert shard.suffix == ".json"
    assert read(shard) == WANTED
    convert(folder, *flags, "--resume")


def test_rows_of_many_blocks_are_one_array(folder: Path) -> None:
    rows = [{"question": f"{n}?" * 100, "chosen": "a" * 2000, "rejected": "b"} for n in range(9000)]
    text = "".join(f"{json.dumps(row)}\n" for row in rows)
    (folder / "rows.jsonl").write_text(text, encoding="utf-8")
    convert(folder, "--method", "dpo", "-o", "out.json")
    assert [question for question, _ in read(folder / "out.json")] == [r["question"] for r in rows]


def test_a_compression_that_it_does_not_take_is_refused(folder: Path) -> None:
    done = convert(folder, "-o", "out.json", "--compression", "zstd", "--method", "dpo", code=2)
    assert "--compression zstd: json takes none" in done.stderr


def test_another_suffix_names_it_among_those_that_there_are(folder: Path) -> None:
    done = convert(folder, "-o", "out.jsn", code=2)
    assert "only .parquet, .jsonl, .arrow, .json; did you mean out.json?" in done.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("raise RuntimeError('two\\nlines')\n", "cannot be used: RuntimeError: two lines ("),
        ("FORMAT = 'json'\n", "has no FORMAT in acme_outputs.array"),
        (block("python").replace('Format("json"', 'Format("jsn"'), "names its FORMAT 'jsn'"),
    ],
)
def test_a_broken_package_is_one_line_that_names_it(folder: Path, text: str, words: str) -> None:
    (folder / "site" / "acme_outputs" / "array.py").write_text(text)
    done = convert(folder, "--method", "dpo", "-o", "out.json", code=2)
    assert "format json: the package acme-outputs 1.0" in done.stderr
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    # What does not name it does not suffer.
    convert(folder, "--method", "dpo", "-o", "out.jsonl")
    fmtkit(folder, "--help")
