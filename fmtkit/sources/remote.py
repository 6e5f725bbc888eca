"""Files at URLs that fsspec opens: which files a URL names, and reading them in ranges with retries."""

import io
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from fmtkit.core import hub_access, reachability, storage
from fmtkit.core.credentials import public
from fmtkit.core.errors import SourceError
from fmtkit.sources.paths import is_data
from fmtkit.sources.raw import Location
from fmtkit.sources.splits import check_file, of_split

Details = Mapping[str, Any]
HUB = "hf://"
HTTP = ("http://", "https://")
MANIFEST = "manifest.json"
RUN_FOLDER = "_fmtkit"
"""The folder in which an unfinished output on an object store keeps its records."""
FIRST_BYTES = 1 << 20
"""Range size for random access."""
MOST_BYTES = 16 << 20
"""Range size for sequential reads: the latency of a request equals the transfer of some megabytes."""
_PINNED = frozenset({"s3", "s3a"})
"""Schemes whose client raises an error if an open file was replaced; s3fs compares ETags."""


def remote(url: str, split: str | None = None) -> list[Location]:
    """Return the files of a URL, a glob or a folder; of a folder those of the split.

    Raises:
        SourceError: if there is none, or the storage does not answer within seconds.
        DependencyError: if the package that serves the scheme is missing.
    """
    name = public(url)
    if trouble := hub_access.trouble() if url.startswith(HUB) else None:
        raise SourceError(f"{name} cannot be opened: the hub cannot be reached ({trouble})")
    try:
        # The first request has a shorter time limit: the host may not respond at all.
        system, path, is_folder = storage.attempted(
            partial(_contact, url), first=reachability.ANSWERING
        )
        named = partial(_name, url.partition("://")[0], system)
        found = _files(system, path, named, is_folder=is_folder)
        if is_folder:
            root = path.rstrip("/") + "/"
            below = {file.removeprefix(root): file for file in found}
            found = {below[file]: found[below[file]] for file in of_split([*below], name, split)}
        else:
            check_file(name, split)
        return [_location(system, file, listed, named(file)) for file, listed in found.items()]
    except SourceError:
        raise
    except OSError as error:
        raise SourceError(f"{name} cannot be opened: {error}") from error


def _contact(url: str) -> tuple[Any, str, bool]:
    system, path = storage.file_system(url, "reading")
    # A listing that fsspec cached earlier in this process may be outdated.
    system.invalidate_cache()
    return system, path, bool(system.isdir(path))


def _files(
    system: Any, path: str, named: Callable[[str], str], *, is_folder: bool
) -> dict[str, Details]:
    """Return the files with the details from their listing, sorted by name."""
    if any(character in path for character in "*?["):
        found = storage.attempted(partial(system.glob, path, detail=True))
        found = {name: d for name, d in sorted(found.items()) if d.get("type") != "directory"}
        if not found:
            raise SourceError(f"no file matches {named(path)}")
        return found
    if not is_folder:
        return {path: {}}
    root = path.rstrip("/") + "/"
    found = storage.attempted(partial(system.find, path, detail=True))
    below = {name.removeprefix(root): name for name in sorted(found)}
    if any(name.startswith(f"{RUN_FOLDER}/") for name in below) and MANIFEST not in below:
        raise SourceError(
            f"{named(path)} is an output of fmtkit that is not finished (no {MANIFEST}); "
            "finish it with --resume, or name its files"
        )
    if MANIFEST in below and any(name.startswith("data/") for name in below):
        below = {name: file for name, file in below.items() if name.startswith("data/")}
    if not (data := [file for name, file in below.items() if is_data(Path(name))]):
        raise SourceError(f"{named(path)} holds no data files")
    return {file: found[file] for file in data}


def _name(scheme: str, system: Any, path: str) -> str:
    """Return the URL of a file with the scheme that was given: adlfs replaces az:// by abfs://."""
    own, found, rest = system.unstrip_protocol(path).partition("://")
    aliases = system.protocol if isinstance(system.protocol, tuple) else (system.protocol,)
    return public(f"{scheme if scheme in aliases else own}{found}{rest}")


