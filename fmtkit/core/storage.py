"""Files at URLs, by fsspec: packages of schemes, time limits, retries, and credentials hidden in messages.

Each backend of fsspec asks a client library with errors of its own. `attempted` gives every call a time
limit, repeats what fails for a moment, and raises an OSError of one line for what does not.
"""

import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import PurePosixPath
from typing import Any, TypeVar

from fmtkit.core.errors import DependencyError, FmtkitError
from fmtkit.core.foreign_calls import OverdueError, within_or_abandoned

T = TypeVar("T")

PACKAGES = {
    "s3": ("s3fs", "s3"),
    "s3a": ("s3fs", "s3"),
    "gs": ("gcsfs", "gcs"),
    "gcs": ("gcsfs", "gcs"),
    "az": ("adlfs", "azure"),
    "abfs": ("adlfs", "azure"),
    "abfss": ("adlfs", "azure"),
    "hf": ("huggingface_hub", "hub"),
}
"""Scheme -> the package that implements it, and the extra of fmtkit that installs it."""

PAUSES = (0.5, 2.0, 6.0)
"""Seconds between attempts after a transient error."""
WAITING = "FMTKIT_STORAGE_SECONDS"
"""The environment variable that says how long one request may take."""
REQUEST_SECONDS = 60.0

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"<>]+")
_CONTAINERS = frozenset({"abfs", "abfss", "wasb", "wasbs"})
"""Schemes whose URLs name a container where others have a user: abfs://CONTAINER@ACCOUNT/PATH."""
_SHOWN = frozenset({"versionid", "version_id", "generation", "snapshot", "revision", "download"})
"""Parameters of a query whose values are no secret; any other may be a signature or a token."""
_HIDDEN = "***"
_PARAMETER = re.compile(r"([^&=]+)=([^&]*)")
_SECRET = re.compile(r"(?i)^x-|sig|token|secret|key|credential|password|auth")
_HOPELESS = (
    FileNotFoundError,
    FileExistsError,
    PermissionError,
    IsADirectoryError,
    NotADirectoryError,
    ImportError,
    NotImplementedError,
    ValueError,
    TypeError,
)
_MARKS = ("ETag", "etag", "md5Hash", "generation", "content_md5", "blob_id", "mtime", "LastModified",
          "last_modified", "created", "modify")  # fmt: skip
"""Details of a file that change with its content, the most reliable first."""
_TRY_AGAIN = frozenset({408, 425, 429})
"""HTTP statuses of 4xx after which the same request may succeed."""


class ChangedError(OSError):
    """The file is no longer the one that was listed."""


class CutShortError(OSError):
    """A file ended early; a retry may return the rest."""


def public(text: str) -> str:
    """Return a URL, or a message with URLs in it, without user, password and values of a query."""
    return _URL.sub(lambda found: _public(found[0]), text)


def _public(url: str) -> str:
    scheme, _, rest = url.partition("://")
    rest, asked, query = rest.partition("?")
    authority, slash, path = rest.partition("/")
    user, at, host = authority.rpartition("@")
    if at and (scheme.lower() not in _CONTAINERS or ":" in user):
        authority = host
    is_object = scheme.lower() in (*PACKAGES, "memory")
    return f"{scheme}://{authority}{slash}{path}{asked}{_public_query(query, is_object=is_object)}"


def _public_query(query: str, *, is_object: bool) -> str:
    """Hide the values of a query; of an object store, where names may hold a "?", those of secrets."""
    if query and "=" not in query and not is_object:
        return _HIDDEN  # no list of parameters: it may be the secret itself
    return _PARAMETER.sub(
        lambda found: (
            found[0]
            if found[1].lower() in _SHOWN or (is_object and not _SECRET.search(found[1]))
            else f"{found[1]}={_HIDDEN}"
        ),
        query,
    )


def file_system(url: str, use: str) -> tuple[Any, str]:
    """Return the file system of a URL and the path in it.

    `use` is what is done, for the error: "reading".

    Raises:
        DependencyError: if the package that serves the scheme is not installed.
        OSError: if fsspec knows no such scheme, or the client cannot be made.
    """
    scheme = url.partition(":")[0].lower()
    package, extra = PACKAGES.get(scheme, ("fsspec", "hub"))
    try:
        import fsspec
    except ImportError as error:
        raise _missing(url, use, package, extra) from error
    try:
        system, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        if scheme in PACKAGES:
            raise _missing(url, use, package, extra) from error
        raise DependencyError(f"{use} {public(url)} needs another package: {error}") from error
    except Exception as error:
        # Any: clients look for credentials when they are made, each in its own way.
        raise in_one_line(error) from error
    return system, str(path)


def _missing(url: str, use: str, package: str, extra: str) -> DependencyError:
    return DependencyError(
        f"{use} {public(url)} needs the package {package}: pip install 'fmtkit[{extra}]'"
    )


def seconds() -> float:
    """Return how long one request may take."""
    try:
        return float(os.environ.get(WAITING, ""))
    except ValueError:
        return REQUEST_SECONDS


