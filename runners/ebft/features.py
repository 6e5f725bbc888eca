"""Features of a text: hidden states of a frozen network at a few depths, pooled to one vector.

EBFT compares strings by such vectors (arXiv 2603.12248). Shapes: B sequences, T tokens, H hidden
size, K layers, D = K·H features.
"""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from fmtkit.core.errors import FmtkitError

Pooling = Literal["last_token", "mean_pooling", "completion_mean", "concat"]


def layer_indices(fractions: Sequence[float], layers: int) -> tuple[int, ...]:
    """Return the index into `hidden_states` for each fraction of the depth, 1 to `layers`.

    0 would be the raw embeddings, which no fraction means; equal indices are kept, so that a small
    model weights its layers as a large one does.
    """
    # The guard is for fractions such as 0.57, whose product with 100 is 56.99999.
    return tuple(min(layers, max(1, math.floor(f * layers + 1e-6))) for f in fractions)


def normalized_layers(hidden_states: Sequence[Tensor]) -> Tensor:
    """Scale each token's vector of each layer to length 1 and join the layers.

    Takes K tensors (..., H) of any floating type; returns float32 (..., K·H).
    """
    return torch.cat(
        [nn.functional.normalize(h.float(), dim=-1, eps=1e-12) for h in hidden_states], -1
    )


def token_features(
    body: nn.Module, input_ids: Tensor, indices: Sequence[int], **forward: Tensor | None
) -> Tensor:
    """Run the body on ids (B, T) and return float32 (B, T, D); `forward` are its other inputs."""
    output = body(input_ids=input_ids, use_cache=False, output_hidden_states=True, **forward)
    return normalized_layers([output.hidden_states[index] for index in indices])


def pool(features: Tensor, lengths: Tensor, prompt_lengths: Tensor, method: Pooling) -> Tensor:
    """Pool right-padded token features (B, T, D) to (B, D), or (B, 3·D) for `concat`.

    `lengths` (B,) counts the tokens that are not padding, `prompt_lengths` (B,) those of the prompt.
    An empty completion is represented by the last token of its prompt.
    """
    if method == "last_token":
        return _at(features, lengths - 1)
    if method == "concat":
        return torch.cat([_at(features, lengths * quarter // 4) for quarter in (1, 2, 3)], dim=-1)
    start = torch.zeros_like(lengths)
    if method == "completion_mean":
        start = torch.minimum(prompt_lengths, lengths - 1)
    position = torch.arange(features.shape[1], device=features.device)
    inside = (position >= start[:, None]) & (position < lengths[:, None])
    total = (features * inside[..., None]).sum(dim=1)
    return total / inside.sum(dim=1, keepdim=True)


def pool_steps(features: Tensor, method: Pooling) -> Tensor:
    """Pool the features of blocks (..., G, D) over their G steps to (..., D), or (..., 3·D)."""
    steps = features.shape[-2]
    if method == "last_token":
        return features[..., -1, :]
    if method == "concat":
        return torch.cat([features[..., steps * q // 4, :] for q in (1, 2, 3)], dim=-1)
    return features.mean(dim=-2)


def check_finite(features: Tensor, what: str) -> None:
    """Raise with the first row of (B, ...) that holds NaN or infinity."""
    bad = ~torch.isfinite(features).flatten(1).all(dim=1)
    if bad.any():
        row = int(bad.nonzero()[0, 0])
        raise FmtkitError(
            f"row {row} of {what}: the features hold NaN or infinity; "
            "look at the dtype of the model and at the row's text"
        )


def _at(features: Tensor, index: Tensor) -> Tensor:
    return features[torch.arange(features.shape[0], device=features.device), index]
