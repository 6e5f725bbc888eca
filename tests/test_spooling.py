"""What is kept in temporary files: a full disk is one line, and an error of the source stays one."""

import gzip
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from runs import INTEL, lines

PLUGIN = "def transform(cfg, **_):\n    return lambda row: {'prompt': row['question'] * 50}\n"
ROOM = 20_000


def fill(folder: Path) -> bytes:
    rows = [INTEL | {"question": f"{i}" * 20} for i in range(2000)]
    (folder / "a.jsonl").write_bytes(lines(rows))
    pq.write_table(pa.Table.from_pylist(rows), folder / "a.parquet", compression="none")
    (folder / "a.parquet.gz").write_bytes(gzip.compress((folder / "a.parquet").read_bytes()))
    (folder / "mine.py").write_text(PLUGIN)
    return lines(rows)


def run(folder: Path, arguments: list[str], text: bytes = b"") -> tuple[int, str]:
    """Run a command that may write files of 20 kB and not more."""
    done = subprocess.run(
        [sys.executable, "-m", "fmtkit", "convert", *arguments, "-o", "out.parquet", "-q"],
        cwd=folder,
        input=text,
        capture_output=True,
        check=False,
        env=os.environ | {"TMPDIR": str(folder)},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, ROOM)),
    )
    return done.returncode, done.stderr.decode()


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["-", "--type", "intel", "--keep", "all"], "what can be read only once"),
        (["a.parquet.gz", "--type", "intel"], "the text of a.parquet.gz"),
        (["a.jsonl", "--type", "mine.transform", "--plugin", "mine.py"], "the rows of a.jsonl after mine.transform"),
    ],
)  # fmt: skip
def test_a_temporary_file_without_room_is_one_line(tmp_path, arguments, what):
    code, said = run(tmp_path, arguments, fill(tmp_path))
    assert (code, said.count("\n")) == (3, 1)
    assert said.startswith(f"fmtkit: {what} does not fit into {tmp_path} (File too large)")
    assert {path.name for path in tmp_path.iterdir()} - {"__pycache__"} == {
        "a.jsonl",
        "a.parquet",
        "a.parquet.gz",
        "mine.py",
    }


def test_a_stream_that_is_cut_short_is_no_lack_of_room(tmp_path):
    packed = gzip.compress(
        b"".join(json.dumps({**INTEL, "i": i}).encode() + b"\n" for i in range(90))
    )
    code, said = run(tmp_path, ["-", "--type", "intel", "--keep", "all"], packed[:-30])
    assert (code, said.count("\n")) == (3, 1)
    assert "damaged or cut short" in said
