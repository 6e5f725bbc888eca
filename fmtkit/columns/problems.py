"""A column and what can be wrong with it: expressions that say which rows are bad, and why.

A converter's helpers return columns; the problems of a table are the problems of its columns, and one
select computes values and problems together. What goes wrong at the source (two contexts differ, an
unknown role) cannot be found in the canonical table later.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl
from polars import Expr

from fmtkit import former_names
from fmtkit.columns.turn_sources import Messages, Rule, Source
from fmtkit.core.data_classes import dataclass


@dataclass(frozen=True)
class Problem:
    """Rows where `when` is true, an expression or a rule, are bad for the reason `code`; null is false."""

    code: str
    column: str | None
    when: Expr | Rule
    message: str


@dataclass(frozen=True)
class Column:
    """An expression, the problems its rows may have, and warnings (code and condition)."""

    value: Expr
    problems: tuple[Problem, ...] = ()
    warnings: tuple[tuple[str, Expr | Rule], ...] = ()
    steps: tuple[tuple[str, Expr] | Source, ...] = ()
    """What is computed first, under a name that the value and the problems may use."""
    bound: str | None = None
    """Name of the source column, where the value is that column unchanged."""
    turns: Source | None = None
    """The source that makes the conversation, where the value is one that was made by a source."""

    def with_value(self, value: Expr, *problems: Problem) -> "Column":
        """Return the column with another value and these problems besides its own."""
        made = replace(self, problems=(*self.problems, *problems))
        return made if value is self.value else replace(made, value=value, bound=None, turns=None)

    def depending_on(self, *others: "Column") -> "Column":
        """Return the column with the problems, warnings and steps of others besides its own."""
        columns = (self, *others)
        return replace(
            self,
            problems=tuple(problem for column in columns for problem in column.problems),
            warnings=tuple(warning for column in columns for warning in column.warnings),
            # A value is made of the others, so their steps come before its own.
            steps=tuple(step for column in (*others, self) for step in column.steps),
        )

    def once(self, name: str) -> "Column":
        """Compute the value once for all expressions that use it; polars would recompute it for each."""
        once = self.with_value(pl.col(name))
        return replace(once, turns=self.turns, steps=(*self.steps, (name, self.value)))

    def named(self) -> "tuple[str, Column]":
        """Return a name by which sources and rules can use the value, and the column that has it."""
        if self.value.meta.is_column():
            return self.value.meta.output_name(), self
        # The steps hold the expression, so that no other one has its identity.
        name = f"__made_{id(self.value):x}"
        return name, self.once(name)

    def described(self) -> "tuple[Source, Column]":
        """Return the source of the conversation, and the column that has it; any value is `Messages`."""
        if self.turns is not None:
            return self.turns, self
        name, column = self.named()
        source = Messages(name)
        return source, replace(column, turns=source)

    def with_turns(self, turns: Source) -> "Column":
        """Return the column with the conversation that a source makes as its value.

        Steps that make the columns which the source names are steps of this column.
        """
        value = pl.col(turns.name)
        return replace(self, value=value, bound=None, turns=turns, steps=(*self.steps, turns))

    def warn(self, code: str, when: Expr | Rule) -> "Column":
        """Return the column with a warning for the rows where `when` is true."""
        return replace(self, warnings=(*self.warnings, (code, when)))

    def warn_unread(self, path: str, when: Expr) -> "Column":
        """Warn of the rows where `when` is true: they have values under this path that are not read."""
        return self.warn(f"unread_turns {path}", when)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            return former_names.attribute(self, "fmtkit.columns.problems.Column", name)


def literal(value: str | bool | float | None, dtype: pl.DataType | None = None) -> Column:
    """Return a column of one constant value, which cannot have a problem.

    Args:
        value: The value of every row.
        dtype: Its polars type; by default that of the value.
    """
    return Column(pl.lit(value, dtype=dtype))


def uneven(one: Column, other: Column, names: tuple[str, str]) -> Problem:
    """Return the problem of two lists that must be equally long; its column is the second.

    Args:
        one: The column whose lists are counted first.
        other: The column that has the problem.
        names: The names of both, for the error.
    """
    when = one.value.list.len() != other.value.list.len()
    first, second = names
    return Problem("length_mismatch", second, when, f"{first} and {second} differ in length")
