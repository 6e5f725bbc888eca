"""TRL's GRPO trainer with fmtkit's features; without them it computes what TRL's does.

The hooks that it overrides are those of TRL 1.16: `_generate_and_score_completions` generates
and scores the answers to a generation batch, `_calculate_rewards` returns the rewards of all processes, and
`_compute_loss` is the loss of a micro-batch. RolloutTrainer decides how answers are generated.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fmtkit.training.online.failed_samples import FailedSamples
from fmtkit.training.online.group_rule import check_whole_groups
from fmtkit.training.online.rewards import Rewards
from fmtkit.training.online.rollouts.trainer import RolloutTrainer

from . import zero_advantage
from .dynamic_sampling import DynamicSampling
from .replay import Replay
from .rerolls import Rerolls
from .settings import GrpoSettings

Row = dict[str, Any]


class FmtkitGRPOTrainer(RolloutTrainer):
    """A GRPOTrainer that can skip zero-advantage batches, replay groups and re-roll failed prompts."""

    # TRL and transformers annotate these as unions.
    processing_class: Any
    num_generations: int
    num_generations_eval: int
    max_completion_length: int
    chat_template_kwargs: Any

    def __init__(
        self, *, features: GrpoSettings | None = None, rewards: Rewards | None = None, **kwargs: Any
    ) -> None:
        """Take TRL's arguments by name. `rewards` come after the functions of `reward_funcs`."""
        self.features = features or GrpoSettings()
        self.rewards = rewards
        self.rerolls: Rerolls | None = None
        self.replay: Replay | None = None
        self.sampling: DynamicSampling | None = None
        self._totals = torch.zeros(0)
        self._columns: frozenset[str] = frozenset()
        if rewards is not None:
            rewards.group_size = lambda: self.group_size
            kwargs["reward_funcs"] = [*kwargs.get("reward_funcs", ()), *rewards.functions]
        super().__init__(**kwargs)
        masked_share = self.rollouts.masked_share
        share = self.rollouts.max_failed_share if masked_share is None else masked_share
        self.failed = FailedSamples(self, rewards, share)
        self.set_up()

    def set_up(self) -> None:
        """Set up what the features ask for; raise OptionError for batches that would split a group."""
        features = self.features
        if features.needs_whole_groups:
            rows = self.args.per_device_train_batch_size * self.args.steps_per_generation
            check_whole_groups(rows, self.num_generations, "replay and re-rolling")
        if features.rerolls:
            self.rerolls = Rerolls(features.reroll_start_fraction, features.reroll_max_groups)
        if features.replays:
            recompute = features.replay_recompute_logps
            self.replay = Replay(self, features.replay_buffer_size, recompute=recompute)
        if features.dynamic_sampling:
            begin = super(RolloutTrainer, self)._generate_and_score_completions
            self.sampling = DynamicSampling(self, features, begin)

    @property
    def group_size(self) -> int:
        """The number of completions per prompt, in training or evaluation, whichever is running."""
        return self.num_generations if self.model.training else self.num_generations_eval

    @property
    def has_other_losses(self) -> bool:
        """Return whether a subclass adds to the loss, so that no micro-batch may be skipped."""
        return False

    def extended(self, output: dict[str, Any]) -> dict[str, Any]:
        """Return a scored training batch, whose rows are `rows`, with tensors that a subclass adds."""
        return output

    def rows_ahead(self, rows: Sequence[Row]) -> list[Row]:
        """Return the batch's rows; late in the run, failed prompts replace the last groups."""
        self._columns = frozenset(rows[0])
        rerolls = self.rerolls
        if rerolls is None or self.state.global_step < rerolls.starts(self.state.max_steps):
            return list(rows)
        with_rerolls, count = rerolls.injected(rows, self.num_generations)
        self._metrics["train"]["reroll/injected"].append(float(count))
        return with_rerolls

    def _generate_and_score_completions(self, inputs: list[Row]) -> dict[str, Any]:
        training = self.model.training
        self.failed.begin()
        output = super()._generate_and_score_completions(inputs)
        output = self.failed.without_loss(output)
        self.failed.log_metrics()
        if not training:
            return output
        if self.rerolls is not None:
            self._metrics["train"]["reroll/queue"].append(float(len(self.rerolls.waiting)))
        if self.replay is not None:
            output = self.replay.filled(output, self._totals)
        return self.extended(output)

    def _calculate_rewards(
        self, inputs: list[Row], prompts: list[Any], completions: list[Any], ids: list[list[int]]
    ) -> Tensor:
        """Return the rewards of all processes [N, F]; keep the weighted sums [B] of this process."""
        ready = None if self.sampling is None else self.sampling.take()
        if ready is not None:
            self._totals = self._own_totals(ready, len(prompts))
            return ready
        rewards: Tensor = super()._calculate_rewards(inputs, prompts, completions, ids)
        self._log_lengths(ids)
        rewards = self.failed.masked(rewards, inputs)
        self._totals = self._own_totals(rewards, len(prompts))
        if self.rerolls is not None and self.model.training:
            # By now the rows also have the columns that a rollout function returned: leave them out.
            rows = [{name: row[name] for name in self._columns} for row in inputs]
            self.rerolls.note(rows, self._totals.tolist(), self.num_generations)
        self.failed.log_reasons()
        return rewards

    def _own_totals(self, rewards: Tensor, count: int) -> Tensor:
        """Return the weighted sums [B] of this process's rows; NaN where there is no reward.

        `rewards` [N, F] are those of all processes.
        """
        start = self.accelerator.process_index * count
        local = rewards[start : start + count]
        totals = (local * self.reward_weights.to(local.device)).nansum(dim=1)
        totals[torch.isnan(local).all(dim=1)] = torch.nan
        return totals

    def answers(self, prompts: list[Any]) -> Any:
        """Return what TRL's `_generate` returns, with dynamic sampling where it is on."""
        if self.sampling is None:
            return super().answers(prompts)
        return self.sampling.answers(super().answers, prompts)

    def _log_lengths(self, ids: list[list[int]]) -> None:
        """Log each answer's length in tokens and whether it was truncated, unless a reward logs them."""
        ends = {*self.eos_token_ids, self._tokenizer.pad_token_id}
        lengths: dict[str, list[Any]] = {
            "tokens": [len(answer) for answer in ids],
            "cut": [not answer or answer[-1] not in ends for answer in ids],
        }
        for name, values in lengths.items():
            if name not in self._pending_extra_logs:
                self._log_completion_extra(name, values)

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

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """Train; then print a summary of calls and rewards, and stop the reward workers."""
        with self.failed.reporting():
            return super().train(*args, **kwargs)
