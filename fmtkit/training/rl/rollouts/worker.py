"""A thread that does one job after the other, beside the training."""

from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from threading import RLock, Thread
from typing import Any

_JOIN_SECONDS = 5.0

Job = tuple[Callable[[], Any], "Future[Any]"]


class Worker:
    """One daemon thread: a rollout that hangs does not keep the process from ending."""

    def __init__(self, name: str) -> None:
        self.busy = RLock()
        """Held while a job runs; to hold it is to know that no job runs."""
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._futures: list[Future[Any]] = []
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], Any]) -> "Future[Any]":
        """Queue a job; its result or its exception is in the future."""
        future: Future[Any] = Future()
        self._futures = [other for other in self._futures if not other.done()] + [future]
        self._jobs.put((job, future))
        return future

    def close(self) -> None:
        """Cancel what has not begun, and wait a moment for what has."""
        for future in self._futures:
            future.cancel()
        self._jobs.put(None)
        self._thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        while (item := self._jobs.get()) is not None:
            job, future = item
            with self.busy:
                if not future.set_running_or_notify_cancel():
                    continue
                try:
                    future.set_result(job())
                except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
                    future.set_exception(error)
