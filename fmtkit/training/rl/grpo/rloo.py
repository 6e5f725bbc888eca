"""TRL's RLOO trainer with dynamic sampling; without it, it is TRL's."""

from typing import Any

from torch import Tensor
from trl.trainer.rloo_trainer import RLOOTrainer

from fmtkit.training.rl.grpo.dynamic_sampling import RLOO_MADE, DynamicSampling, NoSignalError
from fmtkit.training.rl.grpo.settings import GrpoSettings
from fmtkit.training.rl.rollouts.lifeline import lost

Row = dict[str, Any]


class FmtkitRLOOTrainer(RLOOTrainer):
    """An RLOOTrainer whose batches can be filled with prompts whose answers differ."""

    def __init__(self, *, features: GrpoSettings | None = None, **kwargs: Any) -> None:
        """Take TRL's arguments by name."""
        self.rows: list[Row] = []
        self.failed: list[str | None] = []
        self.sampling: DynamicSampling | None = None
        super().__init__(**kwargs)
        if features is not None and features.dynamic_sampling:
            begin = super()._generate_and_score_completions
            self.sampling = DynamicSampling(self, features, begin, RLOO_MADE)

    def _generate_and_score_completions(self, inputs: list[Row]) -> dict[str, Any]:
        self.rows = list(inputs)
        output: dict[str, Any] = super()._generate_and_score_completions(self.rows)
        return output

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
        self.failed = [None] * len(prompts)
        rewards: Tensor = super()._calculate_rewards(inputs, prompts, completions, ids)
        return rewards

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """Train; save what was learnt where no prompt has a signal any more."""
        try:
            return super().train(*args, **kwargs)
        except NoSignalError as error:
            raise lost(self, error) from error