def _location(system: Any, path: str, listed: Details, name: str) -> Location:
    details = listed
    if details.get("size") is None:
        details = storage.attempted(partial(system.info, path))
    mark = storage.mark_of(details)
    if mark[0] is None or (name.startswith(HTTP) and not _supports_ranges(system, path, mark[0])):
        return Location(name, partial(Stream, system, path), mark[0], seeks=False, mark=mark[1])
    return Location(name, partial(RangedFile, system, path, mark), mark[0], mark=mark[1])


def _supports_ranges(system: Any, path: str, size: int) -> bool:
    """Request only the second byte: the Accept-Ranges header of a server is not reliable."""
    if size < 2:
        return True

    def second() -> bytes:
        with system.open(path, "rb", cache_type="none") as file:
            file.seek(1)
            return bytes(file.read(1))

    try:
        return len(storage.attempted(second)) == 1
    except OSError:
        return False


class RangedFile(io.RawIOBase):
    """A file of a store, read in ranges, each with a time limit and retries.

    `mark` identifies the version that was listed; a different version raises ChangedError. Ranges grow while
    the file is read sequentially.
    """

    def __init__(self, system: Any, path: str, mark: tuple[int | None, str]) -> None:
        super().__init__()
        self._system, self._path, self._mark = system, path, mark
        self._size = mark[0] or 0
        protocol = system.protocol
        self._is_pinned = not _PINNED.isdisjoint(
            [protocol] if isinstance(protocol, str) else protocol
        )
        self._at = 0
        self._held, self._held_at, self._range_size = b"", 0, FIRST_BYTES
        self._file: Any = None
        storage.attempted(self._open)

    def _check(self, since: str) -> None:
        self._system.invalidate_cache(self._path)
        if storage.mark_of(self._system.info(self._path)) != self._mark:
            raise storage.ChangedError(f"it changed {since}; run again")

    def _open(self) -> None:
        self._check("since it was listed")
        # Without fsspec's cache, only the range that failed is requested again.
        self._file = self._system.open(self._path, "rb", cache_type="none")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer from the range that is held, after a request if the position is outside it."""
        view = memoryview(buffer).cast("B")
        start = self._at - self._held_at
        if not 0 <= start < len(self._held):
            self._request(len(view))
            start = 0
        size = min(len(view), len(self._held) - start)
        view[:size] = memoryview(self._held)[start : start + size]
        self._at += size
        return size

    def _request(self, wanted: int) -> None:
        is_sequential = self._at == self._held_at + len(self._held)
        self._range_size = (
            min(self._range_size * 2, MOST_BYTES) if is_sequential and self._at else FIRST_BYTES
        )
        end = min(self._at + max(wanted, self._range_size), self._size)
        self._held_at, self._held = self._at, b""
        if end > self._at:
            self._held = storage.attempted(partial(self._range, self._at, end))

    def _range(self, start: int, end: int) -> bytes:
        if self._file is None:
            self._open()
        file, self._file = self._file, None
        file.seek(start)
        data = bytes(file.read(end - start))
        if not self._is_pinned:
            self._check("while it was read")
        if len(data) < end - start:
            raise storage.CutShortError(
                f"it is cut short: it ends after {start + len(data)} of {self._size} bytes"
            )
        self._file = file  # after a failure it is opened again
        return data

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = max(0, offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at}.get(whence, self._size))
        return self._at

    def tell(self) -> int:
        return self._at

    def close(self) -> None:
        if not self.closed and self._file is not None:
            self._file.close()
        super().close()


class Stream(io.RawIOBase):
    """A file that is read sequentially; reading cannot resume after an error."""

    def __init__(self, system: Any, path: str) -> None:
        super().__init__()
        self._file: Any = storage.attempted(partial(system.open, path, "rb"))

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        data = storage.within(partial(self._file.read, len(view)))
        view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()
