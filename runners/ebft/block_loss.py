"""Losses of strided EBFT: policy gradient on generated tokens, cross-entropy on the document's."""

import torch
from torch import Tensor


def token_log_probs(logits: Tensor, tokens: Tensor, temperature: float = 1.0) -> Tensor:
    """Return log p(token) as float32 (...) of logits (..., V) over the sampling temperature.

    Temperature 0 (greedy sampling) counts as 1. The temperature belongs to the policy that was
    sampled from: without it the gradient is that of a different distribution.
    """
    scaled = logits.float() / (temperature or 1.0)
    chosen = scaled.gather(-1, tokens[..., None])[..., 0]
    return chosen - scaled.logsumexp(dim=-1)


def policy_loss(log_probs: Tensor, advantages: Tensor, valid: Tensor) -> Tensor:
    """Return −Σ log p·A over the valid blocks' tokens, over their number.

    log_probs (B, G, M); advantages (B, M) and valid (B, M) bool hold one value for each block, used at every
    step.
    """
    weight = (advantages * valid)[:, None, :]
    count = valid.sum() * log_probs.shape[1]
    return -(log_probs * weight).sum() / count.clamp(min=1)


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean of −log p(label j | tokens before j) of logits (B, S−1, V) and labels (B, S).

    Label −100 is not a target, and neither is the first token; without targets the loss is 0.
    """
    targets = labels[:, 1:]
    wanted = targets != -100
    log_probs = token_log_probs(logits, targets.where(wanted, 0))
    return -log_probs.where(wanted, torch.zeros_like(log_probs)).sum() / wanted.sum().clamp(min=1)
