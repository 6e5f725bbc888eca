"""Images at URLs, fetched for `--fetch-images` with bounds on size, time and number.

A request goes to each address that the rows name, so nothing is fetched unless it was asked for, and only
from web servers and object stores. What comes back must be an image: the page of an error is none.
"""

import threading
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

from fmtkit.core import storage
from fmtkit.core.credentials import public
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import ImageError, OptionError
from fmtkit.core.foreign_calls import OverdueError, within_or_abandoned
from fmtkit.images.headers import read_header
from fmtkit.images.resolving import MISSING

WEB = frozenset({"http", "https"})
_AT_ONCE = 1 << 16
"""Bytes of one read from a web server."""
_SILENT = 3
"""Requests in a row without an answer after which a host is not asked again."""


@dataclass(frozen=True)
class FetchLimits:
    """Bounds of fetching."""

    size: int = 64 << 20
    """Bytes of one image."""
    seconds: float = 30.0
    """For one image; a transient error is tried again, with as much time."""
    count: int = 1_000_000
    """Images of one call."""
    workers: int = 8
    """Requests at the same time; no more than twice as many images are in memory."""


def fetch_images(
    urls: Iterable[str], limits: FetchLimits | None = None
) -> Iterator[tuple[str, bytes | ImageError]]:
    """Yield each URL, in order, with the bytes of its image or the error that it met (`image_missing`).

    An error of one image does not end the others; a host that did not answer three times in a row is not
    asked again.

    Raises:
        DependencyError: A package is missing that serves the scheme.
    """
    bounds = limits or FetchLimits()
    hosts = _Hosts()
    waiting: deque[tuple[str, Future[bytes]]] = deque()
    pool = ThreadPoolExecutor(bounds.workers, thread_name_prefix="fetch-images")
    try:
        for number, url in enumerate(urls):
            if number >= bounds.count:
                waiting.append(
                    (url, _failed(f"more than {bounds.count:,} images are to be fetched"))
                )
            else:
                waiting.append((url, pool.submit(_fetched, url, bounds, hosts)))
            if len(waiting) >= 2 * bounds.workers:
                yield _outcome(*waiting.popleft())
        while waiting:
            yield _outcome(*waiting.popleft())
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _failed(reason: str) -> "Future[bytes]":
    future: Future[bytes] = Future()
    future.set_exception(ImageError(reason, MISSING))
    return future


def _outcome(url: str, future: "Future[bytes]") -> tuple[str, bytes | ImageError]:
    try:
        return url, future.result()
    except ImageError as error:
        return url, error


class _Hosts:
    """Which hosts do not answer; threads share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._silent: Counter[str] = Counter()

    def check(self, host: str, name: str) -> None:
        with self._lock:
            if self._silent[host] >= _SILENT:
                raise ImageError(f"{name} cannot be fetched: {host} has not answered", MISSING)

    def answered(self, host: str, *, is_silent: bool) -> None:
        with self._lock:
            self._silent[host] = self._silent[host] + 1 if is_silent else 0


def _fetched(url: str, limits: FetchLimits, hosts: _Hosts) -> bytes:
    """Return the bytes of the image at a URL; raise as `fetch_images` yields."""
    name = public(url)
    host = public(url).partition("://")[2].partition("/")[0]
    hosts.check(host, name)
    scheme = url.partition("://")[0].lower()
    # fsspec would open a local file for a URL behind "::".
    if scheme not in WEB | storage.PACKAGES.keys() or "::" in url:
        raise ImageError(f"{name} is no URL of a web server or an object store", MISSING)
    try:
        system, path = storage.file_system(url, "fetching")
        read = partial(_read, system, path, scheme, limits.size)
        data = storage.repeated(
            partial(within_or_abandoned, limits.seconds, read),
            final=(OverdueError, *_connection_errors()),
            limit=limits.seconds,
        )
    except OSError as error:
        is_silent = isinstance(error.__cause__, (OverdueError, *_connection_errors()))
        hosts.answered(host, is_silent=is_silent)
        raise ImageError(f"{name} cannot be fetched: {error}", MISSING) from error
    except OptionError as error:
        # A key or a token in the address of a store.
        raise ImageError(str(error), MISSING) from error
    hosts.answered(host, is_silent=False)
    if len(data) > limits.size:
        raise ImageError(f"{name} is larger than {limits.size:,} bytes", MISSING)
    try:
        read_header(data)
    except ImageError as error:
        raise ImageError(f"{name} is no image: {error}", MISSING) from error
    return data


def _connection_errors() -> tuple[type[Exception], ...]:
    """Return the errors of a host that takes no connection, which another try would not help."""
    try:
        from aiohttp import ClientConnectorError
    except ImportError:
        return (ConnectionRefusedError,)
    return ConnectionRefusedError, ClientConnectorError


def _read(system: Any, path: str, scheme: str, most: int) -> bytes:
    """Return the bytes of a file up to one more than `most`."""
    if scheme not in WEB:
        with system.open(path, "rb", cache_type="none") as file:
            return bytes(file.read(most + 1))
    # Without blocks it is one request, read as it comes; with a size none more that asks for the size.
    data = bytearray()
    with system.open(path, "rb", block_size=0, size=1) as file:
        while len(data) <= most and (part := file.read(_AT_ONCE)):
            data += part
    return bytes(data)
