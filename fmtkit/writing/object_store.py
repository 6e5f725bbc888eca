"""Output files on an object store: each is one upload, which is visible completely or not at all."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from fmtkit.core import reachability, storage
from fmtkit.core.errors import FmtkitError, WriteError
from fmtkit.core.urls import ObjectPath

PART_BYTES = 32 << 20
"""Size of a part in a multipart upload; smaller files are one request."""


class Store:
    """The files in one folder of an object store, by their paths relative to it.

    Raises:
        WriteError: from every method, if the store refuses or cannot be reached.
        DependencyError: if the package that serves the scheme is not installed.
    """

    def __init__(self, folder: ObjectPath) -> None:
        self.folder = folder
        with errors(folder):
            self._system, root = storage.attempted(
                partial(storage.file_system, folder.url, "writing"), first=reachability.ANSWERING
            )
        self._root = root.rstrip("/")

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def sizes(self, below: str = "") -> dict[str, int]:
        """Return file name -> size for each file in the folder, or in one below it."""

        def listed() -> dict[str, Any]:
            self._system.invalidate_cache()
            found: dict[str, Any] = self._system.find(self._path(below).rstrip("/"), detail=True)
            return found

        with errors(self.folder):
            try:
                found = storage.attempted(listed)
            except FileNotFoundError:
                return {}
        cut = len(self._root) + 1
        return {name[cut:]: int(d["size"] or 0) for name, d in sorted(found.items())}

    def size(self, name: str) -> int | None:
        """Return the size of a file; None where there is none."""

        def asked() -> int:
            self._system.invalidate_cache()
            return int(self._system.info(self._path(name))["size"])

        with errors(self.folder / name):
            try:
                return storage.attempted(asked)
            except FileNotFoundError:
                return None

    def read(self, name: str) -> bytes | None:
        """Return the bytes of a small file; None where there is none."""
        with errors(self.folder / name, "read"):
            try:
                return bytes(storage.attempted(partial(self._system.cat_file, self._path(name))))
            except FileNotFoundError:
                return None

    def put(self, file: Path, name: str, *, new: bool = False) -> None:
        """Upload a file, replacing an existing one; with `new`, raise FileExistsError instead."""
        attempts = 0

        def upload() -> None:
            nonlocal attempts
            attempts += 1
            self._upload(file, self._path(name), "x" if new else "w")

        with errors(self.folder / name):
            try:
                storage.repeated(upload)
            except FileExistsError:
                # An upload whose response was lost has succeeded nevertheless.
                if attempts == 1 or self.size(name) != file.stat().st_size:
                    raise

    def _upload(self, file: Path, path: str, mode: str) -> None:
        size = file.stat().st_size
        if size <= PART_BYTES or self._system.protocol == "memory":
            self._pipe(path, file.read_bytes(), mode)
            return
        # Closing an fsspec file completes the upload even after an error, unless autocommit is off.
        target = self._system.open(path, f"{mode}b", autocommit=False, block_size=PART_BYTES)
        try:
            with file.open("rb") as source:
                while data := source.read(PART_BYTES):
                    storage.within(partial(target.write, data))
            storage.within(target.close)
            storage.within(target.commit)
        except BaseException:
            # adlfs closes files that are garbage-collected, and closing commits.
            target.closed = True
            with suppress(OSError):  # parts that were not committed are not visible
                storage.within(target.discard)
            raise

    def _pipe(self, path: str, data: bytes, mode: str) -> None:
        how = "create" if mode == "x" else "overwrite"
        storage.within(partial(self._system.pipe_file, path, data, mode=how))

    def write(self, name: str, data: bytes) -> None:
        """Write a small file, replacing an existing one."""
        with errors(self.folder / name):
            storage.repeated(partial(self._pipe, self._path(name), data, "w"))

    def create(self, name: str, data: bytes) -> bool:
        """Write a small file unless it exists; return False if it does.

        Raises WriteError if the store cannot create a file atomically.
        """
        create = partial(self._pipe, self._path(name), data, "x")
        with errors(self.folder / name):
            try:
                storage.repeated(create)
            except FileExistsError:
                # If the response was lost, this run wrote the file: no other run writes the same data.
                return self.read(name) == data
            try:
                storage.repeated(create)
            except FileExistsError:
                return True
        raise WriteError(
            f"cannot write {self.folder}: its store ignores the condition that there be no such file, so "
            "that two runs could write there at once; write to a local folder and copy the result"
        )

    def delete(self, names: Iterable[str]) -> None:
        """Delete files; a missing file is not an error."""
        paths = [self._path(name) for name in names]
        if not paths:
            return

        def delete() -> None:
            self._system.invalidate_cache()
            try:
                self._system.rm(paths)
            except FileNotFoundError:
                self._system.invalidate_cache()
                if there := [path for path in paths if self._system.exists(path)]:
                    self._system.rm(there)

        with errors(self.folder):
            storage.attempted(delete)


@contextmanager
def errors(path: ObjectPath, verb: str = "write") -> Iterator[None]:
    """Turn errors of the store into a WriteError that names the file; FileExistsError passes through."""
    try:
        yield
    except (FmtkitError, FileExistsError):
        raise
    except OSError as error:
        reason = str(error)
        if isinstance(error, FileNotFoundError):
            reason = "there is no such bucket"
        advice = "nothing was left under that name"
        if isinstance(error, PermissionError):
            advice = "check the credentials and what they allow"
        raise WriteError(f"cannot {verb} {path}: {reason}; {advice}") from error
