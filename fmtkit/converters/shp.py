"""SHP: a post, two comments on it, and which of them more people liked."""

import polars as pl

from fmtkit.columns import Flag, Text
from fmtkit.columns.conversations import pair
from fmtkit.core.tables import Preference
from fmtkit.formats.registry import converter


@converter()
def preference(history: Text, human_ref_A: Text, human_ref_B: Text, labels: Flag) -> Preference:  # noqa: N803
    """https://huggingface.co/datasets/stanfordnlp/SHP; label 1 prefers comment A, 0 prefers B."""
    first, second = human_ref_A.value, human_ref_B.value
    better = human_ref_A.with_value(pl.when(labels.value).then(first).otherwise(second))
    worse = human_ref_B.with_value(pl.when(labels.value).then(second).otherwise(first))
    return pair(history, better.depending_on(labels), worse)
