"""Best of n: a reward scores several answers to a prompt, and the best one is the answer."""

import math
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OptionError
from fmtkit.training.online.rewards.call_limits import RewardOptions
from fmtkit.training.online.rewards.entries import of_library, read
from fmtkit.training.online.rewards.loading import Rewards

FLAG = "--reward"

Answer = dict[str, Any]
"""The `answer`, its number of `tokens`, and whether it is `finished`."""


@dataclass(frozen=True)
class Scorer:
    """A reward function that is asked about answers, without a trainer."""

    name: str
    rewards: Rewards

    def check_columns(self, columns: Sequence[str]) -> None:
        """Raise OptionError for a column that the function needs and the rows do not have."""
        self.rewards.check_columns(columns)

    def best(
        self,
        prompt: Any,
        answers: Sequence[tuple[Answer, Sequence[int]]],
        columns: Mapping[str, Any],
    ) -> Answer:
        """Return the answer of the highest reward, the first of those, with the rewards of all.

        Args:
            prompt: Text, or messages, as a trainer passes it to the function.
            answers: Answers to it with their tokens.
            columns: The other columns of the row.

        Returns:
            The answer with its `reward` and the `rewards` of all; None is an answer without one.
        """
        count = len(answers)
        texts = [answer["answer"] for answer, _ in answers]
        completions = (
            texts
            if isinstance(prompt, str)
            else [[{"role": "assistant", "content": text}] for text in texts]
        )
        context = {
            "trainer_state": SimpleNamespace(global_step=0, epoch=0.0, max_steps=1, log_history=[]),
            "log_extra": lambda *_: None,
            "log_metric": lambda *_: None,
        }
        repeated = {name: [value] * count for name, value in columns.items()}
        # What a user's function prints is not a result.
        with redirect_stdout(sys.stderr):
            (values,) = self.rewards.score(
                [prompt] * count,
                completions,
                [list(ids) for _, ids in answers],
                **repeated,
                **context,
            )
        rewards = [None if v is None or math.isnan(v) else float(v) for v in values]
        ranks = [-math.inf if reward is None else reward for reward in rewards]
        best = ranks.index(max(ranks))
        return {**answers[best][0], "reward": rewards[best], "rewards": rewards}


def load(name: str, places: Sequence[Path]) -> Scorer:
    """Load the reward that is named as in `trl.reward_funcs`.

    Raises OptionError for what cannot be loaded, and for a reward model, which a trainer runs.
    """
    (entry,) = read(name, places)
    if entry.model:
        raise OptionError(
            f"{FLAG} {name}: names a reward model, which only a trainer runs; name a function: "
            "module.function, or one of fmtkit.rewards"
        )
    if of_library(entry) is None and "." not in entry.path:
        raise OptionError(f"{FLAG} {name}: name a function as module.function")
    return Scorer(name, Rewards([entry], RewardOptions(), judged=False))


def figures(values: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return two means over the prompts that have a reward: of the best one, and of that of one answer."""
    best = [v["reward"] for v in values if v["reward"] is not None]
    every = [[r for r in v["rewards"] if r is not None] for v in values]
    means = [sum(one) / len(one) for one in every if one]
    if not best:
        return {"without_reward": len(values)}
    lost = len(values) - len(best)
    return {
        "best_reward": sum(best) / len(best),
        "mean_reward": sum(means) / len(means),
        **({"without_reward": lost} if lost else {}),
    }
