"""Math-Shepherd: a solution with a mark after each step, and its text with + or - for the marks."""

import polars as pl

from fmtkit.columns import Text
from fmtkit.problems import Problem
from fmtkit.registry import converter
from fmtkit.tables import Stepwise

MARK = "ки"
FIRST_STEP = r"(?s)\A(.*?)\s*(Step 1:.*)\z"


@converter()
def steps(input: Text, label: Text) -> Stepwise:
    """https://huggingface.co/datasets/peiyi9979/Math-Shepherd."""
    solution = input.value.str.extract(FIRST_STEP, 2)
    parts = solution.str.split(MARK).list.eval(pl.element().str.strip_chars())
    # Both texts hold the same signs in the same order, so a mark has the same place among them.
    signs = input.value.str.extract_all(f"{MARK}|[+-]")
    written = label.value.str.extract_all("[+-]")
    marks = signs.list.eval(pl.arg_where(pl.element() == MARK))
    labels = written.list.gather(marks, null_on_oob=True).list.eval(pl.element() == "+")
    rest = input.value.str.replace_all(f"{MARK}|[+-]", "") != label.value.str.replace_all(
        "[+-]", ""
    )
    problems = (
        Problem("value_error", "input", solution.is_null(), "input has no Step 1:"),
        Problem("value_error", "input", marks.list.len() == 0, f"input has no mark {MARK}"),
        Problem("value_error", "input", parts.list.last() != "", "text follows the last mark"),
        Problem("value_error", "label", rest, "label is not the input with + and - for the marks"),
        Problem(
            "length_mismatch",
            "label",
            signs.list.len() != written.list.len(),
            "label does not have a sign for each mark of input",
        ),
        Problem(
            "length_mismatch",
            "input",
            marks.list.len() != parts.list.len() - 1,
            "a mark stands before Step 1:",
        ),
    )
    done = parts.list.head(parts.list.len() - 1)
    empty = Problem(
        "empty_field", "input", done.list.eval(pl.element() == "").list.any(), "a step is empty"
    )
    question = input.value.str.extract(FIRST_STEP, 1)
    blank = Problem("empty_field", "input", question == "", "nothing stands before Step 1:")
    return Stepwise(
        input.but(question, *problems, blank), input.but(done, empty), label.but(labels)
    )
