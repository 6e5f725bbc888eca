"""A problem with graded solutions, each right or wrong, or with a score."""

from typing import Annotated, TypeAlias

import polars as pl

from fmtkit.columns import ABSENT, Text, Texts, first_filled, one_given, records
from fmtkit.columns.conversations import messages_of, of_each, ranking
from fmtkit.columns.kinds import FlagKind, ListKind, NumberKind, RecordKind, TextKind
from fmtkit.columns.problems import Column, Problem
from fmtkit.core.tables import Ranking
from fmtkit.formats.registry import converter

Solutions: TypeAlias = Annotated[
    Column,
    records(
        {"solution": TextKind(), "is_correct": FlagKind(), "score": NumberKind()},
        optional=("is_correct", "score"),
    ),
]
Flags: TypeAlias = Annotated[Column, ListKind(FlagKind())]
Solution: TypeAlias = Annotated[
    Column, RecordKind({"solution": TextKind(), "is_correct": FlagKind()})
]


@converter(any_of=[("question", "prompt")])
def listed(
    solutions: Solutions,
    question: Text = ABSENT,
    prompt: Text = ABSENT,
    *,
    pairs: str = "best-worst",  # noqa: ARG001
) -> Ranking:
    """https://huggingface.co/datasets/openai/gsm8k, with a list of solutions for each problem."""
    right = pl.element().struct.field("is_correct").cast(pl.Float64)
    score = pl.coalesce(pl.element().struct.field("score"), right)
    scores = solutions.value.list.eval(score)
    ungraded = Problem(
        "null_field",
        "solutions[].is_correct",
        scores.list.eval(pl.element().is_null()).list.any(),
        "a solution has neither is_correct nor score",
    )
    texts = solutions.with_value(of_each(solutions.value, "solution"), ungraded)
    return ranking(messages_of(user=first_filled(question=question, prompt=prompt)), texts, scores)


@converter(
    any_of=[
        ("question", "prompt", "problem"),
        ("responses", "generations", "completions", "answers", "outputs"),
        ("is_correct", "correctness", "correct"),
    ]
)
def flagged(
    question: Text = ABSENT,
    prompt: Text = ABSENT,
    problem: Text = ABSENT,
    responses: Texts = ABSENT,
    generations: Texts = ABSENT,
    completions: Texts = ABSENT,
    answers: Texts = ABSENT,
    outputs: Texts = ABSENT,
    is_correct: Flags = ABSENT,
    correctness: Flags = ABSENT,
    correct: Flags = ABSENT,
    *,
    pairs: str = "best-worst",  # noqa: ARG001
) -> Ranking:
    """https://huggingface.co/datasets/open-r1/OpenR1-Math-220k; a flag for each of a list of replies."""
    texts = one_given(
        responses=responses,
        generations=generations,
        completions=completions,
        answers=answers,
        outputs=outputs,
    )
    flags = one_given(is_correct=is_correct, correctness=correctness, correct=correct)
    right = flags.value.list.eval(pl.element().cast(pl.Float64))
    ragged = Problem(
        "length_mismatch",
        None,
        texts.value.list.len() != right.list.len(),
        "the replies and their flags differ in length",
    )
    both = texts.with_value(texts.value, ragged).depending_on(flags)
    asked = first_filled(question=question, prompt=prompt, problem=problem)
    return ranking(messages_of(user=asked), both, right)


@converter(
    paths={
        "finetuned_small": "6b_finetuning",
        "verified_small": "6b_verification",
        "finetuned_large": "175b_finetuning",
        "verified_large": "175b_verification",
    }
)
def of_models(
    question: Text,
    finetuned_small: Solution,
    verified_small: Solution,
    finetuned_large: Solution,
    verified_large: Solution,
    ground_truth: Text = ABSENT,
    *,
    pairs: str = "best-worst",  # noqa: ARG001
) -> Ranking:
    """https://github.com/openai/grade-school-math, example_model_solutions.jsonl.

    The written solution (`ground_truth`) is a right one, before those of the models.
    """
    models = (finetuned_small, verified_small, finetuned_large, verified_large)
    solutions = pl.concat_list(model.value.struct.field("solution") for model in models)
    right = pl.concat_list(
        model.value.struct.field("is_correct").cast(pl.Float64) for model in models
    )
    if ground_truth is not ABSENT:
        written = pl.concat_list(ground_truth.value).list.drop_nulls()
        solutions = pl.concat_list(written, solutions)
        right = pl.concat_list(
            written.list.eval(pl.element().is_not_null().cast(pl.Float64)), right
        )
    made = Column(solutions).depending_on(*models, ground_truth)
    return ranking(messages_of(user=question), made, right)
