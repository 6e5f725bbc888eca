"""What is done about calls that fail: few are counted, all of them stop the run."""

from collections import Counter
from collections.abc import Iterable

from fmtkit.training.rl.rewards.verdicts import RewardError


class GymError(RewardError):
    """Say that a Gym gives no rewards any more, why, and how to go on."""


_RESUME = "start the Gym again and go on with --resume; `/` of each server tells whether it lives"


def stop_if_none_answered(reasons: Iterable[str | None], what: str, advice: str = "") -> int:
    """Return how many calls failed; raise GymError if every single one did.

    A reason of None is an answer. A batch without one reward trains nothing, and the next will not
    fare better: calls that no server takes were tried again for seconds before they came here.
    """
    found = list(reasons)
    failed = [reason for reason in found if reason is not None]
    if failed and len(failed) == len(found):
        often, times = Counter(failed).most_common(1)[0]
        raise GymError(
            f"nemo_gym: all {len(found)} {what} failed, {times} of them thus: {often}; "
            f"{advice or _RESUME}"
        )
    return len(failed)
