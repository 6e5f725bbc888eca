"""Signals that end a run: Ctrl-C, SIGTERM, SIGHUP. Every process handles a request once.

`fmtkit train` and the launcher of several processes forward a signal to the processes that they started, and
a terminal sends it to all of them too. So a signal within a second of another one is the same request.
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
    """Handle the signals with `handler`, except a SIGHUP or SIGTERM that is ignored (nohup)."""
    if threading.current_thread() is not threading.main_thread():
        # Python delivers signals to the main thread, which handles them itself.
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
    """The request of a signal to stop a training process.

    The first signal during training is a request to save and stop. The second one, and any signal before or
    after training, interrupts the process at once.
    """

    def __init__(self, same_request: float = 1.0) -> None:
        """Begin without a request; a signal within `same_request` seconds of another one is ignored."""
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
