"""Failed calls: they are retried; some failures are masked, and if all calls fail the run stops."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from fmtkit.core.data_classes import dataclass
from fmtkit.core.foreign_calls import retried
from fmtkit.core.http_client import CallError
from fmtkit.training.online.rewards.verdicts import FinalRewardError
from fmtkit.training.vllm.lifeline import ServerLostError


class GymError(FinalRewardError, ServerLostError):
    """No reward could be computed; says why and how to resume. All processes raise it."""


T = TypeVar("T")


@dataclass(frozen=True)
class Tried(Generic[T]):
    """What a call returned, or None and the reason; and the seconds of its slowest attempt."""

    value: T | None
    reason: str
    seconds: float


def tried(
    call: Callable[[], T], retries: int, *, final: tuple[type[CallError], ...] = ()
) -> Tried[T]:
    """Make a call and retry it on CallError; errors of the types in `final` are not retried."""
    seconds: list[float] = []

    def once() -> T:
        started = time.perf_counter()
        try:
            return call()
        finally:
            seconds.append(time.perf_counter() - started)

    try:
        value = retried(once, retries, final=final)
    except CallError as error:
        return Tried(None, str(error), max(seconds))
    return Tried(value, "", max(seconds))


def stop_if_none_answered(
    reasons: Sequence[str | None], what: str, *, kind: str, advice: str = ""
) -> int:
    """Return how many calls of this process failed; raise GymError if every call of every process did.

    A reason of None is a success; `advice` is what to do when the environment is gone. A batch without
    any reward trains nothing, and the next batch would fail as well: connection errors have been retried
    for seconds by then.
    """
    failed = [reason for reason in reasons if reason is not None]
    everywhere = _of_all_processes(list(reasons))
    lost = [reason for reason in everywhere if reason is not None]
    if lost and len(lost) == len(everywhere):
        often, times = Counter(lost).most_common(1)[0]
        raise GymError(
            f"{kind}: all {len(everywhere)} {what} failed, {times} of them with: {often}"
            + (f"; {advice}" if advice else "")
        )
    return len(failed)


def _of_all_processes(reasons: list[str | None]) -> list[str | None]:
    """Gather the reasons of all processes: if only one stopped, the others would wait for it."""
    from torch import distributed

    if not distributed.is_initialized() or distributed.get_world_size() == 1:
        return reasons
    gathered: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(gathered, reasons)
    return [reason for part in gathered for reason in part]
