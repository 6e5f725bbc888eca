"""TRL's online DPO trainer that keeps its last answers, as TRL's GRPO and RLOO trainers do."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from trl.experimental.online_dpo import OnlineDPOTrainer

from fmtkit.training.rl.rewards.verdicts import Value


class FmtkitOnlineDPOTrainer(OnlineDPOTrainer):
    """Trains as TRL's does; `_logs` are the answers of this process's last batch."""

    def __init__(self, **inputs: Any) -> None:
        """Listen to every reward, of a function or of a model."""
        super().__init__(**inputs)
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

    def _calculate_rewards_from_functions(
        self, prompts: Sequence[Any], completions: Sequence[Any], *ids: Any, **columns: Any
    ) -> torch.Tensor:
        """Return the weighed rewards, shape (2 · prompts,), and keep the answers with theirs."""
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
        return total
