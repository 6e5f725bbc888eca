"""TruthfulQA: a question, its best answer, and answers that are wrong, as a list or as one text."""

import polars as pl

from fmtkit.columns import Text, Texts
from fmtkit.columns.conversations import messages_of, ranking
from fmtkit.columns.problems import Column
from fmtkit.core.tables import Ranking
from fmtkit.formats.registry import converter


@converter()
def lists(
    question: Text,
    best_answer: Text,
    correct_answers: Texts,
    incorrect_answers: Texts,
    *,
    pairs: str = "best-worst",  # noqa: ARG001
) -> Ranking:
    """https://huggingface.co/datasets/truthfulqa/truthful_qa; other correct answers make no pair."""
    return _ranking(question, best_answer.depending_on(correct_answers), incorrect_answers)


@converter(
    paths={
        "question": "Question",
        "best_answer": "Best Answer",
        "correct_answers": "Correct Answers",
        "incorrect_answers": "Incorrect Answers",
    }
)
def table(
    question: Text,
    best_answer: Text,
    correct_answers: Text,
    incorrect_answers: Text,
    *,
    pairs: str = "best-worst",  # noqa: ARG001
) -> Ranking:
    """https://github.com/sylinrl/TruthfulQA, TruthfulQA.csv; a semicolon stands between answers."""
    wrong = incorrect_answers.value.str.split(";").list.eval(pl.element().str.strip_chars())
    each = incorrect_answers.with_value(wrong.list.eval(pl.element().filter(pl.element() != "")))
    return _ranking(question, best_answer.depending_on(correct_answers), each)


def _ranking(question: Column, best: Column, wrong: Column) -> Ranking:
    """Rank the best answer before the wrong ones, which are all as bad."""
    replies = pl.concat_list(pl.concat_list(best.value), wrong.value)
    zeros = wrong.value.list.eval(pl.element().is_null().cast(pl.Float64) * 0)
    scores = pl.concat_list(pl.concat_list(pl.lit(1.0)), zeros)
    return ranking(messages_of(user=question), best.with_value(replies).depending_on(wrong), scores)
