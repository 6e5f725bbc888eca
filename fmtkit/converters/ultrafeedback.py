"""UltraFeedback's original rows: an instruction, several completions and their ratings."""

from typing import Annotated, TypeAlias

import polars as pl

from fmtkit.columns import Text, records
from fmtkit.columns.conversations import messages_of, of_each, ranking
from fmtkit.columns.kinds import NumberKind, RecordKind, TextKind
from fmtkit.columns.problems import Column, Problem
from fmtkit.core.errors import UnknownNameError
from fmtkit.core.tables import Ranking
from fmtkit.formats.registry import converter

ASPECTS = ("helpfulness", "honesty", "instruction_following", "truthfulness")
RATED = RecordKind({"Rating": TextKind()}, optional=frozenset({"Rating"}))
SCORES = {
    "overall_score": ("overall_score",),
    "fine_grained_score": ("fine-grained_score", "fine_grained_score"),
    "annotations": (),
}
"""Value of `score` -> the keys that hold it; for annotations the ratings of the aspects are averaged."""

Completions: TypeAlias = Annotated[
    Column,
    records(
        {
            "response": TextKind(),
            "overall_score": NumberKind(),
            "fine-grained_score": NumberKind(),
            "fine_grained_score": NumberKind(),
            "annotations": RecordKind(dict.fromkeys(ASPECTS, RATED), optional=frozenset(ASPECTS)),
        },
        optional=("overall_score", "fine-grained_score", "fine_grained_score", "annotations"),
    ),
]


@converter()
def ranked(
    instruction: Text,
    completions: Completions,
    *,
    score: str = "overall_score",
    pairs: str = "best-worst",  # noqa: ARG001
) -> Ranking:
    """https://huggingface.co/datasets/openbmb/UltraFeedback."""
    if score not in SCORES:
        raise UnknownNameError("score", score, SCORES)
    order = [score, *(name for name in SCORES if name != score)]
    scores = pl.coalesce(_complete(completions.value.list.eval(_score(name))) for name in order)
    unrated = Problem(
        "null_field", "completions[].overall_score", scores.is_null(), "a completion has no score"
    )
    texts = completions.with_value(of_each(completions.value, "response"), unrated)
    return ranking(messages_of(user=instruction), texts, scores)


def _complete(scores: pl.Expr) -> pl.Expr:
    """Return the scores of a row if every completion has one, else null: scales must not be mixed."""
    return pl.when(~scores.list.eval(pl.element().is_null()).list.any()).then(scores)


def _score(name: str) -> pl.Expr:
    completion = pl.element().struct
    if SCORES[name]:
        return pl.coalesce(completion.field(key) for key in SCORES[name])
    ratings = completion.field("annotations").struct
    return pl.mean_horizontal(
        ratings.field(aspect).struct.field("Rating").cast(pl.Float64, strict=False)
        for aspect in ASPECTS
    )
