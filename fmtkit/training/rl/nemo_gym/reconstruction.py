"""The tokens of a dialog, put together again from what the model server told of each of its calls.

Of the items that one call of the model makes, the last alone carries `prompt_token_ids`, what the
model read, `generation_token_ids` and `generation_log_probs`, what it wrote. What it read of a later
call begins with everything so far, and the rest of that is the environment's.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fmtkit.training.rl.nemo_gym.calls import CallError

PLAYED = "played"
CUT = "cut"
MISMATCH = "prefix_mismatch"
MASKED = "masked"


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
        """Let no token of the model be learnt: the environment wants the sample left out."""
        self.env_mask = [0] * len(self.env_mask)
        self.outcome = MASKED

    @property
    def is_empty(self) -> bool:
        """Tell whether the model wrote nothing in it."""
        return not any(self.env_mask)


def reconstruct(items: Sequence[Mapping[str, Any]]) -> Dialog | None:
    """Return the dialog of `response.output`; None if no item tells the model's tokens.

    A turn whose prompt does not begin with what came before (a template that rewrites earlier turns)
    ends the dialog: it and what follows is left out, and the outcome says so.
    """
    calls = [item for item in items if item.get("generation_token_ids") is not None]
    if not calls:
        return None
    dialog = Dialog(prompt_ids=_ids(calls[0], "prompt_token_ids"))
    if not dialog.prompt_ids:
        raise CallError("the answer's first item tells no prompt_token_ids")
    for number, call in enumerate(calls):
        read = _ids(call, "prompt_token_ids")
        seen = dialog.prompt_ids + dialog.completion_ids
        if read[: len(seen)] != seen:
            dialog.outcome = MISMATCH
            break
        if number:
            dialog.insert(read[len(seen) :])
        dialog.generate(_ids(call, "generation_token_ids"), call.get("generation_log_probs") or ())
    return dialog


def _ids(item: Mapping[str, Any], name: str) -> list[int]:
    ids = item.get(name) or []
    if not isinstance(ids, list) or not all(type(value) is int for value in ids):
        raise CallError(f"{name} of the answer is no list of token ids, but {str(ids)[:80]}")
    return ids
