"""TRL's RLOO trainer with dynamic sampling; without dynamic sampling it computes what TRL's does."""

from typing import Any

from torch import Tensor
from trl.trainer.rloo_trainer import RLOOTrainer

from fmtkit.training.online.failed_samples import FailedSamples
from fmtkit.training.online.rewards import Rewards

from .dynamic_sampling import RLOO_MADE, DynamicSampling
from .settings import GrpoSettings

Row = dict[str, Any]


class FmtkitRLOOTrainer(RLOOTrainer):
    """An RLOOTrainer whose batches can be filled with prompts whose answers differ."""

    # transformers leaves this a union of everything that it may be.
    model: Any

    def __init__(
        self,
        *,
        features: GrpoSettings | None = None,
        rewards: Rewards | None = None,
        max_failed_share: float = 0.0,
        **kwargs: Any,
    ) -> None:
        """Take TRL's arguments by name; `rewards` are those of `reward_funcs`, which report what failed."""
        self.rows: list[Row] = []
        self.failed = FailedSamples(self, rewards, max_failed_share)
        self.sampling: DynamicSampling | None = None
        super().__init__(**kwargs)
        if features is not None and features.dynamic_sampling:
            begin = super()._generate_and_score_completions
            self.sampling = DynamicSampling(self, features, begin, RLOO_MADE)

    def _generate_and_score_completions(self, inputs: list[Row]) -> dict[str, Any]:
        self.rows = list(inputs)
        self.failed.begin()
        output: dict[str, Any] = super()._generate_and_score_completions(self.rows)
        self.failed.log_metrics()
        return self.failed.without_loss(output)

    def _generate(self, prompts: list[Any]) -> Any:
        if self.sampling is None:
            return super()._generate(prompts)
        return self.sampling.answers(super()._generate, prompts)

    def _calculate_rewards(
        self, inputs: list[Row], prompts: list[Any], completions: list[Any], ids: list[list[int]]
    ) -> Tensor:
        ready = None if self.sampling is None else self.sampling.take()
        if ready is not None:
            return ready
        rewards: Tensor = super()._calculate_rewards(inputs, prompts, completions, ids)
        masked: Tensor = self.failed.masked(rewards, inputs)
        self.failed.log_reasons()
        return masked

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """Train; then print a summary of calls and rewards, and stop the reward workers."""
        with self.failed.reporting():
            return super().train(*args, **kwargs)
