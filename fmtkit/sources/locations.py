"""Where bytes can be: local files, standard input, and URLs that fsspec opens."""

import io
import re
import sys
from pathlib import Path
from typing import cast

from fmtkit.errors import SourceError
from fmtkit.sources.paths import local_files
from fmtkit.sources.raw import Location, Readable
from fmtkit.sources.remote import remote

URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|memory://")
FILE_SCHEME = "file://"


def locations(argument: str, split: str | None = None) -> list[Location]:
    """Return what a path, glob, folder, URL or "-" stands for, in order; raise SourceError."""
    if argument == "-":
        return [Location("-", lambda: cast("Readable", sys.stdin.buffer), once=True)]
    if URL.match(argument) and not argument.startswith(FILE_SCHEME):
        return remote(argument)
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
