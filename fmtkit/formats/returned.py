"""What a plugin's function returned, checked once, so that a mistake in it is one line that names it."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fmtkit.columns.problems import Column
from fmtkit.columns.turn_sources import Rule, Source
from fmtkit.core.codes import PRECEDENCE, WARNINGS
from fmtkit.core.errors import OptionError, near_match

_UNREAD = "unread_turns "
"""Beginning of the code of a warning that names a column (`Column.warn_unread`)."""


def place(function: Callable[..., Any]) -> str:
    """Return the name of a plugin's function, with its file and line."""
    code = function.__code__
    return f"{function.__name__} ({Path(code.co_filename).name}:{code.co_firstlineno})"


def spoken(value: object) -> str:
    """Return the kind of a value, as errors name it."""
    import polars as pl

    return "a pl.Expr" if isinstance(value, pl.Expr) else f"{type(value).__name__} {value!r:.60}"


def check(who: str, columns: Mapping[str, object]) -> None:
    """Raise OptionError for what is no column, and for problems and warnings of an unknown code."""
    for name, column in columns.items():
        if column is not None:
            _check_column(f"{who} returned", name, column)


def _check_column(who: str, name: str, column: object) -> None:
    import polars as pl

    if not isinstance(column, Column):
        advice = (
            "make it a Column: COLUMN.with_value(EXPR) keeps the problems of a column that it is made of, "
            "fmtkit.columns.problems.Column(EXPR) has none"
        )
        raise OptionError(f"{who} {spoken(column)} as {name!r}, which must be a Column; {advice}")
    values: dict[str, object] = {"value": column.value}
    values |= {f"step {s[0]!r}": s[1] for s in column.steps if not isinstance(s, Source)}
    whens: dict[str, object] = {f"problem {p.code!r}": p.when for p in column.problems}
    whens |= {f"warning {code!r}": when for code, when in column.warnings}
    values |= {part: when for part, when in whens.items() if not isinstance(when, Rule)}
    for part, value in values.items():
        if not isinstance(value, pl.Expr):
            raise OptionError(
                f"{who} a Column as {name!r} whose {part} is {spoken(value)}; it must be a pl.Expr"
            )
    for problem in column.problems:
        if problem.code not in PRECEDENCE:
            raise _unknown(who, name, "problem", problem.code, [*PRECEDENCE])
    for code, _ in column.warnings:
        if code not in WARNINGS and not code.startswith(_UNREAD):
            raise _unknown(who, name, "warning", code, [*WARNINGS])


def _unknown(who: str, name: str, what: str, code: object, known: list[str]) -> OptionError:
    near = near_match(str(code), known)
    hint = f"did you mean {near!r}? A code of its own" if near else "a code of its own"
    more = ", warning=True" if what == "warning" else ""
    return OptionError(
        f"{who} {name!r} with a {what} of the code {code!r}, which is not registered; {hint} is "
        f'registered once in the plugin: fmtkit.register_code("{code}", "WHAT IS WRONG"{more})'
    )
