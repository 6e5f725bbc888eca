"""The vocabulary of converters, first half: kinds of source column, and what can be wrong with one.

The second half, `fmtkit.dialogs`, makes dialogs of such columns.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, TypeAlias

import polars as pl
from polars import Expr

from fmtkit.codes import PRECEDENCE
from fmtkit.kinds import Kind, OpenKind, RowKind, TextKind
from fmtkit.message_kinds import SHAREGPT_ROLES, DialogKind, ToolsKind
from fmtkit.nested_kinds import ListKind, RecordKind
from fmtkit.number_kinds import FlagKind, LabelKind, NumberKind
from fmtkit.problems import Column, Problem

_EITHER = frozenset({"text", "messages"})
_ANY = frozenset({"text", "message", "messages"})
_SHAREGPT = {"role": "from", "content": "value", "roles": SHAREGPT_ROLES}

Text: TypeAlias = Annotated[Column, TextKind()]
Flag: TypeAlias = Annotated[Column, FlagKind()]
Number: TypeAlias = Annotated[Column, NumberKind()]
Texts: TypeAlias = Annotated[Column, ListKind(TextKind())]
Exchanges: TypeAlias = Annotated[Column, ListKind(ListKind(TextKind()))]
"""Earlier turns: pairs of what the user asked and what the assistant answered."""
Labels: TypeAlias = Annotated[Column, ListKind(LabelKind())]
Open: TypeAlias = Annotated[Column, OpenKind()]
WholeRow: TypeAlias = Annotated[Column, RowKind()]
Tools: TypeAlias = Annotated[Column, ToolsKind()]
Messages: TypeAlias = Annotated[Column, DialogKind()]
Reply: TypeAlias = Annotated[Column, DialogKind(accepts=_ANY)]
Turns: TypeAlias = Annotated[Column, DialogKind(accepts=_EITHER, speaker="user")]
WideMessages: TypeAlias = Annotated[Column, DialogKind(wide=True)]
WideReply: TypeAlias = Annotated[Column, DialogKind(accepts=_ANY, wide=True)]
WideTurns: TypeAlias = Annotated[Column, DialogKind(accepts=_EITHER, speaker="user", wide=True)]
ShareGPT: TypeAlias = Annotated[Column, DialogKind(**_SHAREGPT)]
ShareGPTMessage: TypeAlias = Annotated[
    Column, DialogKind(accepts=frozenset({"message"}), **_SHAREGPT)
]
WideShareGPT: TypeAlias = Annotated[Column, DialogKind(wide=True, function_calls=True, **_SHAREGPT)]

ABSENT = Column(pl.lit(None, dtype=pl.String))
"""Default of a column that a source may leave out."""

SYSTEM = ("system", "developer")
"""Roles whose text may be empty."""


def records(fields: Mapping[str, Kind], optional: tuple[str, ...] = ()) -> ListKind:
    """Return the kind of a list of objects with these fields."""
    return ListKind(RecordKind(fields, frozenset(optional)))


def filled(text: Expr) -> Expr:
    """Tell whether a text is there and not empty."""
    return text.fill_null("").str.len_bytes() > 0


def blank(text: Expr) -> Expr:
    """Tell whether a text is there and has nothing but white space."""
    return ~text.str.contains(r"\S")


def first_filled(**columns: Column) -> Column:
    """Take the first of these columns that holds a text; what is blank counts as empty."""
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


def parameter(name: str, kind: Kind, *, required: bool, value: Expr) -> Column:
    """Make the column of a converter's parameter, with the problems that its kind can have."""
    flaws = [Flaw("null_field", "", value.is_null(), "is null")] if required else []
    if isinstance(kind, DialogKind):
        # One look at each message: the flaw of the first code in precedence is the row's anyway.
        turns = sorted(_turn_flaws(kind), key=lambda flaw: PRECEDENCE[flaw.code])
        worst = pl.coalesce(
            pl.when(flaw.when).then(pl.lit(i, dtype=pl.UInt8)) for i, flaw in enumerate(turns)
        )
        seen = Column(value.list.eval(worst).list.min()).once(f"__flaw_{name}")
        flaws += [flaw.inside("[]", seen.value == i) for i, flaw in enumerate(turns)]
        flaws += _silence(value) if required else []
        return seen.but(value, *(flaw.problem(name) for flaw in flaws))
    if required:
        flaws += flaws_of(kind, value)
    return Column(value, tuple(f.problem(name) for f in flaws))


@dataclass(frozen=True)
class Flaw:
    """A problem of a value somewhere within a column; `path` is where, such as `[].answer`."""

    code: str
    path: str
    when: Expr
    words: str

    def problem(self, name: str) -> Problem:
        """Make it the problem of a column."""
        return Problem(self.code, name + self.path, self.when, f"{name}{self.path} {self.words}")

    def inside(self, path: str, when: Expr) -> "Flaw":
        """Return the same flaw of what holds the value."""
        return Flaw(self.code, path + self.path, when, self.words)


def flaws_of(kind: Kind, value: Expr) -> list[Flaw]:
    """Return what may be wrong with a value: the fast parser lets nulls and blanks through."""
    if isinstance(kind, DialogKind):
        turns = (f.inside("[]", value.list.eval(f.when).list.any()) for f in _turn_flaws(kind))
        return [*turns, *_silence(value)]
    if isinstance(kind, TextKind):
        return [Flaw("empty_field", "", blank(value), "is empty or blank")]
    if isinstance(kind, RecordKind):
        return list(_record_flaws(kind, value))
    return list(_list_flaws(kind, value)) if isinstance(kind, ListKind) else []


def _record_flaws(kind: RecordKind, value: Expr) -> Iterator[Flaw]:
    for name, inner in kind.fields.items():
        if name in kind.optional:
            continue
        held = value.struct.field(name)
        yield Flaw("null_field", f".{name}", value.is_not_null() & held.is_null(), "is null")
        for flaw in flaws_of(inner, held):
            yield flaw.inside(f".{name}", flaw.when)


def _list_flaws(kind: ListKind, value: Expr) -> Iterator[Flaw]:
    yield Flaw("empty_field", "", value.list.len() == 0, "is an empty list")
    null = Flaw("null_field", "", pl.element().is_null(), "is null")
    for flaw in (null, *flaws_of(kind.item, pl.element())):
        yield flaw.inside("[]", value.list.eval(flaw.when).list.any())


def _silence(value: Expr) -> list[Flaw]:
    """Return the flaw of a dialog without messages."""
    return [Flaw("empty_field", "", value.list.len() == 0, "has no messages")]


def _turn_flaws(kind: DialogKind) -> list[Flaw]:
    """Return what may be wrong with one message of a dialog."""
    turn = pl.element().struct
    role, content = turn.field("role"), turn.field("content")
    spoken = turn.field("tool_calls").is_not_null() if kind.wide else pl.lit(value=False)
    if kind.wide:
        spoken |= turn.field("reasoning_content").is_not_null() & (role == "assistant")
    # A tool may answer with nothing, and an empty system text is the template's business.
    may_be_empty = spoken | role.is_in([*SYSTEM, "tool"]).fill_null(value=False)
    unknown = role.is_null() & pl.element().is_not_null()
    return [
        Flaw("null_field", ".content", content.is_null() & ~spoken, "is null"),
        Flaw("unknown_role", ".role", unknown, "is no role that is known"),
        Flaw("empty_field", ".content", blank(content) & ~may_be_empty, "is empty or blank"),
    ]
