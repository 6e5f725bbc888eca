"""Progress of long work as lines on stderr: for logs, where no bar is drawn.

Work that takes less than ten seconds prints nothing. Afterwards a line comes at most every ten seconds, and
never sooner than after a fiftieth of the time so far: a day of work prints some hundreds of lines.
"""

import sys
import time
from collections.abc import Callable

PAUSE = 10.0
"""Seconds before the first line, and at least between two."""
SHARE = 0.02
"""The share of the time so far that passes at least between two lines."""


def _to_stderr(line: str) -> None:
    # One write: training processes and this one may print at the same time.
    sys.stderr.write(f"progress: {line}\n")
    sys.stderr.flush()


class ProgressLines:
    """Prints a line where enough time has passed since the last one."""

    def __init__(
        self,
        write: Callable[[str], None] = _to_stderr,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start the clock."""
        self._write, self._clock = write, clock
        self._begun = self._last = clock()

    def __call__(self, line: Callable[[], str] | str) -> None:
        """Print a line if one is due; a function is called only then."""
        now = self._clock()
        if now - self._last < max(PAUSE, SHARE * (now - self._begun)):
            return
        self._last = now
        self._write(line if isinstance(line, str) else line())


def of_total(done: int, total: int | None) -> str:
    """Write how much is done: `1,000 of 20,507`, `1,000` where the whole is not known."""
    return f"{done:,}" if total is None else f"{done:,} of {total:,}"
