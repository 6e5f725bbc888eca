"""Locations of bytes: local files, standard input, and URLs that fsspec opens."""

import io
import re
import sys
from functools import partial
from pathlib import Path
from typing import Any, cast

from fmtkit.core.errors import SourceError
from fmtkit.sources.paths import local_files
from fmtkit.sources.raw import Location, Readable
from fmtkit.sources.remote import remote

URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|memory://")
FILE_SCHEME = "file://"


def locations(argument: str, split: str | None = None) -> list[Location]:
    """Return what a path, glob, folder, URL or "-" stands for, in order; raise SourceError."""
    if argument == "-":
        return [Location("-", _standard_input, once=True)]
    if URL.match(argument) and not argument.startswith(FILE_SCHEME):
        return remote(argument, split)
    return [local(path) for path in local_files(argument.removeprefix(FILE_SCHEME), split)]


def local(path: Path) -> Location:
    """Return the location of a file on this machine."""
    try:
        size = path.stat().st_size if path.is_file() else None
    except OSError as error:
        raise SourceError(f"{path} cannot be opened: {error.strerror}") from error
    # Pipes (/dev/stdin, <(zcat a.gz)) have neither size nor a second pass.
    return Location(str(path), partial(_file, path), size, once=size is None, path=path)


def _file(path: Path) -> Readable:
    return cast("Readable", io.FileIO(path))


def _standard_input() -> Readable:
    return cast("Readable", sys.stdin.buffer)


class _OpenFile:
    """A file that the caller opened, in binary or in text mode; the caller closes it."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._rest = b""

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes from the current position."""
        while len(self._rest) < size:
            try:
                data = self._file.read(size)
            except ValueError as error:
                # Closed, or opened as text in the wrong encoding.
                raise OSError(f"cannot be read: {error}; open it in binary mode") from error
            if not data:
                break
            # Half a surrogate pair cannot be UTF-8: the parser says in which line it is.
            self._rest += (
                data.encode("utf-8", "surrogatepass") if isinstance(data, str) else bytes(data)
            )
        out, self._rest = self._rest[:size], self._rest[size:]
        return out

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill the buffer as far as a read goes and return by how much."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Leave the file open."""


def opened_file(file: object) -> Location:
    """Return the location of a file object, read once from its current position."""
    name = getattr(file, "name", None)
    return Location(
        name if isinstance(name, str) else "<file>", partial(_OpenFile, file), once=True
    )
