"""Atomic files: a file appears under its name complete, or not at all.

Everything is written under a hidden name next to the final one, forced to the disk and renamed.
Every failure of the operating system becomes a WriteError of one line.
"""

import errno
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import FmtkitError, WriteError
from fmtkit.core.side_threads import SideThread, ThreadedHash

if TYPE_CHECKING:
    # Reward workers write nothing, and start without pyarrow.
    import pyarrow as pa

    from fmtkit.core.urls import ObjectPath

_PIECE = 1 << 20
"""Characters of a JSON document that are written at once."""
_ADVICE = {
    errno.ENOSPC: "free some space and run again",
    errno.EDQUOT: "free some of the quota and run again",
    errno.EFBIG: "raise the limit of file sizes (ulimit -f) or write a folder of shards",
    errno.EACCES: "choose a folder that you may write to",
    errno.EPERM: "choose a folder that you may write to",
    errno.EROFS: "choose a folder that you may write to",
    errno.EEXIST: "a part of this path is a file; choose another",
    errno.ENOTDIR: "a part of this path is a file; choose another",
}


@dataclass(frozen=True, slots=True)
class Written:
    """A finished file; `sha256` is None where no manifest will ask for it."""

    path: "Path | ObjectPath"
    rows: int
    bytes: int
    sha256: str | None = None


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an OSError into a WriteError that names `path`."""
    try:
        yield
    except FmtkitError:
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        advice = _ADVICE.get(error.errno or 0, "nothing was left under that name")
        raise WriteError(f"cannot write {path}: {reason}; {advice}") from error


class PartialFile:
    """A file that gets its final name only once it is published.

    With `resume_at`, the first `resume_at` bytes of an earlier run's partial file are kept.
    """

    def __init__(self, path: Path, *, hashed: bool = False, resume_at: int = 0) -> None:
        self.path = path
        self.partial = partial_name(path)
        self.size = resume_at
        self._hash = ThreadedHash() if hashed else None
        self._side = SideThread()
        with writing(path):
            if not resume_at:
                self.partial.unlink(missing_ok=True)
            # Unbuffered: closing never fails.
            self._file = self.partial.open("r+b" if resume_at else "xb", buffering=0)
            self._file.truncate(resume_at)
            if hashed and resume_at:
                self._hash = ThreadedHash(hashlib.file_digest(self._file, "sha256"))
            self._file.seek(resume_at)

    def write(self, data: "bytes | pa.Buffer") -> None:
        """Append all of `data`, which must not change afterwards: much of it is written on a thread.

        Raises:
            WriteError: also where what was appended before could not be written.
        """
        view = memoryview(data)
        if self._hash is not None:
            self._hash.update(view)
        self.size += len(view)
        self._side.run(partial(self._write, view), len(view))

    def _write(self, view: memoryview) -> None:
        with writing(self.path):
            while view:
                view = view[self._file.write(view) :]

    def sync(self) -> None:
        """Force what was written to the disk.

        Raises:
            WriteError: if another run to the same output has taken the partial name.
        """
        self._side.wait()
        with writing(self.path):
            os.fsync(self._file.fileno())
        self.check()

    def check(self) -> None:
        """Raise WriteError if another run to the same output has taken the partial name."""
        with writing(self.path):
            if not self._is_ours():
                raise WriteError(f"{self.path} is being written by another run; this one stops")

    def publish(self) -> None:
        """Give the file its final name, replacing an existing one."""
        self.sync()
        with writing(self.path):
            self.partial.replace(self.path)
        self._close()

    def leave(self) -> None:
        """Force what was written to the disk and keep it under its hidden name."""
        if self._file.closed:
            return
        self.sync()
        self._close()

    def written(self, rows: int) -> Written:
        """Return the description of the finished file."""
        digest = self._hash.hexdigest() if self._hash is not None else None
        return Written(self.path, rows, self.size, digest)

    def discard(self) -> None:
        """Delete the file, unless it is published, left or deleted already."""
        if self._file.closed:
            return
        self._side.close()
        with writing(self.path):
            if self._is_ours():
                self.partial.unlink()
        self._close()

    def _close(self) -> None:
        self._side.close()
        self._file.close()
        if self._hash is not None:
            self._hash.close()

    def _is_ours(self) -> bool:
        """Return whether the partial name still refers to this file: a later run may have taken it."""
        try:
            return os.path.samestat(os.fstat(self._file.fileno()), self.partial.stat())
        except FileNotFoundError:
            return False


def partial_name(path: Path) -> Path:
    """Return the hidden name next to `path` under which it is written."""
    return path.with_name(f".{path.name}.partial")


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write an indented JSON document atomically."""
    file = whole_json(path, value)
    try:
        file.publish()
    finally:
        file.discard()


def whole_json(path: Path, value: Mapping[str, Any]) -> PartialFile:
    """Write an indented JSON document to the disk, still under its hidden name."""
    return _whole(path, json_document(value))


def json_document(value: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield an indented JSON document in pieces: a manifest names each of some 100,000 shards."""
    held: list[str] = []
    size = 0
    for text in json.JSONEncoder(ensure_ascii=False, indent=2).iterencode(value):
        held.append(text)
        size += len(text)
        if size >= _PIECE:
            yield _encoded(held)
            held, size = [], 0
    yield _encoded([*held, "\n"])


def _encoded(texts: list[str]) -> bytes:
    # Names of columns and files may hold half a surrogate pair, which JSON writes as an escape.
    return "".join(texts).encode(errors="backslashreplace")


def write_bytes(path: Path, data: bytes) -> None:
    """Write a small file atomically, replacing an existing one."""
    file = _whole(path, [data])
    try:
        file.publish()
    finally:
        file.discard()


def _whole(path: Path, pieces: Iterable[bytes]) -> PartialFile:
    file = PartialFile(path)
    try:
        for data in pieces:
            file.write(data)
        file.sync()
    except BaseException:
        file.discard()
        raise
    return file


def sync_folder(path: Path) -> None:
    """Force the names in a folder to the disk."""
    with writing(path):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
