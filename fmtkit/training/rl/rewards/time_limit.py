"""A time limit on a call that we did not write.

On the main thread a signal comes, whose handler raises in the call itself: loops, sleeps, sockets,
subprocesses and regular expressions end there. It is not SIGALRM, which reward functions use
themselves. A second thread sends it to a call that waits; to one that computes and never lets another
thread run, as a regular expression does, the timer of the process's CPU time does. C code that never
looks for signals cannot be interrupted: `faulthandler` ends the process, with a traceback. On another
thread than the main one the call is abandoned.
"""

import faulthandler
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import TypeVar

from fmtkit.abandoning import AbandonedError, within_or_abandoned

T = TypeVar("T")

_SIGNAL = signal.SIGVTALRM
_AGAIN = 1.0
"""Seconds until a call that swallowed the interrupt is interrupted again."""
GRACE = 30.0
"""Seconds that a call has to end after the first interrupt."""


class OverdueError(TimeoutError):
    """Say that a call took longer than it may; `where` is the traceback of its interruption."""

    def __init__(self, seconds: float, where: TracebackType | None = None) -> None:
        super().__init__(f"no answer within {seconds:g} seconds")
        self.seconds = seconds
        self.where = where


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
            signal.pthread_kill(threading.main_thread().ident or 0, _SIGNAL)


def within(seconds: float, call: Callable[[], T]) -> T:
    """Return what the call returns; raise OverdueError if it takes longer."""
    if threading.current_thread() is threading.main_thread():
        return _interrupted(seconds, call)
    return _abandoned(seconds, call)


def _interrupted(seconds: float, call: Callable[[], T]) -> T:
    watch = _Watch(seconds)
    before = signal.signal(_SIGNAL, watch.interrupt)
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
        signal.signal(_SIGNAL, before)


def _abandoned(seconds: float, call: Callable[[], T]) -> T:
    started = time.monotonic()
    try:
        return within_or_abandoned(seconds, call)
    except AbandonedError:
        raise OverdueError(time.monotonic() - started) from None
