"""The program of a binding: all expressions of what its converter makes, the same for every block.

Making expressions takes longer than a small block takes to run through them.
"""

from collections.abc import Sequence

import polars as pl
from polars import Expr

from fmtkit.columns.expansion import expansion_problems
from fmtkit.columns.problems import Column, Problem
from fmtkit.columns.source_expressions import Steps
from fmtkit.columns.turn_sources import Rule
from fmtkit.core.codes import PRECEDENCE
from fmtkit.core.data_classes import dataclass
from fmtkit.core.tables import TEXT_NAMES, Table

PROBLEM, WARNING = "__problem", "__warn_"
"""The column with the number of a row's problem, and the beginning of the names of those with warnings."""


@dataclass(frozen=True)
class Program:
    """What is computed of a frame, and what the numbers of problems and warnings stand for."""

    columns: list[tuple[str, Column]]
    passes: list[dict[str, Expr]]
    """Columns that others need, in as few passes as there are dependent ones."""
    expressions: list[Expr]
    """The columns of the table, the number of a row's problem and whether it has each of the warnings."""
    problems: list[Problem]
    warnings: list[str]
    """The code of each; after a blank the column that a warning is about."""

    @classmethod
    def of(cls, made: Table, kept: Sequence[str], *, text: bool) -> "Program":
        """Return the program of a table; columns of the frame that are `kept` stay beside it."""
        columns = columns_of(made, text=text)
        problems, warnings = _problems(columns), _warnings(columns)
        steps = Steps(column for _, column in columns)
        wrong = [steps.when(problem.when) for problem in problems]
        warned = [steps.when(when) for _, when in warnings]
        expressions = [column.value.alias(name) for name, column in columns]
        expressions += [pl.col(name) for name in kept]
        if problems:
            numbers = [
                pl.when(when).then(pl.lit(i, dtype=pl.UInt16)) for i, when in enumerate(wrong)
            ]
            expressions.append(pl.coalesce(numbers).alias(PROBLEM))
        expressions += [
            when.fill_null(value=False).alias(f"{WARNING}{i}") for i, when in enumerate(warned)
        ]
        codes = [code for code, _ in warnings]
        return cls(columns, [*steps.passes()], expressions, problems, codes)


def columns_of(table: Table, *, text: bool) -> list[tuple[str, Column]]:
    """Return the columns that the table has, under their names on disk."""
    named = ((name, getattr(table, name)) for name in table.column_names())
    names = TEXT_NAMES if text else {}
    return [(names.get(name, name), column) for name, column in named if column is not None]


def _warnings(columns: list[tuple[str, Column]]) -> list[tuple[str, Expr | Rule]]:
    found = [warning for _, column in columns for warning in column.warnings]
    return list({id(warning): warning for warning in found}.values())


def _problems(columns: list[tuple[str, Column]]) -> list[Problem]:
    found = [problem for _, column in columns for problem in column.problems]
    distinct = {id(problem): problem for problem in found}.values()
    own = sorted(distinct, key=lambda problem: PRECEDENCE[problem.code])
    # The converter's own message is more specific than that a row made no output.
    return [*own, *expansion_problems(columns)]
