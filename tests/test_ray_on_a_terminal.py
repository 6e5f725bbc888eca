"""--engine ray as its users run it: the bar, and Ctrl-C while workers write."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
from runs import INTEL
from test_ray import contents

from fmtkit.running.progress_bar import Tasks
from fmtkit.sources.parts import PART_BYTES
from fmtkit.work.engines import Standing

if "CI" not in os.environ:  # there it is an error that it is missing
    pytest.importorskip("ray")

CONVERT = [sys.executable, "-m", "fmtkit", "convert", "--type", "chatml.intel"]


def test_the_bar_says_of_tasks_what_is_known():
    now = Standing()
    assert str(Tasks(now)) == ""
    now.is_starting = True
    assert str(Tasks(now)) == ", starting Ray"
    now.begin(iter([1, 2, 3]))
    now.done, now.lost, now.dashboard = 1, 2, "127.0.0.1:8265"
    shown = ", 1 of 3 tasks, [yellow]2 tasks run again[/], http://127.0.0.1:8265"
    assert str(Tasks(now)) == shown
    now.begin(iter(range(0)))
    now.begin(number for number in range(3))
    assert str(Tasks(now)).startswith(", [yellow]2 tasks")


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    """Make a file of three tasks."""
    path = tmp_path_factory.mktemp("source") / "rows.jsonl"
    count = 2 * PART_BYTES // 20_000 + 3000
    with path.open("w") as file:
        for number in range(count):
            row = INTEL | {"question": f"q{number}", "chosen": f"{number} " + "words " * 3300}
            file.write(json.dumps(row) + "\n")
            if number % 1000 == 500:
                file.write("{bad\n")
    return path


class Terminal:
    """A command whose stderr is a terminal, at the head of a process group of its own."""

    def __init__(self, *arguments: object) -> None:
        self.seen = b""
        mine, other = pty.openpty()
        self.process = subprocess.Popen(
            [*CONVERT, *map(str, arguments)],
            stdout=subprocess.DEVNULL,
            stderr=other,
            env=os.environ | {"TERM": "xterm", "COLUMNS": "200"},
            start_new_session=True,
        )
        os.close(other)
        self.reader = Thread(target=self.read, args=(mine,), daemon=True)
        self.reader.start()

    def read(self, terminal: int) -> None:
        try:
            while data := os.read(terminal, 65536):
                self.seen += data
        except OSError:  # the other side was closed
            pass

    def end(self) -> tuple[int, str]:
        """Return the exit code, and what was drawn without colours and movements."""
        code = self.process.wait(300)
        self.reader.join(10)
        return code, re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.seen.decode())


@pytest.fixture(scope="module")
def expected(source, tmp_path_factory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("threads") / "out"
    subprocess.run([*CONVERT, source, "-o", out, "-q"], check=True)
    return contents(out)


@pytest.mark.slow
def test_the_bar_shows_tasks_rate_and_dashboard(source, expected, tmp_path):
    run = Terminal(source, "-o", tmp_path / "out", "--engine", "ray")
    code, seen = run.end()
    assert code == 0, seen
    # Which counts are shown depends on when the bar is drawn; the test below waits for one of them.
    for told in ("starting Ray", r"\d of 3 tasks", "rows/s", r"http://127\.0\.0\.1:"):
        assert re.search(told, seen)
    assert contents(tmp_path / "out") == expected


@pytest.mark.slow
def test_ctrl_c_ends_the_tasks_and_leaves_what_a_resume_takes_up(source, expected, tmp_path):
    out = tmp_path / "out"
    run = Terminal(source, "-o", out, "--engine", "ray", "--workers", "1")
    for _ in until(300):
        if b"1 of 3 tasks" in run.seen or run.process.poll() is not None:
            break
    os.killpg(run.process.pid, signal.SIGINT)  # as a terminal does: to Ray's processes too
    code, seen = run.end()
    assert code == 130, seen
    assert "Traceback" not in seen
    line = f"fmtkit: interrupted; {out} is not finished: run the same command with --resume to continue"
    assert line in seen
    assert not out.exists()
    for _ in until(20):
        if not left_by(run.process.pid):
            break
    assert not left_by(run.process.pid)
    resumed = Terminal(source, "-o", out, "--engine", "ray", "--resume")
    code, seen = resumed.end()
    assert code == 0, seen
    assert "of 3 tasks" not in seen  # the first is not done again
    assert contents(out) == expected


def until(seconds: float) -> Iterator[None]:
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        yield
        time.sleep(0.05)


def left_by(session: int) -> list[str]:
    """Return the processes that a run left."""
    import psutil

    left = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == session:
                left.append(" ".join(process.cmdline()))
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
    return left
