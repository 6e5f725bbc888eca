"""Ranges of an image's bytes, in memory or in a file of which only those ranges are read."""

import os
import stat
from pathlib import Path
from types import TracebackType
from typing import Protocol

from fmtkit.core.errors import ImageError

BLOCK = 1 << 12
"""Bytes of a file that one read gets, at least."""
FIRST_BLOCK = 1 << 14
"""Bytes of its beginning, where headers are, as a rule."""
MOST_READ = 4 << 20
"""Bytes of a file that may be read for its header."""


class CutShortError(Exception):
    """The bytes end within a header; `read_header` names the format in the error that it raises."""


class Ranges(Protocol):
    """Bytes by place."""

    def some(self, at: int, size: int) -> bytes:
        """Return bytes from a place on, fewer where they end."""
        ...

    def exactly(self, at: int, size: int) -> bytes:
        """Return bytes from a place on; raise CutShortError where they end before."""
        ...


class HeldBytes:
    """Bytes in memory."""

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self._data = data

    def some(self, at: int, size: int) -> bytes:
        return bytes(self._data[at : at + size])

    def exactly(self, at: int, size: int) -> bytes:
        found = bytes(self._data[at : at + size])
        if len(found) < size:
            raise CutShortError
        return found


class FileBytes:
    """The bytes of a file, read in blocks; closed by `with`."""

    def __init__(self, path: Path) -> None:
        try:
            # A pipe without a writer would block the process.
            self._file = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        except (OSError, ValueError) as error:
            raise missing(path, error) from error
        state = os.fstat(self._file)
        if not stat.S_ISREG(state.st_mode):
            os.close(self._file)
            raise ImageError(f"{path} is no file", "image_missing")
        self._path, self._size = path, state.st_size
        self._left = MOST_READ
        self._block_at, self._block = 0, self._read(0, FIRST_BLOCK)

    def _read(self, at: int, size: int) -> bytes:
        if at >= self._size:
            return b""
        self._left -= size
        if self._left < 0:
            raise CutShortError
        try:
            os.lseek(self._file, at, os.SEEK_SET)
            return os.read(self._file, size)
        except OSError as error:
            raise missing(self._path, error) from error

    def some(self, at: int, size: int) -> bytes:
        start = at - self._block_at
        if start < 0 or start + size > len(self._block):
            self._block_at, self._block = at, self._read(at, max(size, BLOCK))
            start = 0
        return self._block[start : start + size]

    def exactly(self, at: int, size: int) -> bytes:
        found = self.some(at, size)
        if len(found) < size:
            raise CutShortError
        return found

    def __enter__(self) -> "FileBytes":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._file)


def missing(path: Path, error: Exception) -> ImageError:
    """Return the error of a file that cannot be opened."""
    if isinstance(error, FileNotFoundError):
        return ImageError(f"there is no file {path}", "image_missing")
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return ImageError(f"{path} cannot be read: {reason}", "image_missing")
