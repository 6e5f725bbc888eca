"""Zero-advantage skip: micro-batches whose advantages are all zero give no policy gradient."""

from typing import Any

import torch
from torch import Tensor


def is_silent(trainer: Any, advantages: Tensor) -> bool:
    """Return whether the loss of a micro-batch has no gradient, on any process.

    A KL term, an entropy bonus and the balance of experts have their own gradients.
    """
    if trainer.beta or trainer._entropy_bonus_enabled or trainer.aux_loss_enabled:
        return False
    here = (advantages == 0).all()
    if trainer.accelerator.num_processes > 1:
        here = trainer.accelerator.gather(here.view(1)).all()
    return bool(here)


def zero_loss(model: Any, inputs: dict[str, Any]) -> Tensor:
    """Return a zero that depends on every weight: one token's log-probability times zero.

    The forward pass is not skipped entirely: DDP, FSDP and ZeRO exchange gradients of the
    earlier micro-batches in the backward pass that belongs to it.
    """
    ids = inputs["prompt_ids"][:1, -1:].repeat(1, 2)
    outputs = model(
        input_ids=ids, attention_mask=torch.ones_like(ids), labels=ids, fused_lm_head=True
    )
    loss: Tensor = outputs.log_probs.nan_to_num(0.0, 0.0, 0.0).sum() * 0.0
    return loss
