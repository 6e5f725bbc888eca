"""Signals that end a run: Ctrl-C, SIGTERM, a lost terminal. Every process gets them, once.

`fmtkit train` and the launcher of several processes pass a signal on to what they started. A terminal
sends it to all of them as well: what comes again within a second is the same request.
"""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
INTERRUPTED = 130
Handler = Callable[[int, FrameType | None], None]


def is_interruption(code: int) -> bool:
    """Return whether a process with this exit code was ended by one of these signals."""
    return code == INTERRUPTED or -code in SIGNALS


@contextmanager
def handling(handler: Handler) -> Iterator[None]:
    """Give the signals to a handler; a lost terminal stays ignored where it was (nohup)."""
    if threading.current_thread() is not threading.main_thread():
        # Python gives signals to the main thread, which handles them itself.
        yield
        return
    taken = [n for n in SIGNALS if n == signal.SIGINT or signal.getsignal(n) != signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in taken}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


class Stop:
    """Whether a signal has asked a training process to stop.

    While it trains, the first one is a request to save and stop; any other time, and the second one,
    interrupts it at once.
    """

    def __init__(self, same_request: float = 1.0) -> None:
        """Begin with no request; what comes within `same_request` seconds of a signal says nothing new."""
        self.same_request = same_request
        self.asked = False
        self.granted = False
        """Whether the trainer was asked to save and stop."""
        self._training = False
        self._last = float("-inf")

    def asked_anywhere(self, device: Any) -> bool:
        """Return whether any process was asked, so that all stop at the same step."""
        import torch
        from torch import distributed

        flag = torch.tensor([int(self.asked)], device=device)
        distributed.all_reduce(flag, op=distributed.ReduceOp.MAX)
        return bool(flag.item())

    def take(self, number: int, frame: FrameType | None) -> None:
        """Take a signal."""
        del number, frame
        now = time.monotonic()
        if now - self._last < self.same_request:
            return
        self._last = now
        if not self._training or self.asked:
            raise KeyboardInterrupt
        self.asked = True

    @contextmanager
    def while_training(self) -> Iterator[None]:
        """Take the first signal as a request to stop after the step."""
        self._training = True
        try:
            yield
        finally:
            self._training = False
