"""Calls on a thread of their own, beside reading, converting and encoding: writing a file, and its hash.

Of a gigabyte SHA-256 takes 0.6 to 2 s and writing 0.3 to 2 s; hashlib and the system's calls release the
interpreter's lock.
"""

import hashlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

LARGE = 1 << 20
"""Bytes below which handing over costs more than doing it at once."""
WAITING = 12 << 20
"""Most bytes of calls that wait or run."""


class SideThread:
    """A thread that makes one call after another, in their order.

    Calls wait while those before have `WAITING` bytes or less in all, so that memory is bounded; who asks for
    more waits himself. What a call raises is raised by a later call of any method but `close`, by `wait` at
    the latest.
    """

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None
        self._calls: deque[tuple[Future[None], int]] = deque()
        self._bytes = 0

    def run(self, call: Callable[[], None], size: int) -> None:
        """Make a call for `size` bytes: beside the caller if they are many, else at once."""
        self._take(done_only=True)
        if size < LARGE and not self._calls:
            call()
            return
        while self._calls and self._bytes + size > WAITING:
            self._take()
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "fmtkit side")
        self._calls.append((self._thread.submit(call), size))
        self._bytes += size

    def _take(self, *, done_only: bool = False) -> None:
        """Wait for the first call; with `done_only` take those that are done, without waiting."""
        while self._calls and (not done_only or self._calls[0][0].done()):
            busy, size = self._calls.popleft()
            self._bytes -= size
            busy.result()
            if not done_only:
                return

    def wait(self) -> None:
        """Wait until every call is done."""
        while self._calls:
            self._take()

    def close(self) -> None:
        """Wait as well, and end the thread; what the last calls raised is not raised."""
        if self._thread is not None:
            self._thread.shutdown()
        self._thread = None
        self._calls.clear()
        self._bytes = 0


class ThreadedHash:
    """SHA-256 of the bytes that are handed over, in their order; they must not change afterwards."""

    def __init__(self, begun: "hashlib._Hash | None" = None) -> None:
        self._hash = begun if begun is not None else hashlib.sha256()
        self._side = SideThread()

    def update(self, data: memoryview) -> None:
        """Add the next bytes."""
        self._side.run(partial(self._hash.update, data), len(data))

    def hexdigest(self) -> str:
        """Return the hash of all bytes so far."""
        self._side.wait()
        return self._hash.hexdigest()

    def close(self) -> None:
        """Wait for what was handed over, and end the thread."""
        self._side.close()
