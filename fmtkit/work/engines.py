"""Engines: they run a function over the tasks of a run and return the results in the order of the tasks."""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from itertools import islice
from operator import length_hint
from typing import Any, Protocol, TypeVar, runtime_checkable

from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import SourceError

T = TypeVar("T")
_SESSION: ContextVar[ExitStack | None] = ContextVar("session", default=None)


@dataclass
class Standing:
    """Progress of the tasks of an engine that starts workers."""

    is_starting: bool = False
    done: int = 0
    total: int = 0
    """0 if tasks are created while they are taken."""
    lost: int = 0
    """How often a task crashed its worker, or was lost with its node, and was run again."""
    dashboard: str | None = None
    """URL of the cluster's dashboard."""

    def begin(self, tasks: Iterator[Any]) -> None:
        """Reset the counters at the start of a map."""
        self.is_starting, self.done, self.total = False, 0, length_hint(tasks)


WATCHED: ContextVar[Standing] = ContextVar("standing")
"""The progress that an engine updates; the progress bar sets it."""


class TaskLostError(Exception):
    """A task crashed every worker that ran it; `reason` is the last failure."""

    def __init__(self, task: Any, reason: str) -> None:
        super().__init__(reason)
        self.task, self.reason = task, reason

    def named(self, place: str) -> SourceError:
        """Return the error with the part of the sources that it concerns."""
        return SourceError(f"{place} crashed its worker repeatedly: {self.reason}")


class Engine(Protocol):
    """Runs one function over many tasks.

    A function handed to an engine, its tasks and its results can be pickled where they are made of a
    job and of blocks of bytes, so that an engine may run them in other processes.
    """

    def map(self, work: Callable[[Any], T], tasks: Iterator[Any]) -> Iterator[T]:
        """Yield what `work` makes of each task, in the order of the tasks.

        Tasks are taken as others are completed: memory is bounded by the number in flight.
        """
        ...


@runtime_checkable
class Cluster(Protocol):
    """An engine whose workers are other processes, which may be unreachable."""

    def reach(self, *needed: Any) -> None:
        """Start or connect to the workers, until the end of the session.

        Raises:
            OptionError, DependencyError: if that fails, or a worker cannot unpickle what is needed.
        """
        ...


@contextmanager
def session() -> Iterator[None]:
    """Keep a cluster that an engine starts until the end of the block: a run maps more than once."""
    if _SESSION.get() is not None:
        yield
        return
    with ExitStack() as stack:
        token = _SESSION.set(stack)
        try:
            yield
        finally:
            _SESSION.reset(token)


def at_end(call: Callable[[], None]) -> bool:
    """Register a function to call at the end of the session; return False if there is no session."""
    stack = _SESSION.get()
    if stack is not None:
        stack.callback(call)
    return stack is not None


class Inline:
    """An engine on the calling thread, for work within a task, whose worker has one core."""

    def map(self, work: Callable[[Any], T], tasks: Iterator[Any]) -> Iterator[T]:
        """Run one task after the other."""
        return map(work, tasks)


@dataclass(frozen=True)
class Threads:
    """An engine of threads of this process: as many as there are cores, or as given."""

    workers: int | None = None

    def map(self, work: Callable[[Any], T], tasks: Iterator[Any]) -> Generator[T, None, None]:
        """Run tasks on a pool with two more in flight than there are threads.

        A caller that stops taking results does not wait for the tasks that still run: the garbage
        collector may close this generator inside any code, also in a thread for which those tasks wait.
        """
        count = self.workers or os.cpu_count() or 1
        pool = ThreadPoolExecutor(max_workers=count)
        abandoned = False
        try:
            waiting: deque[Future[T]] = deque(
                pool.submit(work, task) for task in islice(tasks, count + 2)
            )
            while waiting:
                result = waiting.popleft().result()
                waiting.extend(pool.submit(work, task) for task in islice(tasks, 1))
                yield result
        except GeneratorExit:
            abandoned = True
            raise
        finally:
            pool.shutdown(wait=not abandoned, cancel_futures=True)
