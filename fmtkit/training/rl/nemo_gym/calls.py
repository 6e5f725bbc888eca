"""JSON over HTTP, with cookies and a limit on the whole call; nothing but the standard library."""

import json
import time
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import urlsplit

PAUSES = (0.5, 1.0, 2.0)
"""Seconds between the tries of a call that no server took: one that is restarted comes back."""
_CHUNK = 1 << 16


class CallError(Exception):
    """Say why a call has no answer, and the status where there was one."""

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class NotTakenError(CallError):
    """Say why no server took a call: nothing happened, and it may be made again."""


class BrokenOffError(CallError):
    """Say how a call was broken off: the server may have done what was asked, or not."""


@dataclass
class Session:
    """The cookies of one conversation with the servers: a stateful one knows us by them."""

    cookies: dict[str, str] = field(default_factory=dict)

    def header(self) -> dict[str, str]:
        """Return the header that carries the cookies."""
        if not self.cookies:
            return {}
        return {"Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())}

    def keep(self, headers: list[str]) -> None:
        """Take over the cookies that an answer sets."""
        for header in headers:
            try:
                morsels = SimpleCookie(header)
            except CookieError as error:
                raise CallError(f"the answer's cookie cannot be read: {error}") from error
            self.cookies.update({name: morsel.value for name, morsel in morsels.items()})


def post(
    url: str, body: bytes, timeout: float, session: Session | None = None, *, repeats: bool = False
) -> Any:
    """Post JSON and return the parsed answer, trying again where no server took the call.

    With `repeats` a call that was broken off is made again as well: it changes nothing over there.
    Raises CallError for whatever else happens.
    """
    passing = (NotTakenError, BrokenOffError) if repeats else NotTakenError
    for pause in PAUSES:
        try:
            return _call("POST", url, body, timeout, session or Session())
        except passing:
            time.sleep(pause)
    return _call("POST", url, body, timeout, session or Session())


def get(url: str, timeout: float) -> Any:
    """Get JSON; raise CallError where there is none."""
    return _call("GET", url, None, timeout, Session())


def answers(url: str, timeout: float) -> bool:
    """Tell whether a server answers there at all, whatever it says."""
    try:
        _call("GET", url, None, timeout, Session())
    except CallError as error:
        return error.status is not None
    return True


def _call(method: str, url: str, body: bytes | None, timeout: float, session: Session) -> Any:
    parts = urlsplit(url)
    connect = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = connect(parts.hostname or "", parts.port, timeout=timeout)
    deadline = time.monotonic() + timeout
    try:
        try:
            connection.connect()
        except OSError as error:
            raise NotTakenError(f"no server at {url} ({_reason(error)})") from error
        try:
            status, answer = _exchange(connection, (method, parts, body), deadline, session)
        except TimeoutError as error:
            raise CallError(f"{url} did not answer within {timeout:g} s") from error
        except (OSError, HTTPException) as error:
            raise BrokenOffError(f"{url} broke off ({_reason(error)})") from error
    finally:
        connection.close()
    return _parsed(url, status, answer)


def _exchange(
    connection: HTTPConnection,
    request: tuple[str, Any, bytes | None],
    deadline: float,
    session: Session,
) -> tuple[int, bytes]:
    """Send a request and read the whole answer before the deadline."""
    method, parts, body = request
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    connection.request(method, target, body, headers | session.header())
    response = connection.getresponse()
    session.keep(response.headers.get_all("Set-Cookie") or [])
    pieces: list[bytes] = []
    # Each read has a limit of its own: a server that sends a byte now and then would outlast it.
    while piece := _read(connection, response, deadline):
        pieces.append(piece)
    return response.status, b"".join(pieces)


def _read(connection: HTTPConnection, response: Any, deadline: float) -> bytes:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    if connection.sock is not None:
        connection.sock.settimeout(left)
    return bytes(response.read1(_CHUNK))


def _parsed(url: str, status: int, answer: bytes) -> Any:
    if not 200 <= status < 300:
        text = " ".join(answer[:300].decode("utf-8", "replace").split())
        raise CallError(f"{url} answered {status}: {text}", status=status)
    try:
        return json.loads(answer)
    except (ValueError, RecursionError) as error:
        raise CallError(f"{url} answered {status} with what is no JSON", status=status) from error


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__
