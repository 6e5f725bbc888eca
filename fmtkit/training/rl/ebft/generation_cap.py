"""How many tokens an answer may have: as many as the batch's references suggest."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

FLOOR = 64
"""References of a few words still leave room for an answer of another length."""


def generation_cap(lengths: Sequence[int], multiplier: float, longest: int) -> int:
    """Return the cap for references of these lengths; never above `longest`, the user's own."""
    wanted = min(math.ceil(max(lengths) * multiplier), longest)
    return max(wanted, min(FLOOR, longest))


@contextmanager
def capped(trainer: Any, cap: int) -> Iterator[None]:
    """Let a GRPO trainer generate at most `cap` tokens for a while, with transformers or vLLM.

    `trainer.max_completion_length` stays as it is: the dr_grpo loss is divided by it.
    """
    if trainer.use_vllm:
        holder, name = trainer.vllm_generation, "max_completion_length"
    else:
        holder, name = trainer.generation_config, "max_new_tokens"
    before = getattr(holder, name)
    setattr(holder, name, cap)
    try:
        yield
    finally:
        setattr(holder, name, before)
