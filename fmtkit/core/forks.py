"""Forked processes: their parent's polars threads are gone, and polars would wait for them forever.

The pool of polars starts with the first call that needs it and cannot be started again after a fork (pola.rs,
"multiprocessing"). `DataLoader` forks by default on Linux.
"""

import os
import re
import sys
from pathlib import Path

from fmtkit.core.errors import ForkedError

_THREADS = Path("/proc/self/task")
_POOL = re.compile(r"polars-\d|async-executor")
_AGAIN = (
    'start it with "spawn" or "forkserver", as in DataLoader(..., multiprocessing_context="spawn"), or use '
    "fmtkit only there"
)


def has_pool() -> bool:
    """Return whether polars has threads here; where the system does not name them, whether it is loaded."""
    if not _THREADS.is_dir():
        return "polars" in sys.modules
    return any(_POOL.match(_name(thread)) for thread in _THREADS.iterdir())


def _name(thread: Path) -> str:
    try:
        return (thread / "comm").read_text()
    except OSError:  # it has ended meanwhile
        return ""


class _Pool:
    """Whether polars had threads when this process was forked."""

    had = lost = False

    def look(self) -> None:
        self.had = self.lost or has_pool()

    def lose(self) -> None:
        self.lost = self.had


_pool = _Pool()
if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(before=_pool.look, after_in_child=_pool.lose)


def refuse_lost_threads() -> None:
    """Raise ForkedError where polars would wait forever."""
    if _pool.lost:
        raise ForkedError(
            "this process was forked after polars had started its threads, and would wait for them "
            f"forever; {_AGAIN}"
        )


def refuse_other_process(begun_in: int) -> None:
    """Raise ForkedError in a process that goes on with an iterator of the one that it was forked from."""
    if os.getpid() != begun_in:
        raise ForkedError(
            f"this process was forked from the one that began to read, whose threads it lacks; {_AGAIN}"
        )
