"""What runs the conversations of a rollout, and their reward, which comes with them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from fmtkit.training.rl.dialogs import naming
from fmtkit.training.rl.dialogs.dialog import CUT, FAILED, LEFT_OUT, MASKED, MISMATCH, NO_TOKENS
from fmtkit.training.rl.dialogs.failures import stop_if_none_answered
from fmtkit.training.rl.dialogs.naming import PLAYED
from fmtkit.training.rl.failed_samples import Failures
from fmtkit.training.rl.rewards import Rewards, load_rewards, read_options
from fmtkit.training.run.job import Job


class PlayedReward:
    """TRL's reward function `env_reward`: counts are made here, on the main thread."""

    needs_full_batch = True
    __name__ = PLAYED

    def __init__(self, max_turns: int | None, kind: str = "nemo_gym") -> None:
        """Take the maximum number of turns of a dialog, and the name of what ran it, for metrics."""
        self.max_turns = max_turns
        self.kind = kind
        self.failures = Failures()
        """Where the trainer learns which dialogs failed: those of the run's rewards."""

    def __call__(
        self,
        env_reward: Sequence[float | None] = (),
        num_turns: Sequence[int] = (),
        log_metric: Callable[[str, float], None] | None = None,
        log_extra: Callable[[str, list[Any]], None] | None = None,
        **more: Any,
    ) -> list[float | None]:
        """Return the rewards; raise GymError if every dialog failed.

        The columns have defaults since they come with the answers, not with the data.
        """
        found = list(more.get(f"{self.kind}_outcome", ()))
        reasons = [
            outcome.removeprefix(FAILED) if outcome.startswith(FAILED) else None
            for outcome in found
        ]
        advice = NO_TOKENS if all(reason == NO_TOKENS for reason in reasons) else ""
        failed = stop_if_none_answered(reasons, "dialogs by /run", advice, kind=self.kind)
        self.failures.add({row: reason for row, reason in enumerate(reasons) if reason})
        if log_extra is not None and MASKED in found:
            log_extra("masked", [LEFT_OUT if one == MASKED else None for one in found])
        if log_metric is not None:
            for name, outcome in (("prefix_mismatch", MISMATCH), ("cut", CUT), ("masked", MASKED)):
                log_metric(f"{self.kind}/{name}", float(found.count(outcome)))
            log_metric(f"{self.kind}/rollout_errors", float(failed))
            log_metric(f"{self.kind}/num_turns", sum(num_turns) / max(len(num_turns), 1))
        if log_metric is not None and self.max_turns is not None:
            over = sum(turns > self.max_turns for turns in num_turns)
            log_metric(f"{self.kind}/over_max_turns", float(over))
        return list(env_reward)


class PlayersReward(Protocol):
    """A reward function that tells which samples failed; it may return None for others, too."""

    failures: Failures

    def __call__(self, *arguments: Any, **named: Any) -> list[float | None]:
        """Return one reward for each sample, None where there is none."""


@dataclass(frozen=True)
class Player:
    """The reward function of a run, and the rollout function where something else plays."""

    reward: PlayersReward
    rollout: Callable[..., Any] | None
    policy: str
    """The name by which agents and environments request the trained model."""

    def rewards(self, job: Job) -> Rewards:
        """Load the rewards of a job: the user's, and that of what plays where it is named, or last."""
        section = job.sections.get("rl", {})
        found = load_rewards(
            naming.with_ours(section.get("reward_funcs"), self.reward),
            [Path(place) for place in job.places],
            weights=job.trainer.get("reward_weights"),
            options=read_options(section),
        )
        self.reward.failures = found.failures
        return found
