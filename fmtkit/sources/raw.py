"""The bytes of a source as they lie there, counted and hashed while they pass."""

import hashlib
import io
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Any, Protocol

from fmtkit.errors import SourceError

TAIL_BYTES = 64 << 10
"""Where the last line feed of a block is looked for before the block is read."""

PEEK_BYTES = 1 << 20
"""How much of a source is looked at to tell what it is."""


class Readable(Protocol):
    """Anything with bytes in it; a read of 0 bytes is its end."""

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes."""
        ...

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill the buffer as far as a read goes and return by how much."""
        ...

    def close(self) -> None:
        """Let go of the file."""
        ...


class RawBytes(AbstractContextManager["RawBytes"]):
    """One pass over a source; what other libraries take for a file that cannot seek."""

    def __init__(self, location: "Location", head: bytes, file: Readable, *, hashed: bool) -> None:
        self._location, self._head, self._file = location, head, file
        self._hash = hashlib.sha256() if hashed else None
        self.count = 0
        self.closed = False

    @property
    def size(self) -> int | None:
        """Return the size of the source; None of a stream."""
        return self._location.size

    def read(self, size: int) -> bytes:
        """Return up to `size` bytes; raise SourceError where the system cannot deliver them."""
        buffer = bytearray(size)
        return bytes(memoryview(buffer)[: self.readinto(memoryview(buffer))])

    def readinto(self, buffer: memoryview) -> int:
        """Fill the buffer as far as a read goes; raise SourceError as `read` does."""
        try:
            size = self._take(buffer)
        except OSError as error:
            raise SourceError(f"{self._location.name}: {error.strerror or error}") from error
        self.count += size
        if self._hash is not None:
            self._hash.update(buffer[:size])
            if len(buffer) and (not size or self._location.once):
                self._location.digest = self._hash.hexdigest()
        return size

    def _take(self, buffer: memoryview) -> int:
        if not self._head:
            return self._file.readinto(buffer)
        size = min(len(self._head), len(buffer))
        buffer[:size] = self._head[:size]
        self._head = self._head[size:]
        return size

    def lines(self, size: int, again: int) -> bytes | None:
        """Return at most `size` bytes that end in a line feed, of which `again` were read before.

        None where only `readinto` knows: pipes, the end of the file, lines longer than TAIL_BYTES.
        Reading exactly so much saves a copy of the whole: 2.2 GB/s against 1.7.
        """
        start, file = self.count - again, self._file
        if not isinstance(file, io.FileIO) or start + size >= (self._location.size or 0):
            return None
        try:
            file.seek(start + max(size - TAIL_BYTES, 0))
            end = file.read(min(size, TAIL_BYTES)).rfind(b"\n") + 1
            file.seek(start)
            data = file.read(max(size - TAIL_BYTES, 0) + end) if end else b""
            file.seek(max(start + len(data), self.count))
        except OSError as error:
            raise SourceError(f"{self._location.name}: {error.strerror or error}") from error
        if len(data) <= again or not data.endswith(b"\n"):
            file.seek(self.count)
            return None
        self.count += len(data) - again
        if self._hash is not None:
            self._hash.update(memoryview(data)[again:])
        return data

    def drain(self) -> None:
        """Read to the end, so that the hash is that of the whole."""
        while self.read(PEEK_BYTES):
            pass

    def close(self) -> None:
        """Let go of the file."""
        self.closed = True
        self._file.close()

    def __exit__(self, *_: object) -> None:
        self.close()


class Location:
    """Where bytes are, how to open them, and their hash once it is known.

    A location that can be read `once` (stdin) keeps what was peeked and gives it again to the pass.
    """

    def __init__(
        self,
        name: str,
        opener: Callable[[], Readable],
        size: int | None = None,
        *,
        once: bool = False,
        seeks: bool = True,
        path: Path | None = None,
    ) -> None:
        self.name, self.size, self.once, self.path = name, size, once, path
        self.seeks = seeks
        """Whether what is opened has random access."""
        self.digest: str | None = None
        self.spool: IO[bytes] | None = None
        """Its text as a temporary file, once a reader had to seek in it."""
        self._opener = opener
        self._kept: tuple[bytes, Readable] | None = None
        self._used = False

    def __getstate__(self) -> dict[str, Any]:
        """Pickle where the bytes are and how they are opened, not what was read of them."""
        if self.once:
            raise TypeError(f"{self.name} can be read only once, by the process that opened it")
        return {**vars(self), "spool": None, "_kept": None}

    def peek(self, size: int = PEEK_BYTES) -> bytes:
        """Return the first bytes; raise SourceError where the source cannot be opened or read."""
        file = self.open()
        try:
            head = read_fully(file, size)
        except OSError as error:
            raise SourceError(f"{self.name}: {error.strerror or error}") from error
        if self.once:
            self._kept = (head, file)
        else:
            file.close()
        return head

    def bytes(self, *, hashed: bool = False) -> RawBytes:
        """Begin a pass over the bytes."""
        if not self.once:
            return RawBytes(self, b"", self.open(), hashed=hashed and self.digest is None)
        if self._used:
            raise SourceError(f"{self.name} can be read only once; give a file to read it again")
        self._used = True
        head, file = self._kept or (b"", self.open())
        self._kept = None
        return RawBytes(self, head, file, hashed=hashed)

    def sha256(self) -> str:
        """Return the hash of the raw bytes, read for it unless a whole pass has gone before."""
        if self.digest is None:
            with self.bytes(hashed=True) as raw:
                raw.drain()
        assert self.digest is not None
        return self.digest

    def open(self) -> Readable:
        """Open the source, uncounted; raise SourceError where it cannot be."""
        try:
            return self._opener()
        except OSError as error:
            reason = error.strerror or str(error)
            raise SourceError(f"{self.name} cannot be opened: {reason}") from error


def read_fully(file: Readable, size: int) -> bytes:
    """Read `size` bytes, fewer only at the end: pipes and decompressors hand out less at a time."""
    data = file.read(size) if size else b""
    if not data or len(data) == size:
        return data
    parts = [data]
    missing = size - len(data)
    while missing and (data := file.read(missing)):
        parts.append(data)
        missing -= len(data)
    return b"".join(parts)


def fill(file: Readable, buffer: memoryview) -> int:
    """Fill a buffer, less only at the end of the file, and return how far."""
    done = 0
    while done < len(buffer) and (size := file.readinto(buffer[done:])):
        done += size
    return done
