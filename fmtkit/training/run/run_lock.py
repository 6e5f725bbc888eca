"""One run at a time in a run folder.

`fmtkit train` holds the lock alone while it writes the folder, then shares it with its training processes. A
second run would write over the checkpoints of the first, even if only a training process is left of that.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

from fmtkit.core import atomic
from fmtkit.core.errors import OutputExistsError

FILE = ".lock"


class RunLock:
    """The lock of a run folder, held until the process ends or the file is closed.

    File systems without locks (some network mounts) have none: there it holds nothing.
    """

    def __init__(self, run: Path) -> None:
        """Open the lock of a folder, which must exist."""
        self._run = run
        opened = os.open(run / FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._file = os.fdopen(opened, "r+b", buffering=0)

    def take(self) -> None:
        """Hold the lock alone; raise OutputExistsError if another process has it."""
        if not self._lock(alone=True):
            raise OutputExistsError(self._holders())
        self._file.truncate(0)
        self._file.write(f"{socket.gethostname()}\n".encode())

    def share(self) -> None:
        """Hold the lock together with others; raise OutputExistsError if one has it alone."""
        if not self._lock(alone=False):
            raise OutputExistsError(self._holders())

    def release(self) -> None:
        """Give up this process's part of the lock."""
        self._file.close()

    def _lock(self, *, alone: bool) -> bool:
        if find_spec("fcntl") is None:
            # Windows.
            return True
        import fcntl

        try:
            fcntl.flock(self._file, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            # This file system has no locks.
            return True
        return True

    def _holders(self) -> str:
        host = self._file.read(256).decode(errors="replace").strip()
        where = f" on {host}" if host and host != socket.gethostname() else ""
        numbers = [] if where else _processes(self._run)
        stop = f" (kill {' '.join(map(str, numbers))})" if numbers else ""
        return (
            f"{self._run}: a run that was started earlier{where} still uses this folder; wait for its end, "
            f"or stop it{stop} and resume"
        )


@contextmanager
def hold(run: Path) -> Iterator[RunLock]:
    """Hold the lock of a run folder, which is made if there is none.

    Raises OutputExistsError if another process has it.
    """
    with atomic.writing(run):
        run.mkdir(parents=True, exist_ok=True)
        lock = RunLock(run)
    try:
        lock.take()
        yield lock
    finally:
        lock.release()


@contextmanager
def hold_shared(run: Path) -> Iterator[None]:
    """Hold the lock of a run folder together with other processes of this run.

    Raises OutputExistsError if another run is writing the folder.
    """
    lock = RunLock(run)
    try:
        lock.share()
        yield
    finally:
        lock.release()


def _processes(run: Path) -> list[int]:
    """Return the numbers of this machine's processes that have the lock of a folder open."""
    import psutil

    wanted, found = os.path.realpath(run / FILE), []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            files = (os.path.realpath(file.path) for file in process.open_files())
            if process.pid != os.getpid() and wanted in files:
                found.append(process.pid)
    return found
