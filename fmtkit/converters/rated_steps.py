"""A problem, the steps of a solution, and a label for each: in one list of objects, or in two lists."""

from typing import Annotated, TypeAlias

import polars as pl

from fmtkit.columns import ABSENT, Labels, Text, Texts, blank, one_filled, one_given, records
from fmtkit.columns.kinds import LabelKind, NumberKind, TextKind
from fmtkit.columns.problems import Column, Problem, uneven
from fmtkit.core.tables import Stepwise
from fmtkit.formats.registry import converter

ASKED = ("problem", "question", "prompt", "instruction", "query")
TEXTS = ("step", "text", "content")
LABELS = ("label", "is_correct", "correct", "score", "reward")
_TEXTS = dict.fromkeys(TEXTS, TextKind())
Rated: TypeAlias = Annotated[
    Column, records({**_TEXTS, "rating": NumberKind(range=(-1, 1))}, TEXTS)
]
Labelled: TypeAlias = Annotated[
    Column, records({**_TEXTS, **dict.fromkeys(LABELS, LabelKind())}, (*TEXTS, *LABELS))
]


@converter(any_of=[ASKED, ("steps", "solution_steps")])
def rated(
    problem: Text = ABSENT,
    question: Text = ABSENT,
    prompt: Text = ABSENT,
    instruction: Text = ABSENT,
    query: Text = ABSENT,
    steps: Rated = ABSENT,
    solution_steps: Rated = ABSENT,
) -> Stepwise:
    """https://github.com/openai/prm800k, a solution a row; 0 is neutral, and not wrong."""
    held = one_given(steps=steps, solution_steps=solution_steps)
    ratings = held.value.list.eval(pl.element().struct.field("rating"))
    unknown = ~pl.element().is_in([-1.0, 0.0, 1.0]).fill_null(value=False)
    is_other = Problem(
        "value_error",
        "steps[].rating",
        ratings.list.eval(unknown).list.any(),
        "a rating is not -1, 0 or 1",
    )
    asked = _asked((problem, question, prompt, instruction, query))
    right = held.with_value(ratings.list.eval(pl.element() >= 0), is_other)
    return Stepwise(asked, _texts(held), right)


@converter(any_of=[ASKED, ("steps", "solution_steps")])
def labelled(
    problem: Text = ABSENT,
    question: Text = ABSENT,
    prompt: Text = ABSENT,
    instruction: Text = ABSENT,
    query: Text = ABSENT,
    steps: Labelled = ABSENT,
    solution_steps: Labelled = ABSENT,
    *,
    soft: bool = True,
) -> Stepwise:
    """https://huggingface.co/datasets/Qwen/ProcessBench, with a label in each step: 0, 1 or a share of 1."""
    held = one_given(steps=steps, solution_steps=solution_steps)
    field = pl.element().struct.field
    told = held.value.list.eval(pl.coalesce(field(name) for name in LABELS))
    untold = Problem(
        "null_field",
        "steps[]",
        told.list.eval(pl.element().is_null()).list.any(),
        "a step has no label",
    )
    asked = _asked((problem, question, prompt, instruction, query))
    value = told if soft else told.list.eval(pl.element() == 1)
    return Stepwise(asked, _texts(held), held.with_value(value, untold))


@converter(
    any_of=[
        ASKED,
        ("steps", "solution_steps", "reasoning_steps"),
        (
            "step_labels",
            "step_scores",
            "step_ratings",
            "step_rewards",
            "labels",
            "scores",
            "ratings",
            "correctness",
        ),
    ]
)
def lists(
    problem: Text = ABSENT,
    question: Text = ABSENT,
    prompt: Text = ABSENT,
    instruction: Text = ABSENT,
    query: Text = ABSENT,
    steps: Texts = ABSENT,
    solution_steps: Texts = ABSENT,
    reasoning_steps: Texts = ABSENT,
    step_labels: Labels = ABSENT,
    step_scores: Labels = ABSENT,
    step_ratings: Labels = ABSENT,
    step_rewards: Labels = ABSENT,
    labels: Labels = ABSENT,
    scores: Labels = ABSENT,
    ratings: Labels = ABSENT,
    correctness: Labels = ABSENT,
    *,
    soft: bool = True,
) -> Stepwise:
    """https://huggingface.co/papers/2312.08935; labels are 0 or 1, or how likely each step is right.

    With soft=false a step is right where its label is 1.
    """
    held = one_given(steps=steps, solution_steps=solution_steps, reasoning_steps=reasoning_steps)
    told = one_given(
        step_labels=step_labels,
        step_scores=step_scores,
        step_ratings=step_ratings,
        step_rewards=step_rewards,
        labels=labels,
        scores=scores,
        ratings=ratings,
        correctness=correctness,
    )
    ragged = uneven(held, told, ("steps", "labels"))
    value = told.value if soft else told.value.list.eval(pl.element() == 1)
    asked = _asked((problem, question, prompt, instruction, query))
    return Stepwise(
        asked, held.with_value(held.value, _none(held.value)), told.with_value(value, ragged)
    )


def _texts(steps: Column) -> Column:
    """Return the texts of steps that are objects."""
    item = pl.element()
    texts = steps.value.list.eval(pl.coalesce(item.struct.field(name) for name in TEXTS))
    nothing, silent = (texts.list.eval(when).list.any() for when in (item.is_null(), blank(item)))
    return steps.with_value(
        texts,
        _none(texts),
        Problem("null_field", "steps[]", nothing, "a step has no text"),
        Problem("empty_field", "steps[]", silent, "a step is empty or blank"),
    )


def _none(texts: pl.Expr) -> Problem:
    return Problem("empty_field", "steps", texts.list.len() == 0, "there are no steps")


def _asked(columns: tuple[Column, ...]) -> Column:
    return one_filled(dict(zip(ASKED, columns, strict=True)))
