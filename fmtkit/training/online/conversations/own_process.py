"""A subprocess of a different Python interpreter: started before a run, stopped after it, its log read."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType

from fmtkit.core import atomic, parent_death

GRACE = 20.0
"""Seconds for the Gym to stop its servers; it gives each of them a few."""
_LAST_LINES = 3


def interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt on a signal, so that servers are cleaned up; a plain SIGTERM would not."""
    del number, frame
    raise KeyboardInterrupt


def start(
    words: list[str], log: Path, settings: Mapping[str, str], cwd: Path | None = None
) -> subprocess.Popen[bytes]:
    """Start a program of a different Python, which writes to a log; `settings` are for its environment."""
    # It calls the tools of its own environment.
    path = os.pathsep.join([str(Path(words[0]).parent), settings.get("PATH", os.defpath)])
    with atomic.writing(log):
        log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as out:
        # Its own session: Ctrl-C is for the trainer, which saves before it stops.
        return subprocess.Popen(  # noqa: S603
            [sys.executable, "-I", parent_death.__file__, *words],
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**settings, **parent_death.environment_of_child(), "PATH": path},
            start_new_session=True,
        )


def tail(log: Path) -> str:
    """Return the last lines of a log, joined to one line."""
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    written = [line.strip() for line in lines if line.strip()]
    return " | ".join(written[-_LAST_LINES:]) or "its log is empty"


def stop(process: subprocess.Popen[bytes]) -> None:
    """Stop the servers: SIGINT lets the Gym stop its own; what is still running after that is killed."""
    try:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(GRACE)
    finally:
        # Also if we are interrupted while waiting.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
