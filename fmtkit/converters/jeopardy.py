"""Jeopardy: a clue with its category as the input, and the answer, in Stanford's prompt text."""

import polars as pl

from fmtkit.columns import ABSENT, Text
from fmtkit.columns.instructions import STANFORD_SYSTEM_PROMPTS, answered, introduced, style_of
from fmtkit.core.tables import Segments
from fmtkit.formats.registry import converter


@converter(text=True)
def clue(
    question: Text, answer: Text, category: Text = ABSENT, *, style: str = "instruct"
) -> Segments:
    """https://huggingface.co/datasets/openaccess-ai-collective/jeopardy."""
    reply = answer.with_value(pl.concat_str([pl.lit("what is "), answer.value]))
    system = introduced(STANFORD_SYSTEM_PROMPTS, category)
    return answered(style_of(style), question, reply, input=category, system=system)
