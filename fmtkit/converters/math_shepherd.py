"""Math-Shepherd: a solution with a mark after each step, and its text with + or - for the marks."""

import polars as pl
from polars import Expr

from fmtkit.columns import Text
from fmtkit.columns.problems import Column, Problem
from fmtkit.core.tables import Stepwise
from fmtkit.formats.registry import converter

MARK = "ки"
FIRST_STEP = r"(?s)\A(.*?)\s*(Step 1:.*)\z"


@converter()
def steps(input: Text, label: Text) -> Stepwise:
    """https://huggingface.co/datasets/peiyi9979/Math-Shepherd."""
    return Stepwise(_question(input), _steps(input), _labels(input.value, label))


def _question(text: Column) -> Column:
    question = text.value.str.extract(FIRST_STEP, 1)
    return text.with_value(
        question,
        Problem("value_error", "input", question.is_null(), "input has no Step 1:"),
        Problem("empty_field", "input", question == "", "there is no text before Step 1:"),
    )


def _steps(text: Column) -> Column:
    solution = text.value.str.extract(FIRST_STEP, 2)
    pieces = solution.str.split(MARK).list.eval(pl.element().str.strip_chars())
    split = text.with_value(pieces).once("__pieces")
    done = split.value.list.head(split.value.list.len() - 1)
    marks = text.value.str.count_matches(MARK, literal=True)
    empty = done.list.eval(pl.element() == "").list.any()
    return split.with_value(
        done,
        Problem("value_error", "input", marks == 0, f"input has no mark {MARK}"),
        Problem(
            "value_error", "input", split.value.list.last() != "", "text follows the last mark"
        ),
        Problem("empty_field", "input", empty, "a step is empty"),
        Problem("value_error", "input", marks != done.list.len(), "there is a mark before Step 1:"),
    )


def _labels(text: Expr, label: Column) -> Column:
    # Both texts hold the same signs in the same order, so a mark has the same place among them.
    signs = text.str.extract_all(f"{MARK}|[+-]")
    written = label.value.str.extract_all("[+-]")
    marks = signs.list.eval(pl.arg_where(pl.element() == MARK))
    right = written.list.gather(marks, null_on_oob=True).list.eval(pl.element() == "+")
    bare = text.str.replace_all(f"{MARK}|[+-]", "")
    other = bare != label.value.str.replace_all("[+-]", "")
    return label.with_value(
        right,
        Problem("value_error", "label", other, "label is not the input with + and - for the marks"),
        Problem(
            "length_mismatch",
            "label",
            signs.list.len() != written.list.len(),
            "label does not have a sign for each mark of input",
        ),
    )
