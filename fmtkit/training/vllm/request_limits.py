"""Time limits of the requests of TRL's client and trainers, which have none of their own."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from fmtkit.training.vllm.server_state import ServerError

_CONNECT_SECONDS = 10.0


def limit(session: Any, seconds: float) -> None:
    """Give every request of a `requests` session a time limit; a late one is not repeated.

    The session repeats POST requests as well, so five more time limits would pass unnoticed.
    """
    session.request = partial(session.request, timeout=(_CONNECT_SECONDS, seconds))
    for adapter in session.adapters.values():
        adapter.max_retries = adapter.max_retries.new(read=0)


@contextmanager
def limited_requests(seconds: float) -> Iterator[None]:
    """Give the requests of TRL's trainer constructor a time limit.

    Raises ServerError where the server is gone or frozen by then.
    """
    try:
        from requests import RequestException
        from requests.adapters import HTTPAdapter
    except ImportError:
        # TRL says itself that its client needs it.
        yield
        return
    adapter: Any = HTTPAdapter
    before = adapter.send

    def send(self: Any, request: Any, *, timeout: Any = None, **others: Any) -> Any:
        self.max_retries = self.max_retries.new(read=0)
        limits = timeout or (_CONNECT_SECONDS, max(seconds, _CONNECT_SECONDS))
        return before(self, request, timeout=limits, **others)

    adapter.send = send
    try:
        yield
    except RequestException as error:
        raise ServerError(f"the vLLM server did not answer ({error})") from error
    finally:
        adapter.send = before
