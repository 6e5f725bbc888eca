"""Row expansion: a source row that makes several canonical rows."""

from collections.abc import Sequence

import polars as pl

from fmtkit.columns.problems import Column, Problem
from fmtkit.core.data_classes import dataclass

MESSAGES, TEXT_BYTES = 250_000, 256 << 20
"""What the rows of one source row have together, at most, where each repeats the messages before it."""


def repeats_too_much(messages: int, text_bytes: int) -> bool:
    """Return whether this is more than one source row may make.

    Args:
        messages: The messages of all rows that one source row makes.
        text_bytes: The bytes of their texts.
    """
    return messages > MESSAGES or text_bytes > TEXT_BYTES


def too_large(what: str, column: str, is_large: pl.Expr) -> Problem:
    """Return the problem of a source row whose rows would repeat too much.

    Args:
        what: What the source row is, for the error: a session, a tree.
        column: The source column.
        is_large: True for the rows that repeat too much.
    """
    words = (
        f"the rows of this {what} would have more than {MESSAGES:,} messages, or {TEXT_BYTES >> 20} MiB of "
        f"text, since each repeats those before it: split the {what}"
    )
    return Problem("value_error", column, is_large, words)


@dataclass(frozen=True)
class Several(Column):
    """A column with a list for each source row: one value for each canonical row that it makes."""


def several(column: Column) -> Several:
    """Mark a column that holds a list for each source row: one value for each canonical row."""
    return Several(column.value, column.problems, column.warnings, column.steps)


def expansion_problems(columns: Sequence[tuple[str, Column]]) -> list[Problem]:
    """Return what stops an expansion: no value to make a row of, or lists of different lengths."""
    expanded = [(name, column.value) for name, column in columns if isinstance(column, Several)]
    found = []
    for name, value in expanded:
        nothing = value.is_null() | (value.list.len() == 0)
        found.append(Problem("empty_field", None, nothing, f"the row has no value for {name}"))
        differ = value.list.len() != expanded[0][1].list.len()
        words = f"{expanded[0][0]} and {name} have different numbers of values"
        found.append(Problem("length_mismatch", None, differ, words))
    return found


def expand(frame: pl.DataFrame, columns: Sequence[tuple[str, Column]]) -> pl.DataFrame:
    """Make one row of each item of the columns of several values; other columns are repeated."""
    names = [name for name, column in columns if isinstance(column, Several)]
    return frame.explode(names, empty_as_null=False, keep_nulls=False) if names else frame
