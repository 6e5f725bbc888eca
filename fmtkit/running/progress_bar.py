"""The progress of commands that read every row: bytes, rows per second, bad rows, Ray's tasks."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from fmtkit.core.data_classes import dataclass
from fmtkit.core.escaping import counted
from fmtkit.core.progress_lines import ProgressLines
from fmtkit.work.engines import WATCHED, Standing

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from fmtkit.running.ledger import Ledger

UNITS = ("B", "KB", "MB", "GB")


class Watch(Protocol):
    """Progress callback of a run: called after each block, on the thread that asked for the run."""

    def __call__(self, done: int, size: int | None, ledger: "Ledger") -> None: ...


def may_be_terminal() -> bool:
    """Return whether stderr may be what rich takes for a terminal, without importing it."""
    forced = os.environ.get("FORCE_COLOR") or os.environ.get("TTY_COMPATIBLE")
    return bool(forced) or sys.stderr.isatty()


@contextmanager
def progress(what: str, *, shown: bool) -> Iterator[Watch | None]:
    """Show a bar on stderr while a command reads; lines that begin with `what` where that is no terminal."""
    instead = LinesOfRows(what, ProgressLines()) if shown else None
    if not (shown and may_be_terminal()):
        yield instead
        return
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield instead
        return
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:>3.0f}%"),
        TextColumn("{task.fields[what]}{task.fields[tasks]}"),
    )
    standing = Standing()
    token = WATCHED.set(standing)
    try:
        with Progress(*columns, console=console, transient=True) as bar:
            tasks = Tasks(standing)
            yield _Bar(bar, bar.add_task("", total=None, what="reading", tasks=tasks))
    finally:
        WATCHED.reset(token)


@dataclass(frozen=True)
class Tasks:
    """The progress of an engine's tasks, as text, whenever the bar is drawn: between results too."""

    standing: Standing

    def __str__(self) -> str:
        now = self.standing
        if now.is_starting:
            return ", starting Ray"
        of = f" of {now.total:,}" if now.total else ""
        said = f", {now.done:,}{of} tasks" if now.done or now.total else ""
        lost = f", [yellow]{counted(now.lost, 'task')} run again[/]" if now.lost else ""
        return f"{said}{lost}{f', http://{now.dashboard}' if now.dashboard else ''}"


class _Bar:
    def __init__(self, bar: "Progress", task: "TaskID") -> None:
        self.bar, self.task, self.begun = bar, task, time.monotonic()

    def __call__(self, done: int, size: int | None, ledger: "Ledger") -> None:
        rate = ledger.rows_read / max(time.monotonic() - self.begun, 1e-6)
        bad = f", [yellow]{ledger.bad:,} bad[/]" if ledger.bad else ""
        what = f"{_read(done, size)}, {ledger.rows_read:,} rows, {rate:,.0f} rows/s{bad}"
        self.bar.update(self.task, completed=done, total=size, what=what)


@dataclass(frozen=True)
class LinesOfRows:
    """Progress as lines that say what is read, how much of it, and how many rows."""

    what: str
    lines: ProgressLines

    def __call__(self, done: int, size: int | None, ledger: "Ledger") -> None:
        bad = f", {ledger.bad:,} bad" if ledger.bad else ""
        self.lines(f"{self.what}: {_read(done, size)}, {ledger.rows_read:,} rows{bad}")


def _read(done: int, size: int | None) -> str:
    return in_bytes(done) + (f" of {in_bytes(size)}" if size else "")


def in_bytes(count: float) -> str:
    """Write a number of bytes for a reader: `2.9 KB`."""
    for unit in UNITS[:-1]:
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.2f} {UNITS[-1]}"
