"""Damaged text of any kind is read to its end: every line is a row, a bad row or blank."""

import base64
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
from runs import convert_file, line

from fmtkit.running.ledger import TERMS
from fmtkit.sources.kinds import layout_of

TYPES = {
    "chatml.intel": {
        "question": "What is 2 + 2?",
        "chosen": "4 \u2028",
        "rejected": "5",
        "system": 'Be "brief".',
    },
    "ultra": {
        "prompt": "q",
        "chosen": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "ä\\n"}],
        "rejected": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "[{b}]"}],
    },
    "openai": {
        "messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"a": 1.0}}}],
    },
    "stepwise_supervised": {"prompt": "p", "completions": ["a", "b"], "labels": [True, 0]},
}
BITS = [
    *(
        b'"',
        b"\\",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"\x00",
        b"\xff",
        b"\xc3",
        b"\xed\xa0\x80",
        b" ",
    ),
    *(
        b"\n",
        b"\r",
        b"\r\n",
        b"\xef\xbb\xbf",
        b"null",
        b"NaN",
        b"1e400",
        b"\\ud800",
        b"\\u0000",
        b"-",
    ),
    *(b"[" * 120, b'{"a":' * 120, b"9" * 400, b'"role":"user",', b"\xe2\x80\xa8", b"\x1c", b"\x0b"),
]


def damaged(data: bytes, draw: random.Random) -> bytes:
    """Change a text in a few places: bytes replaced, added, dropped, moved, cut off."""
    for _ in range(draw.randint(1, 12)):
        at = draw.randrange(len(data) + 1)
        how = draw.randrange(5)
        if how == 0:
            data = data[:at] + draw.choice(BITS) + data[at + draw.randint(0, 3) :]
        elif how == 1:
            data = data[:at] + draw.choice(BITS) + data[at:]
        elif how == 2:
            data = data[:at] + data[at + draw.randint(1, 30) :]
        elif how == 3:
            start = draw.randrange(len(data) + 1)
            data = data[:at] + data[start : start + draw.randint(1, 60)] + data[at:]
        else:
            data = data[:at] + bytes([draw.randrange(256)]) + data[at + 1 :]
    return data


def expected_records(data: bytes) -> int:
    """Count the lines that are not blank, the byte order mark apart."""
    text = data.removeprefix(b"\xef\xbb\xbf")
    return sum(bool(row.strip(b" \t\r")) for row in text.split(b"\n"))


def check(folder: Path, kind: str, data: bytes) -> None:
    (folder / "source.jsonl").write_bytes(data)
    outcome = convert_file(str(folder / "source.jsonl"), folder / "out.parquet", kind)
    if not outcome.report:
        # Nothing of the columns is left, or it is no JSON at all: said before anything is read.
        assert outcome.error is not None
        assert outcome.error.exit_code in (2, 3)
        return
    report = outcome.report
    assert report["rows_read"] == sum(report[term] for term in TERMS)
    if layout_of("source.jsonl", data) != "lines":
        # The first line was cut in two, or a bracket put before it: records are no lines.
        return
    assert report["rows_read"] == expected_records(data)
    assert report["quarantined"] == len(outcome.quarantine)
    assert report["rows_written"] == len(outcome.rows)
    assert report["rows_read"] == report["converted"] + report["quarantined"]
    rows = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    for bad in outcome.quarantine:
        raw = bad["raw"].encode() if "raw" in bad else base64.b64decode(bad["raw_base64"])
        assert raw == rows[bad["line"] - 1].removesuffix(b"\r")


def run(folder: Path, seed: int, rounds: int) -> None:
    """Check damaged texts of every type; one seed gives one sequence of them."""
    draw = random.Random(seed)
    for _ in range(rounds):
        for kind, row in TYPES.items():
            data = b"\n".join(line(row) for _ in range(draw.randint(1, 8))) + b"\n"
            data = damaged(data, draw)
            try:
                check(folder, kind, data)
            except BaseException:
                (folder / "failing.jsonl").write_bytes(data)
                print(f"seed {seed}, type {kind}: {data!r}", file=sys.stderr)
                raise


@pytest.mark.parametrize("seed", range(2))
def test_damaged_lines_lose_no_row(tmp_path, seed):
    run(tmp_path, seed, 12)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 104))
def test_many_damaged_lines_neither_crash_nor_hang(tmp_path, seed):
    # A process of its own, so that a crash of a parser in C is a failure of this test.
    command = [sys.executable, __file__, str(tmp_path), str(seed), "250"]
    done = subprocess.run(command, check=False, timeout=600, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("seed", range(3))
def test_bytes_that_are_nothing_end_in_an_error_or_in_the_quarantine(tmp_path, seed):
    draw = random.Random(seed)
    for size in (1, 10, 1000):
        check(tmp_path, "chatml.intel", b"{" + draw.randbytes(size))
        check(tmp_path, "chatml.intel", json.dumps(TYPES["ultra"]).encode()[:size])


if __name__ == "__main__":
    run(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
