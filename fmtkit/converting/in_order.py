"""Work on threads whose results come in the order of the tasks, however many threads there are."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Any, TypeVar

T = TypeVar("T")


def in_order(
    pool: ThreadPoolExecutor, tasks: Iterator[Any], work: Callable[[Any], T], ahead: int
) -> Iterator[T]:
    """Run tasks on a pool with at most `ahead` in flight; yield their results in order."""
    waiting: deque[Future[T]] = deque(pool.submit(work, task) for task in islice(tasks, ahead))
    try:
        while waiting:
            result = waiting.popleft().result()
            waiting.extend(pool.submit(work, task) for task in islice(tasks, 1))
            yield result
    finally:
        for future in waiting:
            future.cancel()
