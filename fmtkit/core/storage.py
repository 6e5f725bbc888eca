"""Files at URLs, by fsspec: the package for each scheme, time limits, retries, and hidden credentials.

Each backend of fsspec uses a different client library, with its own errors. `attempted` gives every call a
time limit, retries transient errors, and raises any other as an OSError with a one-line message.
"""

import math
import os
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from fmtkit.core.credentials import STORES, has_credentials, public
from fmtkit.core.errors import DependencyError, FmtkitError, OptionError
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
SECONDS_VARIABLE = "FMTKIT_STORAGE_SECONDS"
"""The environment variable with the time limit of one request."""
REQUEST_SECONDS = 60.0
"""The time limit of one request, in seconds, unless the variable is set."""

_PERMANENT = (
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
"""Errors that a retry does not help against."""
_VERSION_KEYS = ("ETag", "etag", "md5Hash", "generation", "content_md5", "Content-MD5", "blob_id", "mtime",
          "LastModified", "Last-Modified", "last_modified", "created", "modify")  # fmt: skip
"""Keys of fsspec's info that change with the content of a file, the most reliable first."""
_RETRIED_STATUS = frozenset({408, 425, 429})
"""4xx statuses after which the same request may succeed."""


class ChangedError(OSError):
    """The file is no longer the one that was listed."""


class CutShortError(OSError):
    """A file ended early; a retry may return the rest."""


def refuse_credentials(url: str) -> None:
    """Raise OptionError for the address of a store or of the hub with a key or a token in it.

    No client reads them there: they would become a part of the name that it looks for, and of its errors.
    """
    scheme = url.partition(":")[0].lower()
    if scheme not in PACKAGES or not has_credentials(url):
        return
    # Of other stores the name of an object may look like a query.
    if scheme == "hf" or has_credentials(url.partition("?")[0]):
        where = (
            "HF_TOKEN" if scheme == "hf" else "its client's environment variables or configuration"
        )
        raise OptionError(
            f"{public(url)}: this address takes no keys or tokens; give them in {where}"
        )


def file_system(url: str, use: str) -> tuple[Any, str]:
    """Return the file system of a URL and the path in it.

    `use` names the operation for error messages: "reading".

    Raises:
        DependencyError: if the package for the scheme is not installed.
        OptionError: if the URL of an object store holds a key or token.
        OSError: if fsspec does not know the scheme, or the client cannot be created.
    """
    scheme = url.partition(":")[0].lower()
    refuse_credentials(url)
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
        # Any error: each client looks for credentials in its own way when it is created.
        raise in_one_line(error) from error
    return system, str(path)


def _missing(url: str, use: str, package: str, extra: str) -> DependencyError:
    return DependencyError(
        f"{use} {public(url)} needs the package {package}: pip install 'fmtkit[{extra}]'"
    )


def seconds() -> float:
    """Return the time limit of one request; raise OptionError if the variable is not a number above 0."""
    given = os.environ.get(SECONDS_VARIABLE)
    if not given:
        return REQUEST_SECONDS
    try:
        limit = float(given)
    except ValueError:
        limit = 0.0
    if not 0 < limit < math.inf:
        raise OptionError(f"{SECONDS_VARIABLE}={given}: give a number of seconds above 0")
    return limit


def attempted(call: Callable[[], T], *, first: float | None = None) -> T:
    """Return the result of a request, which is made up to four times if errors are transient.

    Each attempt may take FMTKIT_STORAGE_SECONDS. For the first request to a storage, `first` is the time
    limit instead, and a timeout or a refused connection is not retried.

    Raises:
        OSError: With a one-line message; its subclass is FileNotFoundError, FileExistsError,
            PermissionError or TimeoutError where one of them applies.
        ImportError, FmtkitError: Unchanged.
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
    """Return the result of a call with timeouts of its own; retry and raise as `attempted` does.

    Errors of the types in `final` are not retried.
    """
    for pause in (*PAUSES, None):
        try:
            return call()
        except Exception as error:
            # Any error: those of botocore and of httpx have no base class in common but Exception.
            if pause is None or isinstance(error, final) or not is_transient(error):
                raise in_one_line(error, limit) from error
        time.sleep(pause)
    raise AssertionError  # the last attempt has no pause


def within(call: Callable[[], T]) -> T:
    """Return the result of a request that is made once; raise as `attempted` does."""
    try:
        return within_or_abandoned(seconds(), call)
    except Exception as error:
        raise in_one_line(error, seconds()) from error


def is_transient(error: BaseException) -> bool:
    """Return whether the same request may succeed later."""
    cause = error.__cause__ or error
    permanent = (*_PERMANENT, ChangedError, FmtkitError)
    if isinstance(error, permanent) or isinstance(cause, permanent):
        return False
    if "Credential" in type(cause).__name__:
        return False
    status = _status(cause)
    if status is not None and 400 <= status < 500:
        return status in _RETRIED_STATUS
    return "FileExpired" not in type(error).__name__


def _status(cause: BaseException) -> int | None:
    """Return the HTTP status in an error of a client library, if it has one."""
    if type(cause) is OSError and str(cause).startswith("Forbidden: "):
        return 403  # gcsfs raises it without a status
    # `code` is gcsfs's; aiohttp's errors also have it, as 400 where a response broke off, so it counts
    # only for gcsfs. `status_code` is Azure's.
    names = ("code",) if type(cause).__name__ == "HttpError" else ("status", "status_code")
    found = (getattr(cause, name, None) for name in names)
    return next((status for status in found if isinstance(status, int)), None)


def in_one_line(error: Exception, limit: float = 0) -> Exception:
    """Return an OSError with a one-line message for an error of a client library.

    ImportError and errors of fmtkit are returned unchanged.
    """
    if isinstance(error, ImportError | FmtkitError | ChangedError | CutShortError):
        return error
    if isinstance(error, OverdueError):
        return TimeoutError(f"no answer within {limit:g} seconds")
    if type(error).__name__ == "FileExpired":
        return ChangedError("it changed while it was read; run again")
    kinds = (FileNotFoundError, FileExistsError, PermissionError, TimeoutError)
    by_status = {401: PermissionError, 403: PermissionError, 404: FileNotFoundError}
    kind = by_status.get(_status(error.__cause__ or error) or 0, OSError)
    return next((kind for kind in kinds if isinstance(error, kind)), kind)(_reason(error))


def _reason(error: Exception) -> str:
    # fsspec raises FileNotFoundError for many errors of its clients; the cause is the client's.
    cause = error.__cause__ or error
    if isinstance(cause, FileNotFoundError):
        return "no such file there"
    # Azure appends the id of the request, and the same message as XML.
    words = public(" ".join(str(cause).partition("\nRequestId:")[0].split()))
    return f"{type(cause).__name__}: {words}" if words else type(cause).__name__


def place_of(url: str) -> tuple[str, str]:
    """Return the store of a URL, the same for all schemes of a store, and the path in it.

    The store of a local path is empty.
    """
    scheme, found, place = url.partition("://")
    store = PACKAGES.get(scheme.lower(), (scheme.lower(), ""))[0] if found else ""
    return store, place.strip("/")


def mark_of(details: Mapping[str, Any]) -> tuple[int | None, str]:
    """Return what identifies the version of a file: its size, and its ETag or the best substitute."""
    size = details.get("size")
    known = next((details[name] for name in _VERSION_KEYS if details.get(name)), "")
    # Listings return times as numbers, where the info of a single file has datetimes.
    mark = known.timestamp() if isinstance(known, datetime) else known
    return (None if size is None else int(size)), str(mark)


WRITABLE = STORES
"""Schemes that can be written: files appear atomically, and on request only if none exists yet."""
