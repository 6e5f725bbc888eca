"""VLFeedback: a question about an image, and the answers of several models, rated for three aspects."""

from typing import Annotated, TypeAlias

import polars as pl

from fmtkit.columns import Text, records
from fmtkit.columns.conversations import messages_of, of_each, ranking
from fmtkit.columns.kinds import RecordKind, TextKind
from fmtkit.columns.problems import Column, Problem
from fmtkit.core.tables import Ranking
from fmtkit.formats.registry import converter

ASPECTS = ("Helpfulness", "Visual Faithfulness", "Ethical Considerations")
RATED = RecordKind({"Rating": TextKind()}, optional=frozenset({"Rating"}))
Completions: TypeAlias = Annotated[
    Column,
    records(
        {
            "response": TextKind(),
            "annotations": RecordKind(
                dict.fromkeys(ASPECTS, RATED), optional=frozenset(ASPECTS[1:])
            ),
        }
    ),
]


@converter()
def ranked(
    prompt: Text,
    completions: Completions,
    *,
    pairs: str = "best-worst",  # noqa: ARG001
) -> Ranking:
    """https://huggingface.co/datasets/MMInstruction/VLFeedback; an answer's score is its mean rating."""
    scores = completions.value.list.eval(_score())
    unrated = Problem(
        "null_field",
        "completions[].annotations",
        scores.list.eval(pl.element().is_null()).list.any(),
        "an answer has no rating",
    )
    texts = completions.with_value(of_each(completions.value, "response"), unrated)
    return ranking(messages_of(user=prompt), texts, scores)


def _score() -> pl.Expr:
    """Return the mean of the ratings of an answer; null without one, or where one is no number."""
    rated = pl.element().struct.field("annotations").struct
    return pl.mean_horizontal(
        rated.field(aspect).struct.field("Rating").cast(pl.Float64, strict=False)
        for aspect in ASPECTS
    )
