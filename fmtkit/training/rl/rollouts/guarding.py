"""Put every request of TRL's client of vLLM under a time limit, in whichever trainer it is."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from fmtkit.training.rl.rollouts.lifeline import GuardedClient, Lifeline
from fmtkit.training.rl.rollouts.server import ServerError, address
from fmtkit.training.run.callbacks import asked_to_stop

_CONNECT_SECONDS = 10.0


def guard(
    trainer: Any, holder: Any, request_seconds: float, lifeline: Lifeline | None = None
) -> None:
    """Let the client of `holder` (its `vllm_client`, on the main process) be guarded by a lifeline."""
    client = getattr(holder, "vllm_client", None)
    if client is None or isinstance(client, GuardedClient):
        return
    if lifeline is None:
        lifeline = Lifeline(
            address(vars(trainer.args)),
            trainer.args.vllm_server_timeout,
            request_seconds=request_seconds,
            is_stopped=partial(asked_to_stop, trainer),
        )
    session = getattr(client, "session", None)
    if session is not None:
        limit(session, request_seconds)
    holder.vllm_client = GuardedClient(client, lifeline)


def limit(session: Any, seconds: float) -> None:
    """Give every request of a session of `requests` a time limit; one that was late is not repeated.

    The session repeats POST requests as well, so that five more limits would pass unnoticed.
    """
    session.request = partial(session.request, timeout=(_CONNECT_SECONDS, seconds))
    for adapter in session.adapters.values():
        adapter.max_retries = adapter.max_retries.new(read=0)


@contextmanager
def limited_requests(seconds: float) -> Iterator[None]:
    """Give the requests that TRL makes in a trainer's construction a time limit.

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
