"""Step-DPO: the beginning of a solution, and the better and the worse step with which it goes on."""

import polars as pl

from fmtkit.columns import ABSENT, Text, one_filled
from fmtkit.columns.conversations import pair
from fmtkit.columns.problems import Column
from fmtkit.core.tables import Preference
from fmtkit.formats.registry import converter

ASKED = ("prompt", "problem", "question", "instruction")


@converter(any_of=[ASKED], harmless=("full_chosen", "full_rejected", "answer"))
def preference(
    chosen: Text,
    rejected: Text,
    initial_reason_steps: Text,
    prompt: Text = ABSENT,
    problem: Text = ABSENT,
    question: Text = ABSENT,
    instruction: Text = ABSENT,
) -> Preference:
    """https://huggingface.co/datasets/xinlai/Math-Step-DPO-10K; the beginning is a part of both replies."""
    asked = one_filled(dict(zip(ASKED, (prompt, problem, question, instruction), strict=True)))
    begun = initial_reason_steps
    return pair(asked, _after(begun, chosen), _after(begun, rejected))


def _after(begun: Column, step: Column) -> Column:
    """Return the reply: its beginning, and after white space the step."""
    first, last = begun.value, step.value
    is_apart = first.str.contains(r"\s$") | last.str.contains(r"^\s")
    gap = pl.when(is_apart).then(pl.lit("")).otherwise(pl.lit("\n"))
    return step.with_value(pl.concat_str([first, gap, last])).depending_on(begun)
