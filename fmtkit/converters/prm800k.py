"""PRM800K: a problem, and for each step the completions that people rated -1, 0 or 1."""

from collections.abc import Iterable, Sequence
from typing import Annotated, TypeAlias

import polars as pl
from polars import Expr

from fmtkit.columns import Text, blank, records
from fmtkit.columns.expansion import several
from fmtkit.columns.kinds import ListKind, NumberKind, RecordKind, TextKind
from fmtkit.columns.problems import Column, Problem
from fmtkit.core.errors import UnknownNameError
from fmtkit.core.tables import Stepwise
from fmtkit.formats.registry import converter

RATED = RecordKind({"text": TextKind(), "rating": NumberKind()}, optional=frozenset({"rating"}))
Steps: TypeAlias = Annotated[
    Column,
    records(
        {
            "completions": ListKind(RATED),
            "chosen_completion": NumberKind(),
            "human_completion": RATED,
        },
        optional=("completions", "chosen_completion", "human_completion"),
    ),
]
STEP = pl.Struct({"text": pl.String, "rating": pl.Float64})
NEUTRAL = {"positive": 1.0, "negative": -1.0, "drop": None}
"""Value of `neutral` -> the rating that a step rated 0, or not at all, gets; None drops it."""
PATHS = ("one", "all")


@converter(paths={"problem": "question.problem", "steps": "label.steps"})
def solution(
    problem: Text, steps: Steps, *, neutral: str = "positive", paths: str = "one"
) -> Stepwise:
    """https://github.com/openai/prm800k.

    One path per row: for each step the chosen completion, else the human one, else the first.
    With paths=all one path per completion, after the steps that were chosen before it.
    """
    _check("neutral", neutral, NEUTRAL)
    _check("paths", paths, PATHS)
    taken = steps.value.list.eval(_taken())
    alone = taken.list.eval(pl.element().implode())
    every = _every_path(steps.value, taken, neutral) if paths == "all" else alone
    rated = every.list.eval(pl.element().list.eval(_rated(neutral)))
    texts = rated.list.eval(pl.element().list.eval(pl.element().struct.field("text")))
    right = rated.list.eval(pl.element().list.eval(pl.element().struct.field("rating") > 0))
    column = steps.with_value(texts, *_problems(steps.value, taken, rated))
    return Stepwise(problem, several(column), several(Column(right)))


def _check(option: str, value: str, known: Iterable[str]) -> None:
    if value not in known:
        raise UnknownNameError(f"value of {option}", value, known)


def _taken() -> Expr:
    """Return the completion with which the solution continues; one written by a human counts as right."""
    step = pl.element().struct
    offered, human = step.field("completions"), step.field("human_completion")
    # A number beyond int64 is no index either, which is reported as a problem of the row.
    place = step.field("chosen_completion").cast(pl.Int64, strict=False)
    chosen = offered.list.get(place, null_on_oob=True)
    return (
        pl.when(chosen.is_not_null())
        .then(chosen)
        .when(human.is_not_null())
        .then(_written(human))
        .otherwise(offered.list.first())
    )


def _written(human: Expr) -> Expr:
    rating = human.struct.field("rating").fill_null(1.0)
    return pl.struct(text=human.struct.field("text"), rating=rating)


def _rated(neutral: str) -> Expr:
    """Replace the rating of neutral steps, or drop them."""
    step = pl.element().struct
    rating = step.field("rating")
    judged = pl.when(rating.is_in([-1.0, 1.0])).then(rating).otherwise(pl.lit(NEUTRAL[neutral]))
    return pl.struct(text=step.field("text"), rating=judged).filter(judged.is_not_null())


def _every_path(steps: Expr, taken: Expr, neutral: str) -> Expr:
    """Make a path for each completion: the steps chosen before it, and the completion."""
    step = pl.element().struct
    human = step.field("human_completion")
    both = pl.concat_list(
        [step.field("completions").fill_null([]), pl.concat_list(_written(human))]
    )
    offered = pl.when(human.is_not_null()).then(both).otherwise(step.field("completions"))
    kept = pl.element().is_not_null()
    if NEUTRAL[neutral] is None:
        kept &= pl.element().struct.field("rating").is_in([-1.0, 1.0])
    ends = steps.list.eval(offered).list.eval(pl.element().list.eval(pl.element().filter(kept)))
    return pl.map_batches([taken, ends], _paths, return_dtype=pl.List(pl.List(STEP)))


def _paths(columns: Sequence[pl.Series]) -> pl.Series:
    taken, ends = columns
    frame = pl.DataFrame({"taken": taken, "ends": ends}).with_row_index("row")
    step = pl.int_range(pl.len()).over("row")
    paths = (
        frame.explode("ends", empty_as_null=False, keep_nulls=False)
        .with_columns(before=pl.col("taken").list.head(step))
        .explode("ends", empty_as_null=False, keep_nulls=False)
        .select("row", path=pl.concat_list("before", pl.concat_list("ends")))
        .group_by("row", maintain_order=True)
        .agg("path")
    )
    return frame.join(paths, on="row", how="left", maintain_order="left").get_column("path")


def _problems(steps: Expr, taken: Expr, rated: Expr) -> tuple[Problem, ...]:
    step = pl.element().struct
    choice = step.field("chosen_completion")
    outside = choice.is_not_null() & ~choice.is_between(
        0, step.field("completions").list.len().fill_null(0), closed="left"
    )
    rating = step.field("rating")
    where = "label.steps[]"
    found = {
        ("value_error", ".chosen_completion", "is not an index of completions"): steps.list.eval(
            outside
        ),
        ("empty_field", "", "has no completion"): taken.list.eval(step.field("text").is_null()),
        ("empty_field", ".text", "is empty or blank"): taken.list.eval(blank(step.field("text"))),
        ("value_error", ".rating", "is not -1, 0 or 1"): taken.list.eval(
            ~rating.is_in([-1.0, 0.0, 1.0]).fill_null(value=True)
        ),
    }
    wrong = [
        Problem(code, where + path, when.list.any(), f"{where}{path} {words}")
        for (code, path, words), when in found.items()
    ]
    nothing = (
        rated.is_null()
        | (rated.list.len() == 0)
        | (rated.list.eval(pl.element().list.len() == 0).list.any())
    )
    return (*wrong, Problem("empty_field", "label.steps", nothing, "no step is left to train on"))
