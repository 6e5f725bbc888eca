"""URLs that fsspec opens. Each of its backends asks a client library, which has errors of its own."""

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from fmtkit import hub_access
from fmtkit.errors import DependencyError, SourceError
from fmtkit.reachability import answer_of
from fmtkit.sources.paths import is_data
from fmtkit.sources.raw import Location, Readable

HUB = "hf://"


def remote(url: str) -> list[Location]:
    """Return the files that a URL, a glob or a folder stands for; raise SourceError within seconds."""
    try:
        import fsspec
    except ImportError as error:
        message = f"reading {url} needs the package fsspec: pip install 'fmtkit[hub]'"
        raise DependencyError(message) from error
    if trouble := hub_access.trouble() if url.startswith(HUB) else None:
        raise SourceError(f"{url} cannot be opened: the hub cannot be reached ({trouble})")
    try:
        with _client_errors():
            # The first question goes to somebody who may never answer.
            system, path, is_folder = answer_of(partial(_contact, fsspec.core.url_to_fs, url))
            found = _files(system, path, is_folder=is_folder)
            return [_location(system, file) for file in found]
    except ImportError as error:
        raise DependencyError(f"reading {url} needs a package more: {error}") from error
    except SourceError:
        raise
    except OSError as error:
        raise SourceError(f"{url} cannot be opened: {error}") from error


def _contact(opener: Callable[[str], tuple[Any, str]], url: str) -> tuple[Any, str, bool]:
    system, path = opener(url)
    return system, path, bool(system.isdir(path))


def _files(system: Any, path: str, *, is_folder: bool) -> list[str]:
    if any(sign in path for sign in "*?["):
        found = sorted(system.glob(path))
        if not found:
            raise SourceError(f"no file matches {path}")
        return found
    if not is_folder:
        return [path]
    root = path.rstrip("/") + "/"
    below = sorted(system.find(path))
    if not (found := [name for name in below if is_data(Path(name.removeprefix(root)))]):
        raise SourceError(f"{path} holds no data files")
    return found


def _location(system: Any, path: str) -> Location:
    name = system.unstrip_protocol(path)
    opener: Callable[[], Readable] = partial(_RemoteFile, partial(system.open, path, "rb"))
    return Location(name, opener, system.size(path))


class _RemoteFile(io.RawIOBase):
    """A file of a backend that raises nothing but OSErrors."""

    def __init__(self, opener: Callable[[], Any]) -> None:
        super().__init__()
        with _client_errors():
            self._file = opener()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with _client_errors():
            return int(self._file.readinto(buffer))

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        with _client_errors():
            return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


@contextmanager
def _client_errors() -> Iterator[None]:
    """Turn whatever a client library raises into an OSError of one line."""
    try:
        yield
    except (ImportError, SourceError):
        raise
    except Exception as error:
        # Any: botocore's and httpx's errors have no base in common with each other, nor with OSError.
        raise OSError(_reason(error)) from error


def _reason(error: Exception) -> str:
    # fsspec says "not found" of whatever its client said before.
    told = error.__cause__ or error
    words = " ".join(str(told).split())
    if isinstance(told, FileNotFoundError):
        return "no such file there"
    return f"{type(told).__name__}: {words}" if words else type(told).__name__
