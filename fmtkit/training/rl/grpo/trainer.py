"""TRL's GRPO trainer with fmtkit's features; without them it computes what TRL's does.

The hooks that it overrides are those of TRL 1.16: `_generate_and_score_completions` makes and scores
the answers to a generation batch, `_calculate_rewards` returns the rewards of all processes, and
`_compute_loss` is the loss of a micro-batch.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch import Tensor
from trl.trainer.grpo_trainer import GRPOTrainer

from fmtkit.training.rl.grpo import zero_advantage
from fmtkit.training.rl.grpo.settings import GrpoSettings


class FmtkitGRPOTrainer(GRPOTrainer):
    """A GRPOTrainer that skips batches without a signal, replays groups and rolls prompts again."""

    # TRL and transformers leave these unions of everything that they may be.
    args: Any
    model: Any
    processing_class: Any
    num_generations: int
    num_generations_eval: int
    max_completion_length: int
    chat_template_kwargs: Any

    def __init__(self, *, settings: GrpoSettings | None = None, **kwargs: Any) -> None:
        """Take TRL's arguments by name, and what fmtkit adds."""
        self.features = settings or GrpoSettings()
        self.rows: Sequence[dict[str, Any]] = ()
        super().__init__(**kwargs)

    @property
    def group_size(self) -> int:
        """Completions of one prompt, now."""
        return self.num_generations if self.model.training else self.num_generations_eval

    def generating(self, rows: Sequence[dict[str, Any]]) -> AbstractContextManager[object]:
        """Surround the generation for these rows; for subclasses."""
        del rows
        return nullcontext()

    def extended(
        self, output: dict[str, Any], rows: Sequence[dict[str, Any]], *, training: bool
    ) -> dict[str, Any]:
        """Add tensors to a scored batch; for subclasses."""
        del rows, training
        return output

    @property
    def has_other_losses(self) -> bool:
        """Tell whether a subclass adds to the loss, so that no micro-batch may be skipped."""
        return False

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        training = self.model.training
        # A rollout function is given the prompts alone, and reads the rows here.
        self.rows = inputs
        with self.generating(inputs):
            output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        return self.extended(output, inputs, training=training)

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        if self._may_skip() and zero_advantage.is_silent(self, inputs["advantages"]):
            self._metrics["train"]["skipped_zero_adv_batches"].append(1.0)
            return zero_advantage.zero_loss(model, inputs)
        loss: Tensor = super()._compute_loss(model, inputs)  # type: ignore[no-untyped-call]
        return loss

    def _may_skip(self) -> bool:
        return (
            self.model.training
            and self.features.skip_zero_advantage_batches
            and not self.has_other_losses
        )
