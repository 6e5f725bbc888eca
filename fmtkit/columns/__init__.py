"""Functions of converters: the kinds of source columns, and choices between columns.

`fmtkit.columns.conversations` makes conversations of such columns.
"""

from collections.abc import Mapping
from typing import Annotated, TypeAlias

import polars as pl
from polars import Expr

from fmtkit.columns.kinds import (
    ConversationKind,
    FlagKind,
    Kind,
    LabelKind,
    ListKind,
    NumberKind,
    OpenKind,
    RecordKind,
    RowKind,
    TextKind,
    ToolsKind,
)
from fmtkit.columns.problems import Column, Problem
from fmtkit.core.message_keys import SHAREGPT_ROLES

_EITHER = frozenset({"text", "messages"})
_ANY = frozenset({"text", "message", "messages"})
_SHAREGPT = {"role": "from", "content": "value", "roles": SHAREGPT_ROLES}

Text: TypeAlias = Annotated[Column, TextKind()]
TextOrParts: TypeAlias = Annotated[Column, TextKind(parts=True)]
Flag: TypeAlias = Annotated[Column, FlagKind()]
Number: TypeAlias = Annotated[Column, NumberKind()]
Texts: TypeAlias = Annotated[Column, ListKind(TextKind())]
Exchanges: TypeAlias = Annotated[Column, ListKind(ListKind(TextKind()))]
"""Earlier turns: pairs of a user turn and an assistant turn."""
Labels: TypeAlias = Annotated[Column, ListKind(LabelKind())]
Open: TypeAlias = Annotated[Column, OpenKind()]
WholeRow: TypeAlias = Annotated[Column, RowKind()]
Tools: TypeAlias = Annotated[Column, ToolsKind()]
Messages: TypeAlias = Annotated[Column, ConversationKind()]
Reply: TypeAlias = Annotated[Column, ConversationKind(accepts=_ANY)]
Turns: TypeAlias = Annotated[Column, ConversationKind(accepts=_EITHER, speaker="user")]
WideMessages: TypeAlias = Annotated[Column, ConversationKind(wide=True)]
WideReply: TypeAlias = Annotated[Column, ConversationKind(accepts=_ANY, wide=True)]
WideTurns: TypeAlias = Annotated[
    Column, ConversationKind(accepts=_EITHER, speaker="user", wide=True)
]
ShareGPT: TypeAlias = Annotated[Column, ConversationKind(**_SHAREGPT)]
ShareGPTMessage: TypeAlias = Annotated[
    Column, ConversationKind(accepts=frozenset({"message"}), **_SHAREGPT)
]
ShareGPTReply: TypeAlias = Annotated[Column, ConversationKind(accepts=_ANY, **_SHAREGPT)]
WideShareGPTReply: TypeAlias = Annotated[
    Column, ConversationKind(accepts=_ANY, wide=True, function_calls=True, **_SHAREGPT)
]
WideShareGPT: TypeAlias = Annotated[
    Column, ConversationKind(wide=True, function_calls=True, **_SHAREGPT)
]

ABSENT = Column(pl.lit(None, dtype=pl.String))
"""Default of an optional column."""


def records(fields: Mapping[str, Kind], optional: tuple[str, ...] = ()) -> ListKind:
    """Return the kind of a list of objects with these fields.

    Args:
        fields: Name of a field -> the kind of its values.
        optional: Fields that a record need not have.
    """
    return ListKind(RecordKind(fields, frozenset(optional)))


def filled(text: Expr) -> Expr:
    """Return whether a string is neither null nor empty."""
    return text.fill_null("").str.len_bytes() > 0


def blank(text: Expr) -> Expr:
    """Return whether a string is empty or has only white space; null for null."""
    return ~text.str.contains(r"\S")


def first_filled(**columns: Column) -> Column:
    """Return the first of these columns with a string that is not blank."""
    values = {name: column.value for name, column in columns.items()}
    chosen = pl.coalesce(
        pl.when(value.str.contains(r"\S")).then(value) for value in values.values()
    )
    names = ", ".join(columns)
    absent = pl.all_horizontal(value.is_null() for value in values.values())
    problems = [problem for column in columns.values() for problem in column.problems]
    problems.append(
        Problem("null_field", list(columns)[-1], absent, f"all of {names} are null or absent")
    )
    for name, value in values.items():
        empty = chosen.is_null() & value.is_not_null()
        problems.append(
            Problem(
                "empty_field", name, empty, f"{name} is empty or blank, and so is all of {names}"
            )
        )
    return Column(chosen, tuple(problems))


def one_filled(columns: Mapping[str, Column], *, needed: bool = True) -> Column:
    """Return the only one of these columns that is not blank; two different strings are a problem.

    With `needed`, a row in which all are null or blank has a problem too.

    Args:
        columns: The columns by their names, of texts.
        needed: Whether a row in which all are null or blank is a bad one.
    """
    first = first_filled(**columns)
    chosen = first.value
    twice = [
        Problem(
            "ambiguous_fields",
            name,
            column.value.str.contains(r"\S") & (column.value != chosen),
            f"{name} and another of {', '.join(columns)} have text: choose one with --map",
        )
        for name, column in columns.items()
    ]
    kept = first if needed else Column(chosen).depending_on(*columns.values())
    return kept.with_value(chosen, *twice)


def one_given(**columns: Column) -> Column:
    """Return the only one of these columns that is not null; two different values are a problem."""
    first = first_given(**columns)
    twice = [
        Problem(
            "ambiguous_fields",
            name,
            column.value.is_not_null() & (column.value != first.value),
            f"{name} and another of {', '.join(columns)} are there: choose one with --map",
        )
        for name, column in columns.items()
    ]
    return first.with_value(first.value, *twice)


def first_given(**columns: Column) -> Column:
    """Return the first of these columns that is not null."""
    given = pl.coalesce(column.value for column in columns.values())
    names = ", ".join(columns)
    absent = Problem(
        "null_field", list(columns)[-1], given.is_null(), f"all of {names} are null or absent"
    )
    return Column(given, (absent,)).depending_on(*columns.values())
