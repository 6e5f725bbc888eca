"""Advantages of a group's samples from their rewards, for losses that TRL does not compute."""

from typing import Literal

from torch import Tensor

Estimator = Literal["rloo", "group_norm", "reinforce"]


def advantages(rewards: Tensor, estimator: Estimator) -> Tensor:
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
