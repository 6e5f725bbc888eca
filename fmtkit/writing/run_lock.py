"""The lock of a local output folder: of two runs that write there at once, the second is refused.

.OUT.partial/lock   locked (flock) as long as a run writes; the system unlocks it where the run is killed

On a file system without locks (some network file systems) a later run takes the output over, and the earlier
one stops at its next checkpoint.
"""

import errno
import fcntl
import os
from pathlib import Path

from fmtkit.core.errors import OutputExistsError

LOCK = "lock"
_UNSUPPORTED = frozenset(
    {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}
)


class RunLock:
    """The lock of the run that writes to `out` in its working folder `root`. Methods may raise OSError."""

    def __init__(self, out: Path, root: Path) -> None:
        self._out, self._path = out, root / LOCK
        self._file: int | None = None

    def take(self) -> None:
        """Make the working folder, and lock it until `release`, or until the process ends.

        Raises:
            OutputExistsError: if another run has locked it.
        """
        while self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            try:
                file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
            except FileNotFoundError:  # a run that has just ended has removed the folder
                continue
            try:
                self._lock(file)
                self._file = file if self._is_there(file) else None
            finally:
                if self._file is None:
                    os.close(file)

    def refuse_taken(self) -> None:
        """Raise OutputExistsError if a run writes there now."""
        try:
            file = os.open(self._path, os.O_RDWR | os.O_NOFOLLOW)
        except OSError:  # none, or nothing that a run made
            return
        try:
            self._lock(file)
        finally:
            os.close(file)

    def _lock(self, file: int) -> None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise OutputExistsError(
                f"another run is writing to {self._out}; wait for it, or choose another OUT"
            ) from error
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise

    def _is_there(self, file: int) -> bool:
        """Return whether the name still refers to the file: a run that ends removes it."""
        try:
            return os.path.samestat(os.fstat(file), self._path.stat())
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Unlock it."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __del__(self) -> None:
        self.release()
