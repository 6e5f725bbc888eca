"""An external environment of a run: its rollout function, and the reward that comes with each rollout."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from fmtkit.core.data_classes import dataclass
from fmtkit.core.section import Hook
from fmtkit.training.online.conversations import naming
from fmtkit.training.online.conversations.failures import stop_if_none_answered
from fmtkit.training.online.conversations.naming import ENV_REWARD
from fmtkit.training.online.conversations.tokenized_conversation import (
    CUT,
    FAILED,
    LEFT_OUT,
    MASKED,
    MISMATCH,
)
from fmtkit.training.online.failed_samples import Failures
from fmtkit.training.online.rewards import Rewards, load_rewards, read_options
from fmtkit.training.planning.job import Job


class EnvReward:
    """TRL's reward function `env_reward`; metrics are logged here, on the main thread."""

    needs_full_batch = True
    __name__ = ENV_REWARD

    def __init__(
        self, max_turns: int | None, kind: str, advice: str, final: frozenset[str] = frozenset()
    ) -> None:
        """Take what is particular to an environment.

        Args:
            max_turns: The maximum number of turns of a conversation, for a metric; None for no limit.
            kind: The environment's name before metrics, and before `_outcome` in the rollout's column.
            advice: What to do where no conversation succeeded.
            final: Reasons of failures that say themselves what to do.
        """
        self.max_turns = max_turns
        self.kind = kind
        self.advice = advice
        self.final = final
        self.failures = Failures()
        """Conversations that failed, for the trainer; shared with the run's other rewards."""

    def __call__(
        self,
        env_reward: Sequence[float | None] = (),
        num_turns: Sequence[int] = (),
        log_metric: Callable[[str, float], None] | None = None,
        log_extra: Callable[[str, list[Any]], None] | None = None,
        **more: Any,
    ) -> list[float | None]:
        """Return the rewards; raise GymError if every conversation failed.

        The columns have defaults since they come with the answers, not with the data.
        """
        outcomes = list(more.get(f"{self.kind}_outcome", ()))
        reasons = [
            outcome.removeprefix(FAILED) if outcome.startswith(FAILED) else None
            for outcome in outcomes
        ]
        advice = "" if all(reason in self.final for reason in reasons) else self.advice
        failed = stop_if_none_answered(
            reasons, "conversations by /run", kind=self.kind, advice=advice
        )
        self.failures.add({row: reason for row, reason in enumerate(reasons) if reason})
        if log_extra is not None and MASKED in outcomes:
            log_extra("masked", [LEFT_OUT if one == MASKED else None for one in outcomes])
        if log_metric is not None:
            for name, outcome in (("prefix_mismatch", MISMATCH), ("cut", CUT), ("masked", MASKED)):
                log_metric(f"{self.kind}/{name}", float(outcomes.count(outcome)))
            log_metric(f"{self.kind}/rollout_errors", float(failed))
            log_metric(f"{self.kind}/num_turns", sum(num_turns) / max(len(num_turns), 1))
        if log_metric is not None and self.max_turns is not None:
            over = sum(turns > self.max_turns for turns in num_turns)
            log_metric(f"{self.kind}/over_max_turns", float(over))
        return list(env_reward)


class RewardWithFailures(Protocol):
    """A reward function that reports which samples failed; it may return None for others, too."""

    failures: Failures

    def __call__(self, *arguments: Any, **named: Any) -> list[float | None]:
        """Return one reward for each sample, None for samples without one."""


@dataclass(frozen=True)
class ExternalEnvironment:
    """The reward function of an environment, and its rollout function if it runs the rollouts itself."""

    reward: RewardWithFailures
    rollout: Callable[..., Any] | None
    policy: str
    """The name by which agents and environments request the trained model."""

    def rewards(self, job: Job) -> Rewards:
        """Load the rewards of a job: the user's, and the environment's where it is named, or last."""
        section = job.section("rl")
        rewards = load_rewards(
            naming.with_ours(section.get("reward_funcs"), self.reward),
            [Path(place) for place in job.places],
            weights=job.reward_weights,
            options=read_options(section),
        )
        self.reward.failures = rewards.failures
        return rewards


ENVIRONMENT: Hook[Callable[[Job, Any], ExternalEnvironment | None]] = Hook("environment")
"""Returns, in the training process, the rewards and conversations of an environment, or None.

It is given the job and the tokenizer.
"""
