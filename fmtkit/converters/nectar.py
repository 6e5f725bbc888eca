"""Nectar: a prompt with answers ranked from 1, the best, upwards."""

from typing import Annotated, TypeAlias

import polars as pl

from fmtkit.columns import ABSENT, Text, records
from fmtkit.columns.conversations import must_end_with_prompt, of_each, ranking, with_system
from fmtkit.columns.kinds import NumberKind, TextKind
from fmtkit.columns.problems import Column
from fmtkit.columns.transcripts import question_or_transcript
from fmtkit.core.tables import Ranking
from fmtkit.formats.registry import converter

Ranked: TypeAlias = Annotated[Column, records({"answer": TextKind(), "rank": NumberKind()})]


@converter(differs="rank 1 is the best answer; axolotl trains on the worst one")
def rank(
    prompt: Text,
    answers: Ranked,
    system: Text = ABSENT,
    *,
    pairs: str = "best-worst",  # noqa: ARG001
) -> Ranking:
    """https://huggingface.co/datasets/berkeley-nest/Nectar."""
    texts = answers.with_value(of_each(answers.value, "answer"))
    asked = must_end_with_prompt(with_system(system, question_or_transcript(prompt)), "prompt")
    scores = of_each(answers.value, "rank").list.eval(-pl.element())
    return ranking(asked, texts, scores)
