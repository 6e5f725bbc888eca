"""TRL's online DPO trainer that keeps its last answers, and leaves out pairs whose rewards failed."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from trl.experimental.online_dpo import OnlineDPOTrainer

from fmtkit.training.online.failed_samples import FailedSamples
from fmtkit.training.online.rewards import Rewards
from fmtkit.training.online.rewards.verdicts import Value


class FmtkitOnlineDPOTrainer(OnlineDPOTrainer):
    """Trains as TRL's does; `_logs` are the answers of this process's last batch."""

    def __init__(
        self, *, rewards: Rewards | None = None, max_failed_share: float = 0.0, **inputs: Any
    ) -> None:
        """Wrap every reward, a function's or a model's; `rewards` report what failed."""
        super().__init__(**inputs)
        self.failed = FailedSamples(self, rewards, max_failed_share)
        self._measured: dict[str, list[float]] = {}
        self._mask = torch.zeros(0)
        self._given: dict[str, list[float]] = {}
        self._logs: dict[str, Any] = {"prompt": []}
        for index, name in enumerate(self.reward_func_names):
            reward: Any = self.reward_funcs[index]
            if isinstance(reward, torch.nn.Module):
                reward.register_forward_hook(partial(self._of_model, name))
            else:
                self.reward_funcs[index] = partial(self._of_function, name, reward)

    def _of_model(self, name: str, _model: Any, _inputs: Any, output: Any) -> None:
        self._given[name] = output.logits[:, 0].tolist()

    def _of_function(
        self, name: str, function: Callable[..., list[Value]], **arguments: Any
    ) -> list[Value]:
        values = function(**arguments)
        self._given[name] = [math.nan if value is None else value for value in values]
        return values

    def _generate(self, model: Any, prompts: Any, images: Any = None) -> Any:
        generated = super()._generate(model, prompts, images)  # type: ignore[no-untyped-call]
        self._mask = generated[3]
        return generated

    def _generate_vllm(self, prompts: Any, images: Any = None) -> Any:
        generated = super()._generate_vllm(prompts, images)  # type: ignore[no-untyped-call]
        self._mask = generated[3]
        return generated

    def _calculate_rewards_from_functions(
        self, prompts: Sequence[Any], completions: Sequence[Any], *ids: Any, **columns: Any
    ) -> torch.Tensor:
        """Return the weighted rewards, shape (2 · prompts,), and keep the answers with theirs."""
        total: torch.Tensor = super()._calculate_rewards_from_functions(  # type: ignore[no-untyped-call]
            prompts, completions, *ids, **columns
        )
        # TRL has the first answers to all prompts, then the second ones; here a pair is a group.
        half = len(prompts) // 2
        order = [row + side for row in range(half) for side in (0, half)]
        self._logs = {
            "prompt": [prompts[row] for row in order],
            "completion": [completions[row] for row in order],
            "rewards": {n: [values[row] for row in order] for n, values in self._given.items()},
        }
        return self._without_failed(total, order)

    def _without_failed(self, total: torch.Tensor, order: Sequence[int]) -> torch.Tensor:
        """Leave the pair of an answer without a reward out of the loss; it still counts in the mean.

        TRL adds a reward that is None as 0, and looks at the mask after it has the rewards.
        """
        self.failed.begin()
        self.failed.masked(self.accelerator.gather(total), [{}] * len(total))
        given = torch.tensor(list(self._given.values()))
        failed = torch.tensor([reason is not None for reason in self.failed.reasons])
        lost = failed | given.isnan().all(0)
        for name, value in self.failed.metrics():
            self._measured.setdefault(name, []).append(value)
        if not lost.any():
            return total
        if failed.any():
            self._logs["extra"] = {"masked": [self.failed.reasons[row] for row in order]}
        lost = lost.to(total.device)
        pairs = lost | lost.roll(len(lost) // 2)
        self._mask[pairs] = 0
        # The logged scores are only those of the other answer of the pair.
        return torch.where(lost, total.roll(len(lost) // 2), total)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log how many samples failed and what calls took, as means since the last time."""
        if "loss" in logs:
            measured, self._measured = self._measured, {}
            logs |= {name: sum(values) / len(values) for name, values in measured.items()}
        super().log(logs, start_time)

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """Train; then print a summary of calls and rewards, and stop the reward workers."""
        with self.failed.reporting():
            return super().train(*args, **kwargs)
