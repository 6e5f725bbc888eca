"""The reward of dialogs that an agent played: it came with them, and is passed on and counted."""

from collections.abc import Callable, Sequence
from typing import Any

from fmtkit.training.rl.nemo_gym.failures import stop_if_none_answered
from fmtkit.training.rl.nemo_gym.naming import PLAYED
from fmtkit.training.rl.nemo_gym.reconstruction import CUT, MASKED, MISMATCH
from fmtkit.training.rl.nemo_gym.rollout import FAILED, NO_TOKENS


class PlayedReward:
    """TRL's reward function `env_reward`: counts are made here, on the main thread."""

    needs_full_batch = True
    __name__ = PLAYED

    def __init__(self, max_turns: int) -> None:
        """Take the most turns that a dialog should have."""
        self.max_turns = max_turns

    def __call__(
        self,
        env_reward: Sequence[float | None] = (),
        num_turns: Sequence[int] = (),
        nemo_gym_outcome: Sequence[str] = (),
        log_metric: Callable[[str, float], None] | None = None,
        **_: Any,
    ) -> list[float | None]:
        """Return the rewards; raise GymError if every dialog failed.

        The columns have defaults since they come with the answers, not with the data.
        """
        reasons = [
            outcome.removeprefix(FAILED) if outcome.startswith(FAILED) else None
            for outcome in nemo_gym_outcome
        ]
        advice = NO_TOKENS if all(reason == NO_TOKENS for reason in reasons) else ""
        failed = stop_if_none_answered(reasons, "dialogs by /run", advice)
        if log_metric is not None:
            found = list(nemo_gym_outcome)
            log_metric("nemo_gym/rollout_errors", float(failed))
            log_metric("nemo_gym/prefix_mismatch", float(found.count(MISMATCH)))
            log_metric("nemo_gym/cut", float(found.count(CUT)))
            log_metric("nemo_gym/masked", float(found.count(MASKED)))
            log_metric("nemo_gym/num_turns", sum(num_turns) / max(len(num_turns), 1))
            over = sum(turns > self.max_turns for turns in num_turns)
            log_metric("nemo_gym/over_max_turns", float(over))
        return list(env_reward)
