"""Who judges or plays the answers of a run, as its trainer sees it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from fmtkit.training.rl.dialogs import naming
from fmtkit.training.rl.failed_samples import Failures
from fmtkit.training.rl.rewards import Rewards, load_rewards, read_options
from fmtkit.training.run.job import Job


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
    """The name under which those who play find the trained model."""

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
