"""A vLLM server that may be lost: calls are retried for a while, then the run ends after a checkpoint.

TRL's client has no time limit. Here each request has one (`trl.vllm_request_timeout`), and while it waits,
the server is watched: a frozen server accepts requests and answers none, and one with a frozen worker
answers health checks too, but computes nothing. The run waits for a server that is gone or frozen as long
as at its start (`trl.vllm_server_timeout`). A signal that asks the run to stop ends the waiting at once. A
server that was restarted has the base model's weights: an adapter or files are sent again; weights by NCCL
cannot be, since its group died with the server.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from fmtkit.core.foreign_calls import Call
from fmtkit.training.building.callbacks import BetweenStepsError, TrainingError
from fmtkit.training.building.interrupts import INTERRUPTED
from fmtkit.training.vllm.rollout_settings import REQUEST_SECONDS
from fmtkit.training.vllm.server_state import ServerError, VllmServer

Answer = TypeVar("Answer")

_ERROR_PAUSES = (2.0, 10.0)
"""Seconds before each further try after an error inside the server: one whose worker has died says so with a
status 500 while it is still up, and ends a moment later."""
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
LOOK_SECONDS = 0.2
"""Seconds between two checks for an answer or a signal."""
PROBE_SECONDS = 10.0
"""Seconds between two health checks of a server with a request in flight."""
_PROBE_ANSWER = 5.0
TOKEN_ANSWER = 10.0
"""Seconds that a request for one token may take before the server's progress is compared again."""
_STOP_GRACE = 30.0
"""Seconds that a transfer of weights may take after a signal: it cannot be interrupted."""


class ServerLostError(BetweenStepsError):
    """A run's server is gone or stopped answering; the message says how to continue."""

    is_shared = True


class StoppedError(ServerLostError):
    """A signal ended the wait for a server."""


def _never() -> bool:
    return False


class Lifeline:
    """Runs calls to a server, and waits for it if it does not answer.

    `restore` brings a server that was restarted to the current weights; None where that is impossible.
    """

    def __init__(
        self,
        server: VllmServer,
        seconds: float,
        restore: Callable[[], None] | None = None,
        pause: Callable[[float], None] | None = None,
        *,
        request_seconds: float = REQUEST_SECONDS,
        is_stopped: Callable[[], bool] = _never,
    ) -> None:
        """Take the seconds to wait for a server, and the time limit of a request."""
        self.server = server
        self.seconds = seconds
        self.restore = restore
        self.pause = pause or self._pause
        self.request_seconds = request_seconds
        self.is_stopped = is_stopped
        self.instance = server.instance()
        self.answers = 0
        """Requests of this process that have ended, in any of its threads."""

    def run(self, call: Callable[[], Any]) -> Any:
        """Return what the call returns.

        Raises ServerLostError if the server does not come back as it was, TrainingError if it is there
        and refuses.
        """
        for pause in _ERROR_PAUSES:
            try:
                return self._limited(call)
            except Exception as error:
                reason = _failure(error) or self.silence(error)
                if reason is None:
                    raise
                if _failure(error) is not None:
                    self.pause(pause)
                self._recover(reason)
        return self.run_once(call)

    def run_once(self, call: Callable[[], Any]) -> Any:
        """Return what the call returns, without a retry; raises what `run` raises."""
        try:
            return self._limited(call)
        except Exception as error:
            reason = self.silence(error)
            if reason is None:
                raise
            raise ServerLostError(self.lost(f"did not answer ({reason})")) from error

    def _limited(self, call: Callable[[], Any]) -> Any:
        """Return what a request returns, or raise what it raises.

        Raises ServerLostError for one that takes too long, and for a server that is frozen meanwhile;
        StoppedError after a signal. The request is then left running, since its socket belongs to TRL's
        client.
        """
        waiting = Call(call)
        begun = asked = time.monotonic()
        watch = _Watch(self, begun)
        while not waiting.is_done(LOOK_SECONDS):
            self._check_stopped()
            now = time.monotonic()
            if now - begun >= self.request_seconds:
                raise ServerLostError(
                    f"the vLLM server at {self.server.url} took more than {self.request_seconds:g} s "
                    "for a request; if answers take so long, raise trl.vllm_request_timeout"
                )
            if now - asked >= PROBE_SECONDS:
                watch.look()
                asked = time.monotonic()
        self.answers += 1
        return waiting.result()

    def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self.is_stopped() and time.monotonic() < end:
            time.sleep(LOOK_SECONDS)

    def _check_stopped(self) -> None:
        if self.is_stopped():
            raise StoppedError(f"stopped while the vLLM server at {self.server.url} was waited for")

    def ask(self, question: Callable[[], Answer]) -> Answer:
        """Return what a request with a time limit of its own returns; raise StoppedError after a signal."""
        waiting = Call(question)
        while not waiting.is_done(LOOK_SECONDS):
            self._check_stopped()
        return waiting.result()

    @contextmanager
    def watching(self, what: str) -> Iterator[None]:
        """End the process if the block inside takes too long: a transfer by NCCL may never return.

        It has as long as a request, and a few seconds after a signal. No checkpoint can be written then.
        """
        done = threading.Event()
        watch = threading.Thread(target=self._watch, args=(done, what), daemon=True)
        watch.start()
        try:
            yield
        finally:
            done.set()
            watch.join()

    def _watch(self, done: threading.Event, what: str) -> None:
        end = time.monotonic() + self.request_seconds
        is_stopped = False
        while not done.wait(LOOK_SECONDS):
            if self.is_stopped() and not is_stopped:
                is_stopped, end = True, min(end, time.monotonic() + _STOP_GRACE)
            if time.monotonic() >= end:
                took = "a signal came" if is_stopped else f"{self.request_seconds:g} s"
                line = (
                    f"error: {self.lost(f'did not end {what} after {took}')}; --resume continues "
                    "from the last checkpoint\n"
                )
                sys.stderr.write(line)
                sys.stderr.flush()
                os._exit(INTERRUPTED if is_stopped else 1)

    def silence(self, error: Exception) -> str | None:
        """Return why there was no answer, None for other errors; raise for a refusal."""
        reason = _reason(error)
        if isinstance(error, ServerLostError):
            raise error
        if _is_refusal(error):
            raise TrainingError(
                f"the vLLM server at {self.server.url} refused: {reason}"
            ) from error
        # The exceptions of `requests`, which TRL's client uses, are OSErrors.
        return reason if isinstance(error, (OSError, ServerError)) else None

    def _recover(self, reason: str) -> None:
        """Wait for the server; raise ServerLostError if it does not return, or returned without weights."""
        waited, step = 0.0, _FIRST_PAUSE
        begun = time.monotonic()
        while not self.server.is_up():
            self._check_stopped()
            waited = max(waited, time.monotonic() - begun)
            if waited >= self.seconds:
                raise ServerLostError(
                    self.lost(f"has been gone for {self.seconds:.0f} s ({reason})")
                )
            self.pause(step)
            waited += step
            step = min(step * 2, _LONGEST_PAUSE)
        before, self.instance = self.instance, self.ask(self.server.instance)
        known = before is not None and self.instance is not None
        if before == self.instance if known else waited == 0:
            return
        if self.restore is None:
            raise ServerLostError(self.lost("was restarted and lacks the trained weights"))
        self.restore()

    def lost(self, what: str) -> str:
        """Return the message for a lost server, with what to do."""
        return f"the vLLM server at {self.server.url} {what}; start it again with fmtkit vllm-serve"


