"""A hash that is computed on a thread of its own, beside reading, encoding and writing.

SHA-256 takes 0.6 to 2 s of a gigabyte, and hashlib and the system's calls release the interpreter's lock.
"""

import hashlib
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

LARGE = 1 << 20
"""Bytes below which handing over costs more than hashing."""


class ThreadedHash:
    """SHA-256 of the bytes that are handed over, in their order.

    One buffer waits at most: who hands over another waits until the one before is hashed, so that memory is
    bounded. The buffers must not change afterwards.
    """

    def __init__(self, begun: "hashlib._Hash | None" = None) -> None:
        self._hash = begun if begun is not None else hashlib.sha256()
        self._thread: ThreadPoolExecutor | None = None
        self._busy: Future[None] | None = None

    def update(self, data: memoryview) -> None:
        """Add the next bytes."""
        self._wait()
        if len(data) < LARGE:
            self._hash.update(data)
            return
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "hash")
        self._busy = self._thread.submit(partial(self._hash.update, data))

    def hexdigest(self) -> str:
        """Return the hash of all bytes so far."""
        self._wait()
        return self._hash.hexdigest()

    def close(self) -> None:
        """Wait for what was handed over, and end the thread."""
        self._wait()
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None

    def _wait(self) -> None:
        if self._busy is not None:
            self._busy.result()
            self._busy = None