def attempted(call: Callable[[], T], *, first: float | None = None) -> T:
    """Return what a request returns, tried up to four times after transient errors.

    Each attempt may take as many seconds as FMTKIT_STORAGE_SECONDS says. With `first`, so many: nothing
    was heard of this storage before, and who does not answer now is not asked again.

    Raises:
        OSError: of one line, with the class of the error where Python has one for it
            (FileNotFoundError, FileExistsError, PermissionError, TimeoutError).
        ImportError, FmtkitError: as they are.
    """
    limit = seconds() if first is None else first
    return repeated(
        partial(within_or_abandoned, limit, call),
        final=(OverdueError, ConnectionRefusedError) if first else (),
        limit=limit,
    )


def repeated(
    call: Callable[[], T], *, final: tuple[type[Exception], ...] = (), limit: float = 0
) -> T:
    """Return what a call returns that has its own timeouts; raises what `attempted` does.

    Errors of the types in `but` are final.
    """
    for pause in (*PAUSES, None):
        try:
            return call()
        except Exception as error:
            # Any: botocore's and httpx's errors have no base in common with each other, nor with OSError.
            if pause is None or isinstance(error, final) or not is_transient(error):
                raise in_one_line(error, limit) from error
        time.sleep(pause)
    raise AssertionError  # the last attempt has no pause


def within(call: Callable[[], T]) -> T:
    """Return what a request returns that is not retried; raises what `attempted` does."""
    try:
        return within_or_abandoned(seconds(), call)
    except Exception as error:
        raise in_one_line(error, seconds()) from error


def is_transient(error: BaseException) -> bool:
    """Return whether the same request may succeed later."""
    cause = error.__cause__ or error
    hopeless = (*_HOPELESS, ChangedError, FmtkitError)
    if isinstance(error, hopeless) or isinstance(cause, hopeless):
        return False
    if "Credential" in type(cause).__name__:
        return False
    status = _status(cause)
    if status is not None and 400 <= status < 500:
        return status in _TRY_AGAIN
    return "FileExpired" not in type(error).__name__


def _status(cause: BaseException) -> int | None:
    """Return the HTTP status in an error of a client library, if it has one."""
    if type(cause) is OSError and str(cause).startswith("Forbidden: "):
        return 403  # gcsfs's
    # `code` is gcsfs's; aiohttp has it too, as 400, of an answer that broke off. `status_code` is Azure's.
    names = ("code",) if type(cause).__name__ == "HttpError" else ("status", "status_code")
    found = (getattr(cause, name, None) for name in names)
    return next((status for status in found if isinstance(status, int)), None)


def in_one_line(error: Exception, limit: float = 0) -> Exception:
    """Return an OSError of one line for an error of a client library; ImportErrors and ours unchanged."""
    if isinstance(error, ImportError | FmtkitError | ChangedError | CutShortError):
        return error
    if isinstance(error, OverdueError):
        return TimeoutError(f"no answer within {limit:g} seconds")
    if type(error).__name__ == "FileExpired":
        return ChangedError("it changed while it was read; run again")
    kinds = (FileNotFoundError, FileExistsError, PermissionError, TimeoutError)
    said = {401: PermissionError, 403: PermissionError, 404: FileNotFoundError}
    kind = said.get(_status(error.__cause__ or error) or 0, OSError)
    return next((kind for kind in kinds if isinstance(error, kind)), kind)(_reason(error))


def _reason(error: Exception) -> str:
    # fsspec says "not found" of whatever its client said before.
    cause = error.__cause__ or error
    if isinstance(cause, FileNotFoundError):
        return "no such file there"
    # Behind its own line Azure says which request it was, and repeats itself as XML.
    words = public(" ".join(str(cause).partition("\nRequestId:")[0].split()))
    return f"{type(cause).__name__}: {words}" if words else type(cause).__name__


def place_of(url: str) -> tuple[str, str]:
    """Return the store of a URL (one for all of its schemes) and the path there; for a path, no store."""
    scheme, found, place = url.partition("://")
    store = PACKAGES.get(scheme.lower(), (scheme.lower(), ""))[0] if found else ""
    return store, place.strip("/")


def mark_of(details: Mapping[str, Any]) -> tuple[int | None, str]:
    """Return the version of a file: its size, and its etag or a substitute."""
    size = details.get("size")
    known = next((details[name] for name in _MARKS if details.get(name)), "")
    # Listings have times as numbers where the file itself has them as datetimes.
    mark = known.timestamp() if isinstance(known, datetime) else known
    return (None if size is None else int(size)), str(mark)


WRITABLE = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "memory")
"""Schemes whose files can be written: each appears whole, and only where there is none if that is asked."""


@dataclass(frozen=True)
class ObjectPath:
    """A file or a folder on an object store; its text hides what the URL holds of credentials."""

    url: str

    def __str__(self) -> str:
        return public(self.url)

    def __truediv__(self, name: str) -> "ObjectPath":
        return ObjectPath(f"{self.url.rstrip('/')}/{name}" if self.name else self.url + name)

    @property
    def name(self) -> str:
        """Return the last part of the path; nothing of the root."""
        return self.url.partition("://")[2].rstrip("/").rpartition("/")[2]

    @property
    def stem(self) -> str:
        """Return the last part of the path without its suffix."""
        return PurePosixPath(self.name).stem

    @property
    def parent(self) -> "ObjectPath":
        """Return the folder that the path is in."""
        scheme, _, place = self.url.partition("://")
        return ObjectPath(f"{scheme}://{place.rstrip('/').rpartition('/')[0]}")

    def with_name(self, name: str) -> "ObjectPath":
        """Return the path beside this one."""
        return self.parent / name
