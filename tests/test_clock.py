"""A clock that jumps: no row, no file and no time limit depends on the time of day."""

import ast
import time
from itertools import count
from pathlib import Path

import pytest
from runs import INTEL, lines

import fmtkit
from fmtkit.core import storage

PACKAGE = Path(fmtkit.__file__).parent
OF_DAY = {"time", "time_ns", "localtime", "now", "utcnow", "today"}
NAMED = {
    "writing/outputs.py": "tells whether a file lay still long enough to remember its hash; else it is read again",
    "core/moments.py": "the date that templates write, which a run asks for once",
    "diffing/environments.py": "removes what was left a day ago of an environment that was never finished",
    "core/storage.py": "knows the type of the times that stores give as marks; asks for none",
}


@pytest.fixture
def jumping(monkeypatch):
    """Let the clock jump by a day to and fro each time that it is asked."""
    numbers, now, now_ns = count(), time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: now() + 86_400 * (-1) ** next(numbers))
    monkeypatch.setattr(time, "time_ns", lambda: now_ns() + 86_400 * 10**9 * (-1) ** next(numbers))


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(folder)): p.read_bytes()
        for p in folder.rglob("*")
        if p.is_file() and p.name != "report.json"
    }


def test_a_run_under_a_clock_that_jumps_makes_the_same_files(tmp_path, request):
    source = tmp_path / "a.jsonl"
    source.write_bytes(lines([INTEL | {"question": f"q{i}"} for i in range(500)]) + b"{bad\n")
    fmtkit.convert(source, "chatml.intel", tmp_path / "calm", val_size=0.1)
    request.getfixturevalue("jumping")
    fmtkit.convert(source, "chatml.intel", tmp_path / "out", val_size=0.1)
    fmtkit.convert(source, "chatml.intel", tmp_path / "out", val_size=0.1, overwrite=True)
    done = fmtkit.convert(source, "chatml.intel", tmp_path / "out", val_size=0.1, resume=True)
    assert contents(tmp_path / "calm") == contents(tmp_path / "out")
    assert 0 <= done.seconds < 600


def test_a_time_limit_ends_neither_early_nor_never(jumping, monkeypatch):
    monkeypatch.setenv(storage.SECONDS_VARIABLE, "0.3")
    assert storage.within(lambda: "answer") == "answer"
    begun = time.monotonic()
    with pytest.raises(OSError, match=r"0\.3"):
        storage.within(lambda: time.sleep(5))
    assert 0.2 < time.monotonic() - begun < 4


def test_what_reads_and_writes_rows_asks_for_no_time_of_day():
    found = set()
    for path in PACKAGE.rglob("*.py"):
        name = path.relative_to(PACKAGE).as_posix()
        if name.startswith(("training/", "inspection/", "commands/")):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Attribute)
                and node.attr in OF_DAY
                and isinstance(node.value, ast.Name)
                and node.value.id in ("time", "datetime", "date")
            ):
                found.add(name)
    assert found <= NAMED.keys()
