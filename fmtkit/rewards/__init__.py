"""Rewards that need no model and no service, for `trl.reward_funcs` or any trainer of TRL.

    trl:
      reward_funcs:
        - fmtkit.rewards.accuracy
        - fmtkit.rewards.length_cap: {cap: 512}

A completion is a string, or the list of messages that TRL makes of it. A class is made with its
options and called as TRL calls rewards: accuracy(column="label")(completions=..., label=...).
"""

from fmtkit.rewards.correctness import accuracy, exact_match, numeric_match
from fmtkit.rewards.form import pattern, tags
from fmtkit.rewards.lengths import length_cap, length_target
from fmtkit.rewards.repetitions import repetition

__all__ = [
    "accuracy",
    "exact_match",
    "length_cap",
    "length_target",
    "numeric_match",
    "pattern",
    "repetition",
    "tags",
]

LIBRARY: dict[str, type] = {
    reward.__name__: reward
    for reward in (
        accuracy,
        exact_match,
        length_cap,
        length_target,
        numeric_match,
        pattern,
        repetition,
        tags,
    )
}
"""Every reward of the library by its name."""
