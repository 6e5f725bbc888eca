"""Where bytes can be: local files, standard input, and URLs that fsspec opens."""

import io
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

from fmtkit.errors import DependencyError, SourceError
from fmtkit.sources.paths import is_data, local_files
from fmtkit.sources.raw import Location, Readable

URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|memory://")
FILE_SCHEME = "file://"


def locations(argument: str, split: str | None = None) -> list[Location]:
    """Return what a path, glob, folder, URL or "-" stands for, in order; raise SourceError."""
    if argument == "-":
        return [Location("-", lambda: cast("Readable", sys.stdin.buffer), once=True)]
    if URL.match(argument) and not argument.startswith(FILE_SCHEME):
        return _remote(argument)
    return [local(path) for path in local_files(argument.removeprefix(FILE_SCHEME), split)]


def local(path: Path) -> Location:
    """Return the location of a file on this machine."""
    try:
        size = path.stat().st_size if path.is_file() else None
    except OSError as error:
        raise SourceError(f"{path} cannot be opened: {error.strerror}") from error
    # Pipes (/dev/stdin, <(zcat a.gz)) have neither size nor a second pass.
    opener = lambda: cast("Readable", io.FileIO(path))  # noqa: E731
    return Location(str(path), opener, size, once=size is None, path=path)


def _remote(url: str) -> list[Location]:
    try:
        import fsspec
    except ImportError as error:
        message = f"reading {url} needs the package fsspec: pip install 'fmtkit[hub]'"
        raise DependencyError(message) from error
    try:
        system, path = fsspec.core.url_to_fs(url)
        found = _remote_files(system, path)
        return [_remote_location(system, file) for file in found]
    except ImportError as error:
        raise DependencyError(f"reading {url} needs a package more: {error}") from error
    except (OSError, ValueError) as error:
        raise SourceError(f"{url} cannot be opened: {error or type(error).__name__}") from error


def _remote_files(system: Any, path: str) -> list[str]:
    if "*" in path or "?" in path or "[" in path:
        found = sorted(system.glob(path))
        if not found:
            raise SourceError(f"no file matches {path}")
        return found
    if not system.isdir(path):
        return [path]
    root = path.rstrip("/") + "/"
    below = sorted(system.find(path))
    if not (found := [name for name in below if is_data(Path(name.removeprefix(root)))]):
        raise SourceError(f"{path} holds no data files")
    return found


def _remote_location(system: Any, path: str) -> Location:
    opener: Callable[[], Readable] = partial(system.open, path, "rb")
    return Location(system.unstrip_protocol(path), opener, system.size(path))