class _Watch:
    """Looks at a server while a request waits: whether it answers, and whether it computes."""

    def __init__(self, lifeline: Lifeline, begun: float) -> None:
        self.lifeline = lifeline
        self.well = self.moved = begun
        self.progress: tuple[object, ...] | None = None

    def look(self) -> None:
        """Raise ServerLostError for a server that is frozen, completely or in a worker."""
        lifeline = self.lifeline
        if not lifeline.server.is_up(_PROBE_ANSWER):
            silent = time.monotonic() - self.well
            if silent >= lifeline.seconds:
                raise ServerLostError(lifeline.lost(f"has been frozen for {silent:.0f} s"))
            return
        self.well = time.monotonic()
        if self._has_moved() or self.well - self.moved < lifeline.seconds:
            return
        if self._generates() or self._has_moved():
            self.moved = time.monotonic()
            return
        still = time.monotonic() - self.moved
        raise ServerLostError(
            lifeline.lost(
                f"has been frozen for {still:.0f} s (it answers /health, but computes no token)"
            )
        )

    def _has_moved(self) -> bool:
        """Return whether anything was computed or answered since the last look, or cannot be known."""
        computed = self.lifeline.server.progress(_PROBE_ANSWER)
        progress = None if computed is None else (self.lifeline.answers, *computed)
        has_moved = progress is None or progress != self.progress
        self.progress = progress
        if has_moved:
            self.moved = time.monotonic()
        return has_moved

    def _generates(self) -> bool:
        """Return whether one token is generated in time; a long queue may delay it."""
        lifeline = self.lifeline
        return lifeline.ask(partial(lifeline.server.generates, TOKEN_ANSWER))


def _reason(error: Exception) -> str:
    return str(error).partition("\n")[0][:500]


def _failure(error: Exception) -> str | None:
    """Return what an error inside the server says, None for other errors: a status from 500."""
    status = error.status if isinstance(error, ServerError) else None
    said = str(error)
    is_trls = type(error) is Exception and said.startswith("Request failed: 5")
    return _reason(error) if is_trls or (status is not None and status >= 500) else None


def _is_refusal(error: Exception) -> bool:
    """Return whether the server refused: TRL raises a bare Exception with the status."""
    if isinstance(error, ServerError):
        return error.status is not None
    return type(error) is Exception and str(error).startswith("Request failed:")
