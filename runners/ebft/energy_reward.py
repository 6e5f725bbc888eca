"""The EBFT reward: how well features match the reference's, minus how similar the samples are.

For a group of n samples x_1..x_n of one prompt and the reference g (arXiv 2603.12248, the
feature-matching objective and its REINFORCE form; the factor 2 is the derivative of the squared
distance):

  align_j  = cos(x_j, g)
  div_j    = 1/(n-1) · Σ_{k≠j} x_j·x_k                       0 for n = 1
  reward_j = 2·alignment_coef·align_j − 2·diversity_coef·div_j
  cfm      = ‖mean_j x_j − g‖²                               a diagnostic

where x and g are unit vectors, or whitened ones. Shapes: (..., n, D) samples, (..., D) references.

Whitened samples are orthogonal unless they repeat, and the squares of their n cosines with a whitened
reference add up to 1: whatever the model learns, their mean cannot exceed 1/√n. What is learned shows in
the same terms of the unit vectors, which are therefore measured as well.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, normalize

from fmtkit.core.errors import OptionError

from .settings import AdvantageEstimator
from .whitening import Space, whiten

Baseline = Literal["group", "loo"]
UNWHITENED = ("ebft/alignment_unwhitened", "ebft/diversity_unwhitened")


@dataclass(frozen=True)
class Weights:
    """How the terms of the reward are weighed and in which space they are measured."""

    alignment: float = 1.0
    diversity: float = 1.0
    baseline: Baseline = "group"
    whitening: Space | None = None
    """None compares unit vectors."""


@dataclass(frozen=True)
class Energy:
    """Terms of the reward, (..., n) each; `distance` (...) is the feature-matching loss."""

    reward: Tensor
    alignment: Tensor
    diversity: Tensor
    distance: Tensor
    unwhitened: tuple[Tensor, Tensor] | None = None
    """Alignment and diversity of the unit vectors, where the settings ask for whitening."""
    whitening_failed: bool = False
    """The decomposition did not converge twice: unit vectors were compared instead."""

    def metrics(self, chosen: Tensor) -> dict[str, float]:
        """Return means over the chosen groups, at least one, named as they are logged.

        Alignment and diversity carry the factor 2 that they have in the reward.
        """
        values = {
            "ebft/alignment": float(2 * self.alignment[chosen].mean()),
            "ebft/diversity": float(2 * self.diversity[chosen].mean()),
            "ebft/cfm_loss": float(self.distance[chosen].mean()),
        }
        if self.unwhitened is not None:
            for name, term in zip(UNWHITENED, self.unwhitened, strict=True):
                values[name] = float(2 * term[chosen].mean())
        return values


def energy(samples: Tensor, reference: Tensor, weights: Weights) -> Energy:
    """Reward the samples (..., n, D) of each group against its reference (..., D)."""
    samples, reference = samples.float(), reference.float()
    placed, target, failed = _place(samples, reference, weights.whitening)
    alignment, diversity = align(placed, target), likeness(placed)
    unwhitened = None
    if weights.whitening is not None:
        unwhitened = align(samples, reference), likeness(normalize(samples, dim=-1))
    coefficient = weights.diversity * baseline_factor(samples.shape[-2], weights.baseline)
    reward = 2 * weights.alignment * alignment - 2 * coefficient * diversity
    distance = (placed.mean(dim=-2) - target).square().sum(dim=-1)
    return Energy(reward, alignment, diversity, distance, unwhitened, failed)


def align(samples: Tensor, reference: Tensor) -> Tensor:
    """Return cos(x_j, g) as (..., n); 0 where a vector has no length."""
    return cosine_similarity(samples, reference[..., None, :], dim=-1, eps=1e-8)


def likeness(samples: Tensor) -> Tensor:
    """Return the mean dot product of each sample with the others of its group, (..., n)."""
    n = samples.shape[-2]
    if n == 1:
        return samples.new_zeros(samples.shape[:-1])
    gram = samples @ samples.transpose(-1, -2)
    return (gram.sum(dim=-1) - gram.diagonal(dim1=-2, dim2=-1)) / (n - 1)


def baseline_factor(n: int, baseline: Baseline) -> float:
    """Return the factor of the diversity coefficient.

    A group mean or leave-one-out baseline of the reward shares pair (j, k) between j and k, which
    shrinks the diversity gradient by (n−2)/(n−1). `loo` undoes that and needs n ≥ 3.
    """
    if baseline == "group" or n == 1:
        return 1.0
    if n == 2:
        raise OptionError(
            "ebft.diversity_baseline: loo needs at least 3 samples of a prompt, not 2"
        )
    return (n - 1) / (n - 2)


def _place(samples: Tensor, reference: Tensor, space: Space | None) -> tuple[Tensor, Tensor, bool]:
    failed = False
    if space is not None and samples.shape[-2] > 1:
        try:
            return *whiten(samples, reference, space), False
        except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
            failed = True
    return normalize(samples, dim=-1), normalize(reference, dim=-1), failed


def advantages(rewards: Tensor, estimator: AdvantageEstimator) -> Tensor:
    """Return what each of the n samples of a group gains over the others; shape (..., n).

    rloo: r_j − mean of the other rewards (Ahmadian et al., arXiv 2402.14740). group_norm: (r −
    mean) / (std + 1e-8), std with n−1 (Shao et al., arXiv 2402.03300). reinforce: r itself.
    """
    if estimator == "reinforce":
        return rewards
    n = rewards.shape[-1]
    centred = rewards - rewards.mean(dim=-1, keepdim=True)
    if estimator == "rloo":
        return centred * (n / (n - 1))
    return centred / (rewards.std(dim=-1, keepdim=True) + 1e-8)
