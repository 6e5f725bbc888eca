"""A dialog as tokens, with what became of it, and how TRL takes many of them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

PER_HOST = 64
"""Dialogs at a time."""
FAILED = "failed: "
"""How the outcome of a dialog begins that gave nothing to learn from; the reason follows."""
NO_TOKENS = (
    "no item of the answer has generation_token_ids; set return_token_id_information: true for the "
    "model server in the Gym's configuration (its vllm_model_for_training.yaml does)"
)
NOTHING = "the model wrote nothing"
PLAYED = "played"
CUT = "cut"
MISMATCH = "prefix_mismatch"
MASKED = "masked"
LEFT_OUT = "the environment wants it left out"


@dataclass
class Dialog:
    """A dialog as tokens; the four lists after the prompt are parallel.

    `env_mask` is 1 where the model wrote and 0 where the environment did, whose log-probability is 0;
    one that the server did not tell is NaN, which TRL takes for a ratio of 1.
    """

    prompt_ids: list[int]
    completion_ids: list[int] = field(default_factory=list)
    env_mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    turns: int = 0
    outcome: str = PLAYED

    def insert(self, ids: Sequence[int]) -> None:
        """Add what the environment wrote."""
        self._add(ids, [0.0] * len(ids), 0)

    def generate(self, ids: Sequence[int], logprobs: Sequence[float | None]) -> None:
        """Add a turn of the model."""
        told = [math.nan if value is None else float(value) for value in logprobs[: len(ids)]]
        self._add(ids, told + [math.nan] * (len(ids) - len(told)), 1)
        self.turns += 1

    def _add(self, ids: Sequence[int], logprobs: Sequence[float], mask: int) -> None:
        self.completion_ids += ids
        self.logprobs += logprobs
        self.env_mask += [mask] * len(ids)

    def cut(self, length: int) -> None:
        """Leave out what is beyond so many tokens of the completion."""
        if len(self.completion_ids) <= length:
            return
        for name in ("completion_ids", "env_mask", "logprobs"):
            del getattr(self, name)[length:]
        if self.outcome != MASKED:
            self.outcome = CUT

    def mask(self) -> None:
        """Let no token of the model be trained on: the environment wants the sample left out."""
        self.env_mask = [0] * len(self.env_mask)
        self.outcome = MASKED

    @property
    def is_empty(self) -> bool:
        """Return whether the model wrote nothing in it."""
        return not any(self.env_mask)


def columns(
    dialogs: Sequence[Dialog], played: Sequence[tuple[Any, float | None, str]], kind: str
) -> dict[str, list[Any] | None]:
    """Return dialogs as TRL takes them from a rollout_func, with what PlayedReward reads of that kind.

    Of each (_, reward, reason) in `played` the reason says why there is nothing to learn, if so.
    """
    return {
        "prompt_ids": [d.prompt_ids for d in dialogs],
        "completion_ids": [d.completion_ids for d in dialogs],
        "logprobs": [d.logprobs for d in dialogs],
        "env_mask": [d.env_mask for d in dialogs],
        "env_reward": [reward for _, reward, _ in played],
        "num_turns": [d.turns for d in dialogs],
        f"{kind}_outcome": [
            FAILED + reason if reason else dialog.outcome
            for dialog, (_, _, reason) in zip(dialogs, played, strict=True)
        ],
    }
