"""Calls into foreign code: time limits, retries, and bisection of a batch that fails.

`within` interrupts a call. On the main thread a signal is sent, whose handler raises in the call itself:
loops, sleeps, sockets, subprocesses and regular expressions end there. It is not SIGALRM, which reward
functions use themselves. A second thread sends it to a call that waits; the CPU-time timer of the process
sends it to a call that computes without releasing the GIL, as a regular expression does. C code that never
checks for signals cannot be interrupted: `faulthandler` ends the process, with a traceback. Outside the main
thread nothing can stop a call, and it is abandoned, as `within_or_abandoned` does on any thread.
"""

import faulthandler
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from types import FrameType, TracebackType
from typing import Any, Generic, TypeVar

from fmtkit.core.data_classes import dataclass

T = TypeVar("T")

_AGAIN = 1.0
"""Seconds until a call that swallowed the interrupt is interrupted again."""
GRACE = 30.0
"""Seconds that a call has to end after the first interrupt."""
FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 8.0
"""Seconds before the first retry; each further one waits twice as long, up to the longest."""
_SHORTEST = 1.0
"""Seconds that a part of a batch may take at least, if the whole batch may."""


class OverdueError(TimeoutError):
    """A call exceeded its time limit; `where` is the traceback of its interruption."""

    def __init__(self, seconds: float, where: TracebackType | None = None) -> None:
        super().__init__(f"no answer within {seconds:g} seconds")
        self.seconds = seconds
        self.where = where


class Call(Generic[T]):
    """A call in a daemon thread of its own, which may be abandoned."""

    def __init__(self, call: Callable[[], T]) -> None:
        """Start it."""
        self._call = call
        self._done = threading.Event()
        self._value: Any = None
        self._error: BaseException | None = None
        name = f"{threading.current_thread().name}-call"
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        try:
            self._value = self._call()
        except BaseException as error:  # noqa: BLE001 - raised again by `result`
            self._error = error
        self._done.set()

    def is_done(self, seconds: float) -> bool:
        """Wait at most that long; return whether the call has ended."""
        return self._done.wait(seconds)

    def result(self) -> T:
        """Return what the call returned, or raise what it raised."""
        if self._error is not None:
            raise self._error
        value: T = self._value
        return value


def within_or_abandoned(seconds: float, call: Callable[[], T]) -> T:
    """Return what a call in a thread of its own returns, or raise what it raises.

    Raises OverdueError if it takes longer than `seconds`; it may still run then.
    """
    waiting = Call(call)
    if not waiting.is_done(seconds):
        raise OverdueError(seconds)
    return waiting.result()


def within(seconds: float, call: Callable[[], T]) -> T:
    """Return what the call returns; raise OverdueError if it takes longer."""
    # Windows has none of these signals.
    can_interrupt = hasattr(signal, "setitimer")
    if can_interrupt and threading.current_thread() is threading.main_thread():
        return _interrupted(seconds, call)
    return within_or_abandoned(seconds, call)


class _Interrupt(BaseException):
    """Raised inside of the call: no Exception, since calls catch those."""


class _Watch:
    """Interrupts the main thread when the time is over, until the call has ended."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.end = time.monotonic() + seconds
        self.running = True
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        left = self.end - time.monotonic()
        if self.running and left <= 0:
            raise _Interrupt
        if self.running:
            # CPU time runs ahead of the clock where several threads compute.
            signal.setitimer(signal.ITIMER_VIRTUAL, left, _AGAIN)

    def _watch(self) -> None:
        wait = self.seconds
        while not self.ended.wait(wait):
            wait = _AGAIN
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGVTALRM)


def _interrupted(seconds: float, call: Callable[[], T]) -> T:
    watch = _Watch(seconds)
    before = signal.signal(signal.SIGVTALRM, watch.interrupt)
    if sys.__stderr__ is not None:
        faulthandler.dump_traceback_later(seconds + GRACE, exit=True, file=sys.__stderr__)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds, _AGAIN)
    watch.thread.start()
    try:
        try:
            return call()
        finally:
            watch.running = False
    except _Interrupt as error:
        raise OverdueError(seconds, error.__traceback__) from None
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        faulthandler.cancel_dump_traceback_later()
        watch.ended.set()
        watch.thread.join()
        signal.signal(signal.SIGVTALRM, before)


def retried(call: Callable[[], T], retries: int, *, final: tuple[type[Exception], ...] = ()) -> T:
    """Return what a call returns, retried that many times if it raises.

    Between two attempts it waits 0.5, 1, 2, 4 and then 8 seconds. Errors of the types in `final` are not
    retried. Raises what the last attempt raised.

    Example:
        answer = retried(lambda: within(30, partial(environment.step, action)), retries=2)
    """
    for pause in _pauses(retries):
        try:
            return call()
        except final:
            raise
        except Exception:  # noqa: BLE001 - the call's own; the last attempt raises it
            time.sleep(pause)
    return call()


async def retried_coroutine(
    call: Callable[[], Awaitable[T]], retries: int, *, final: tuple[type[Exception], ...] = ()
) -> T:
    """Return what a call returns once it is awaited, retried as `retried` does."""
    import asyncio

    for pause in _pauses(retries):
        try:
            return await call()
        except final:
            raise
        except Exception:  # noqa: BLE001 - the call's own; the last attempt raises it
            await asyncio.sleep(pause)
    return await call()


def _pauses(retries: int) -> Iterator[float]:
    """Yield the seconds before each retry."""
    pause = FIRST_PAUSE
    for _ in range(retries):
        yield pause
        pause = min(pause * 2, _LONGEST_PAUSE)


@dataclass(frozen=True)
class Part(Generic[T]):
    """Rows of a batch for which one call was made, and what it returned or raised."""

    rows: range
    value: T | None
    error: Exception | None = None


def in_parts(
    rows: range, call: Callable[[range, float], T], seconds: float, *, whole: int = 1
) -> Iterator[Part[T]]:
    """Yield what a call returns for all rows; if it raises, for each half, down to single rows.

    `call(rows, seconds)` gets adjacent rows, and the seconds that it may take: its
    share of `seconds`, so that a row that never ends costs twice the time and not a multiple.
    Halves are multiples of `whole` rows, such as the answers to one prompt.
    """
    try:
        value = call(rows, seconds)
    except Exception as error:  # noqa: BLE001 - passed to the caller, with its rows
        if len(rows) <= whole or len(rows) % whole:
            yield Part(rows, None, error)
            return
    else:
        yield Part(rows, value)
        return
    middle = len(rows) // whole // 2 * whole
    for part in (rows[:middle], rows[middle:]):
        share = max(seconds * len(part) / len(rows), min(seconds, _SHORTEST))
        yield from in_parts(part, call, share, whole=whole)
