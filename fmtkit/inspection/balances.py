"""What is out of balance over all rows: the lengths of the two sides, the two labels."""

from collections.abc import Mapping

import numpy as np

MANY = 50
"""Rows from which on a share is worth a finding."""


def length_bias(longer: Mapping[str, float]) -> dict[str, float | str] | None:
    """Return the figures where one side is longer far more often than by chance (3 sigma, 60 %)."""
    pairs = longer.get("chosen", 0) + longer.get("rejected", 0)
    if pairs < MANY:
        return None
    share = longer["chosen"] / pairs
    if abs(share - 0.5) < max(0.1, 1.5 / np.sqrt(pairs)):
        return None
    return {
        "longer": "chosen" if share > 0.5 else "rejected",
        "rows": longer["chosen" if share > 0.5 else "rejected"],
        "share": max(share, 1 - share),
        "mean_chosen": longer["chosen_length"] / longer["pairs"],
        "mean_rejected": longer["rejected_length"] / longer["pairs"],
    }


def kto_weights(desired: int, undesired: int) -> dict[str, float | str] | None:
    """Return the weights that bring desired to undesired rows to 1:1 up to 4:3.

    None where they are about in that range already. KTO's paper, equation 8
    (https://arxiv.org/abs/2402.01306): set one of the two, not both.
    """
    if 0.95 <= desired / undesired <= 4 / 3:
        return None
    return {
        "desired": desired,
        "undesired": undesired,
        "desirable_weight_from": round(undesired / desired, 4),
        "desirable_weight_to": round(undesired / desired * 4 / 3, 4),
        "undesirable_weight_from": round(desired / undesired * 3 / 4, 4),
        "undesirable_weight_to": round(desired / undesired, 4),
    }
