"""What is done about calls that fail: few are counted, all of them stop the run."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from fmtkit.training.rl.rewards.verdicts import RewardError
from fmtkit.training.rl.rollouts.lifeline import ServerLostError

_RESUME = {
    "nemo_gym": "start the Gym again and go on with --resume; `/` of each server tells whether it lives",
    "verifiers": "verifiers.log in the run folder has all of it; --resume goes on",
}


class GymError(RewardError, ServerLostError):
    """Say that a Gym gives no rewards any more, why, and how to go on; all processes raise it."""


def stop_if_none_answered(
    reasons: Sequence[str | None], what: str, advice: str = "", *, kind: str = "nemo_gym"
) -> int:
    """Return how many calls of this process failed; raise GymError if those of all did, all of them.

    A reason of None is an answer. A batch without one reward trains nothing, and the next will not
    fare better: calls that no server took were tried again for seconds before they came here.
    """
    failed = [reason for reason in reasons if reason is not None]
    everywhere = _of_all_processes(list(reasons))
    lost = [reason for reason in everywhere if reason is not None]
    if lost and len(lost) == len(everywhere):
        often, times = Counter(lost).most_common(1)[0]
        raise GymError(
            f"{kind}: all {len(everywhere)} {what} failed, {times} of them thus: {often}; "
            f"{advice or _RESUME[kind]}"
        )
    return len(failed)


def _of_all_processes(reasons: list[str | None]) -> list[str | None]:
    """Return the reasons of every process: if one ended alone, the others would wait for it."""
    from torch import distributed

    if not distributed.is_initialized() or distributed.get_world_size() == 1:
        return reasons
    gathered: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(gathered, reasons)
    return [reason for part in gathered for reason in part]
