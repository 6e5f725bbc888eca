"""Calls that are waited for only so long, then left to themselves: nothing can stop a thread."""

from collections.abc import Callable
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")


class AbandonedError(TimeoutError):
    """A call did not return in time; it may still run."""


def within_or_abandoned(seconds: float, call: Callable[[], T]) -> T:
    """Return what a call in a thread of its own returns, or raise what it raises.

    Raises AbandonedError if it takes longer than `seconds`.
    """
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append((call(), None))
        except BaseException as error:  # noqa: BLE001 - raised again by who waits
            outcome.append((None, error))

    thread = Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if not outcome:
        raise AbandonedError
    value, error = outcome[0]
    if error is not None:
        raise error
    result: T = value
    return result
