"""A column and what can be wrong with it: expressions that say which rows are bad, and why.

A converter's helpers return columns; the problems of a table are the problems of its columns, and one
select computes values and problems together. What goes wrong at the source (two contexts differ, an
unknown role) cannot be found in the canonical table later.
"""

from dataclasses import dataclass, replace

import polars as pl
from polars import Expr


@dataclass(frozen=True)
class Problem:
    """Rows where `when` is true are bad for the reason `code`; null counts as false."""

    code: str
    column: str | None
    when: Expr
    message: str


@dataclass(frozen=True)
class Column:
    """An expression, the problems its rows may have, and warnings (code -> which rows)."""

    value: Expr
    problems: tuple[Problem, ...] = ()
    warnings: tuple[tuple[str, Expr], ...] = ()
    steps: tuple[tuple[str, Expr], ...] = ()
    """What is computed first, under a name that the value and the problems may use."""

    def but(self, value: Expr, *problems: Problem) -> "Column":
        """Return the column with another value and these problems besides its own."""
        return replace(self, value=value, problems=(*self.problems, *problems))

    def having(self, *others: "Column") -> "Column":
        """Return the column with the problems, warnings and steps of others besides its own."""
        columns = (self, *others)
        return Column(
            self.value,
            tuple(problem for column in columns for problem in column.problems),
            tuple(warning for column in columns for warning in column.warnings),
            tuple(step for column in columns for step in column.steps),
        )

    def once(self, name: str) -> "Column":
        """Compute the value once for all expressions that are made of it: polars would not."""
        return replace(self, value=pl.col(name), steps=(*self.steps, (name, self.value)))

    def warn(self, code: str, when: Expr) -> "Column":
        """Return the column with a warning for the rows where `when` is true."""
        return replace(self, warnings=(*self.warnings, (code, when)))

    def leave(self, path: str, when: Expr) -> "Column":
        """Say that the rows where `when` is true carry something under this path that is not read."""
        return self.warn(f"unread_turns {path}", when)


def literal(value: str | bool | float | None, dtype: pl.DataType | None = None) -> Column:
    """Make a column of one value, which can have no problem."""
    return Column(pl.lit(value, dtype=dtype))


def uneven(one: Column, other: Column, names: tuple[str, str]) -> Problem:
    """Find the rows in which two lists that belong together differ in length; the second is named."""
    when = one.value.list.len() != other.value.list.len()
    first, second = names
    return Problem("length_mismatch", second, when, f"{first} and {second} differ in length")
