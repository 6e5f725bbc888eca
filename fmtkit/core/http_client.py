"""JSON over HTTP by `requests`: a time limit on the complete call, and which failures may be retried."""

import time
from functools import partial
from typing import TYPE_CHECKING, Any

from fmtkit.core.foreign_calls import OverdueError, within_or_abandoned

if TYPE_CHECKING:
    from requests import Response, Session

PAUSES = (0.5, 1.0, 2.0)
"""Seconds between attempts of a call that no server accepted, since it may be restarting."""


class CallError(Exception):
    """A call has no answer; holds the reason, and the status where there was one."""

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class NotTakenError(CallError):
    """No server accepted a call: nothing happened, and it may be retried."""


class BrokenOffError(CallError):
    """A call was interrupted: the server may have done what was requested, or not."""


def session() -> "Session":
    """Return a session, whose cookies identify us to a stateful server.

    It ignores the environment's proxies, which are for the web and not for a machine in the same network.
    """
    from requests import Session

    client = Session()
    client.trust_env = False
    return client


def post(
    url: str, body: bytes, timeout: float, by: "Session | None" = None, *, repeats: bool = False
) -> Any:
    """Post JSON and return the parsed answer; retry if no server accepted the call.

    With `repeats`, an interrupted call is made again as well, since it changes nothing on the server.
    Raises CallError for any other failure.
    """
    passing = (NotTakenError, BrokenOffError) if repeats else NotTakenError
    for pause in PAUSES:
        try:
            return _parsed(request("POST", url, body, timeout, by))
        except passing:
            time.sleep(pause)
    return _parsed(request("POST", url, body, timeout, by))


def get(url: str, timeout: float) -> Any:
    """Get JSON; raise CallError if there is none."""
    return _parsed(request("GET", url, None, timeout))


def answers(url: str, timeout: float) -> bool:
    """Return whether a server answers at all, with any status."""
    try:
        get(url, timeout)
    except CallError as error:
        return error.status is not None
    return True


def request(
    method: str, url: str, body: bytes | None, timeout: float, by: "Session | None" = None
) -> "Response":
    """Return the answer to one request; raise CallError if there is none, or for a status of 400 or more."""
    import requests

    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    ask = partial((by or session()).request, method, url, data=body, headers=headers)
    try:
        # The limit of `requests` is on each read: a server that sends a byte now and then outlasts it.
        answer = within_or_abandoned(timeout, partial(ask, timeout=timeout))
    except (OverdueError, requests.ReadTimeout) as error:
        raise CallError(f"{url} did not answer within {timeout:g} s") from error
    except requests.RequestException as error:
        why = _reason(error)
        if _was_taken(error):
            raise BrokenOffError(f"{url} broke off ({why})") from error
        raise NotTakenError(f"no server at {url} ({why})") from error
    if not answer.ok:
        text = " ".join(answer.content[:300].decode("utf-8", "replace").split())
        status = answer.status_code
        raise CallError(f"{url} answered {status}: {text}", status=status)
    return answer


def _was_taken(error: Exception) -> bool:
    """Return whether a server may have read the call: the connection was not refused."""
    from requests import ConnectTimeout
    from urllib3.exceptions import MaxRetryError, NewConnectionError

    inner = error.args[0] if error.args else None
    refused = isinstance(inner, MaxRetryError) and isinstance(inner.reason, NewConnectionError)
    return not (refused or isinstance(error, ConnectTimeout))


def _reason(error: BaseException) -> str:
    """Return the operating system's error, without the library's errors around it."""
    inner: BaseException | None = error
    while inner is not None and not (isinstance(inner, OSError) and inner.errno is not None):
        inner = inner.__cause__ or inner.__context__
    return str(inner or error) or type(error).__name__


def _parsed(answer: "Response") -> Any:
    try:
        return answer.json()
    except (ValueError, RecursionError) as error:
        status = answer.status_code
        raise CallError(
            f"{answer.url} answered {status} with something that is not JSON", status=status
        ) from error
