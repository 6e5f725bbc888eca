"""The ratio between the trained policy's and the sampler's probabilities, as TRL 1.16 corrects with it."""

import math

import torch
from torch import Tensor


def importance_ratio(
    old: Tensor,
    sampled: Tensor,
    mask: Tensor,
    *,
    mode: str,
    clip_min: float | None,
    clip_max: float | None,
) -> Tensor:
    """Return the ratio per token [B, T] or per sequence [B, 1] for log-probabilities [B, T].

    `*_truncate` modes clamp a ratio that is out of bounds, `*_mask` modes make it zero. A token whose
    sampled log-probability is unknown (NaN) has the ratio 1.
    """
    difference = torch.nan_to_num((old - sampled) * mask, nan=0.0)
    if mode.startswith("sequence"):
        difference = difference.sum(dim=-1, keepdim=True)
    ratio = torch.exp(difference)
    if mode.endswith("truncate"):
        return torch.clamp(ratio, min=clip_min, max=clip_max)
    low = -math.inf if clip_min is None else clip_min
    high = math.inf if clip_max is None else clip_max
    return ratio.masked_fill((ratio < low) | (ratio > high), 0.0)
