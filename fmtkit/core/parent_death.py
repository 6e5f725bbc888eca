"""Processes that end with the one that started them, even if that is killed.

fmtkit stops what it started, but `kill -9` and a lack of memory leave it no time to. On Linux the kernel then
signals the child (PR_SET_PDEATHSIG of prctl(2)), which this asks for; elsewhere the child goes on.

`python parent_death.py PROGRAM ARGUMENT...` becomes a program that cannot ask for it itself.
"""

import ctypes
import os
import signal
import sys

STARTED_BY = "FMTKIT_STARTED_BY"
"""The environment variable with the number of the process that starts another."""
_PR_SET_PDEATHSIG = 1


def end_with_parent(number: signal.Signals = signal.SIGTERM) -> None:
    """Get a signal when the process that started this one ends.

    Only where STARTED_BY names that process: what a user starts by hand may outlive its shell.
    """
    starter = os.environ.pop(STARTED_BY, "")
    if sys.platform != "linux" or not starter.isdigit():
        return
    if os.getppid() == int(starter):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(number))
    if not _is_there(int(starter)):
        # It ended before the kernel was asked.
        os.kill(os.getpid(), number)


def _is_there(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def environment_of_child() -> dict[str, str]:
    """Return the variable that a child needs for `end_with_parent`."""
    return {STARTED_BY: str(os.getpid())}


if __name__ == "__main__":
    end_with_parent(signal.SIGINT)
    os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606 - the words that the caller would have started
