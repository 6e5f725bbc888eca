"""A conversation as tokens with its outcome, and the columns of a batch of them for TRL."""

import math
from collections.abc import Sequence
from dataclasses import field
from typing import Any

from fmtkit.core.data_classes import dataclass

PER_HOST = 64
"""Conversations that run at the same time."""
FAILED = "failed: "
"""Prefix of the outcome of a failed conversation; the reason follows."""
NOTHING = "the model wrote nothing"
COMPLETED = "completed"
CUT = "cut"
MISMATCH = "prefix_mismatch"
MASKED = "masked"
LEFT_OUT = "masked by the environment"


@dataclass
class TokenizedConversation:
    """A conversation as tokens; the four lists after the prompt are parallel.

    `env_mask` is 1 for tokens of the model and 0 for those of the environment, whose log-probability is 0;
    one that the server did not report is NaN, which TRL treats as a ratio of 1.
    """

    prompt_ids: list[int]
    completion_ids: list[int] = field(default_factory=list)
    env_mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    turns: int = 0
    outcome: str = COMPLETED

    def insert(self, ids: Sequence[int]) -> None:
        """Add tokens of the environment."""
        self._add(ids, [0.0] * len(ids), 0)

    def generate(self, ids: Sequence[int], logprobs: Sequence[float | None]) -> None:
        """Add a turn of the model."""
        known = [math.nan if value is None else float(value) for value in logprobs[: len(ids)]]
        self._add(ids, known + [math.nan] * (len(ids) - len(known)), 1)
        self.turns += 1

    def _add(self, ids: Sequence[int], logprobs: Sequence[float], mask: int) -> None:
        self.completion_ids += ids
        self.logprobs += logprobs
        self.env_mask += [mask] * len(ids)

    def cut(self, length: int) -> None:
        """Truncate the completion to `length` tokens."""
        if len(self.completion_ids) <= length:
            return
        for name in ("completion_ids", "env_mask", "logprobs"):
            del getattr(self, name)[length:]
        if self.outcome != MASKED:
            self.outcome = CUT

    def mask(self) -> None:
        """Mask every token: the environment excludes the sample from training."""
        self.env_mask = [0] * len(self.env_mask)
        self.outcome = MASKED

    @property
    def is_empty(self) -> bool:
        """Return whether the model wrote nothing in it."""
        return not any(self.env_mask)


def columns(
    conversations: Sequence[TokenizedConversation],
    outcomes: Sequence[tuple[Any, float | None, str]],
    kind: str,
) -> dict[str, list[Any] | None]:
    """Return conversations in the form of a rollout_func's output, with the columns that EnvReward reads.

    `outcomes` holds (_, reward, reason) per conversation; a non-empty reason says why it is not trained on.
    """
    return {
        "prompt_ids": [d.prompt_ids for d in conversations],
        "completion_ids": [d.completion_ids for d in conversations],
        "logprobs": [d.logprobs for d in conversations],
        "env_mask": [d.env_mask for d in conversations],
        "env_reward": [reward for _, reward, _ in outcomes],
        "num_turns": [d.turns for d in conversations],
        f"{kind}_outcome": [
            FAILED + reason if reason else conversation.outcome
            for conversation, (_, _, reason) in zip(conversations, outcomes, strict=True)
        ],
    }
