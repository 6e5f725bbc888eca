"""Whitening of a group's feature vectors, in as many coordinates as there are samples.

The definition multiplies samples X (n, D) and reference g (D,) by W = U diag(1/S) Uᵀ with the
thin singular value decomposition Xᵀ = U S Vᵀ (arXiv 2603.12248, whitened feature matching). W is
D×D, but every inner product of X·W and g·W equals that of V and diag(1/S)·Uᵀ·g, so W is never
built: memory grows with n·D, time with n²·D.
"""

from typing import Literal

import torch
from torch import Tensor

Space = Literal["feature", "sample"]

CUTOFF = 1e-5
"""Directions whose singular value is below this share of the largest are dropped."""


def whiten(samples: Tensor, reference: Tensor, space: Space = "feature") -> tuple[Tensor, Tensor]:
    """Whiten samples (..., n, D) and reference (..., D) to (..., n, r) and (..., r), r = min(n, D).

    Coordinates of dropped directions are 0. In the `sample` space, the form of the authors' code,
    the reference keeps its direction and gets one more coordinate, which holds its length outside
    the samples' span, so that cosines divide by its full norm: r is then one larger. Raises
    torch.linalg.LinAlgError when the decomposition does not converge twice.
    """
    left, singular, right = _decompose(samples)
    keep = singular > CUTOFF * singular.amax(dim=-1, keepdim=True)
    coordinates = left * keep[..., None, :]
    inside = (right @ reference[..., None])[..., 0] * keep
    if space == "feature":
        return coordinates, inside / (singular + 1e-12)
    outside = (reference.square().sum(-1) - inside.square().sum(-1)).clamp(min=0).sqrt()
    nothing = coordinates.new_zeros((*coordinates.shape[:-1], 1))
    return torch.cat([coordinates, nothing], -1), torch.cat([inside, outside[..., None]], -1)


def _decompose(samples: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    try:
        return tuple(torch.linalg.svd(samples, full_matrices=False))
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
        noise = 1e-6 * samples.abs().mean() * torch.randn_like(samples)
        return tuple(torch.linalg.svd(samples + noise, full_matrices=False))
