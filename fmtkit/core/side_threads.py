"""Calls on a thread of their own, beside reading, converting and encoding: writing a file, and its hash.

Of a gigabyte SHA-256 takes 0.6 to 2 s and writing 0.3 to 2 s; hashlib and the system's calls release the
interpreter's lock.
"""

import hashlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

LARGE = 1 << 20
"""Bytes below which handing over costs more than doing it at once."""


class SideThread:
    """A thread that makes one call after another.

    One call runs at most: who asks for another waits until the one before is done, so that memory is bounded.
    What a call raises is raised by the next call of any method but `close`.
    """

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None
        self._busy: Future[None] | None = None

    def run(self, call: Callable[[], None], size: int) -> None:
        """Make a call for `size` bytes: beside the caller if they are many, else at once."""
        self.wait()
        if size < LARGE:
            call()
            return
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "fmtkit side")
        self._busy = self._thread.submit(call)

    def wait(self) -> None:
        """Wait until every call is done."""
        if self._busy is not None:
            busy, self._busy = self._busy, None
            busy.result()

    def close(self) -> None:
        """Wait as well, and end the thread; what the last call raised is not raised."""
        if self._thread is not None:
            self._thread.shutdown()
        self._thread = self._busy = None


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
