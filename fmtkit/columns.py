"""The vocabulary of converters: kinds of source column, and expressions that make dialogs of them."""

from functools import reduce
from typing import Annotated, TypeAlias

import polars as pl
from fmtkit.kinds import FlagKind, ListKind, NumberKind, OpenKind, TextKind
from fmtkit.message_kinds import NARROW, WIDE, DialogKind
from fmtkit.problems import Column, Problem
from fmtkit.tables import Preference
from polars import Expr

Text: TypeAlias = Annotated[Column, TextKind()]
Flag: TypeAlias = Annotated[Column, FlagKind()]
Number: TypeAlias = Annotated[Column, NumberKind()]
Texts: TypeAlias = Annotated[Column, ListKind(TextKind())]
Open: TypeAlias = Annotated[Column, OpenKind()]
Messages: TypeAlias = Annotated[Column, DialogKind()]
Reply: TypeAlias = Annotated[Column, DialogKind(accepts=frozenset({"text", "message", "messages"}))]
Turns: TypeAlias = Annotated[
    Column, DialogKind(accepts=frozenset({"text", "messages"}), speaker="user")
]
WideMessages: TypeAlias = Annotated[Column, DialogKind(wide=True)]
WideReply: TypeAlias = Annotated[
    Column, DialogKind(accepts=frozenset({"text", "message", "messages"}), wide=True)
]
WideTurns: TypeAlias = Annotated[
    Column, DialogKind(accepts=frozenset({"text", "messages"}), speaker="user", wide=True)
]

ABSENT = Column(pl.lit(None, dtype=pl.String))
"""Default of a column that a source may leave out."""

SYSTEM = ("system", "developer")


def filled(text: Expr) -> Expr:
    """Tell whether a text is there and not empty."""
    return text.fill_null("").str.len_bytes() > 0


def blank(text: Expr) -> Expr:
    """Tell whether a text is there and has nothing but white space."""
    return ~text.str.contains(r"\S")


def message(role: str, content: Expr, *, wide: bool = False) -> Expr:
    """Make one message; null content stays null."""
    fields = {"role": pl.lit(role), "content": content}
    if wide:
        fields |= {
            entry.name: pl.lit(None, dtype=entry.dtype)
            for entry in WIDE.fields
            if entry.name not in fields
        }
    return pl.struct(**fields)


def dialog(*, wide: bool = False, **turns: Column) -> Column:
    """Make one message of each named turn, in order; a row's null or empty turns are left out."""
    messages = [message(role, turn.value, wide=wide) for role, turn in turns.items()]
    problems = tuple(problem for turn in turns.values() for problem in turn.problems)
    warnings = tuple(warning for turn in turns.values() for warning in turn.warnings)
    if all(_is_required(turn) for turn in turns.values()):
        return Column(pl.concat_list(messages), problems, warnings)
    # concat_arr and a filter, not concat_list and drop_nulls: 20 times as fast (polars 2.1).
    said = pl.element().struct.field("content").str.len_bytes() > 0
    kept = pl.concat_arr(messages).arr.to_list().list.eval(pl.element().filter(said))
    return Column(kept, problems, warnings)


def _is_required(turn: Column) -> bool:
    return any(problem.code == "empty_field" for problem in turn.problems)


def pair(question: Column, chosen: Column, rejected: Column, system: Column = ABSENT) -> Preference:
    """Make a preference of one question and two answers, all of them text."""
    same = Problem("no_preference", None, chosen.value == rejected.value, "chosen equals rejected")
    return Preference(
        prompt=dialog(system=system, user=question)
        if system is not ABSENT
        else dialog(user=question),
        chosen=dialog(assistant=chosen),
        rejected=dialog(assistant=rejected).but(dialog(assistant=rejected).value, same),
    )


def first_filled(*columns: tuple[str, Column]) -> Column:
    """Take the first of these columns that is neither null nor empty; blank text counts as empty."""
    chosen = pl.coalesce(
        [pl.when(column.value.str.contains(r"\S")).then(column.value) for _, column in columns]
    )
    name = columns[-1][0]
    known = ", ".join(n for n, _ in columns)
    problems = [problem for _, column in columns for problem in column.problems]
    nothing = pl.all_horizontal([column.value.is_null() for _, column in columns])
    problems.append(Problem("null_field", name, nothing, f"all of {known} are null or absent"))
    problems.append(Problem("empty_field", name, chosen.is_null(), f"all of {known} are empty"))
    return Column(chosen, tuple(problems))


def roles(messages: Expr) -> Expr:
    """Return the role of every message, as a list."""
    return messages.list.eval(pl.element().struct.field("role"))


def contents(messages: Expr) -> Expr:
    """Return the text of every message, as a list."""
    return messages.list.eval(pl.element().struct.field("content"))


def last(messages: Expr) -> Expr:
    """Return the last message, or null."""
    return messages.list.last()


def all_but_last(messages: Expr) -> Expr:
    """Return every message but the last."""
    size = messages.list.len()
    return messages.list.head(pl.when(size > 0).then(size - 1).otherwise(0))


def only_last(messages: Expr) -> Expr:
    """Return a list of the last message alone."""
    return messages.list.tail(1)


def same_message(one: Expr, other: Expr, *, wide: bool = False) -> Expr:
    """Tell whether two messages say the same in the same role; null equals null."""
    names = [entry.name for entry in (WIDE if wide else NARROW).fields]
    return reduce(
        Expr.and_,
        (one.struct.field(n).eq_missing(other.struct.field(n)) for n in names if n != "train"),
    )


def same_dialog(one: Expr, other: Expr, *, wide: bool = False) -> Expr:
    """Tell whether two dialogs hold the same messages."""
    names = [entry.name for entry in (WIDE if wide else NARROW).fields if entry.name != "train"]
    equal = one.list.len() == other.list.len()
    for name in names:
        field = pl.element().struct.field(name)
        equal &= one.list.eval(field).eq_missing(other.list.eval(field))
    return equal


def reply_of(dialog_column: Column, name: str) -> Column:
    """Take the last message as the reply; it must be the assistant's."""
    role = last(dialog_column.value).struct.field("role")
    wrong = Problem(
        "role_order",
        name,
        role.is_null() | (role != "assistant"),
        f"{name} does not end with the assistant",
    )
    return dialog_column.but(only_last(dialog_column.value), wrong)


def context_of(dialog_column: Column, name: str) -> Column:
    """Take all turns but the last as the prompt; it must end with a turn that asks for a reply."""
    return asks(dialog_column.but(all_but_last(dialog_column.value)), name)


def asks(prompt: Column, name: str) -> Column:
    """Say that a prompt must end with a user's or a tool's turn."""
    role = last(prompt.value).struct.field("role")
    wrong = Problem(
        "role_order",
        name,
        role.is_null() | ~role.is_in(["user", "tool"]),
        f"the turns of {name} before the reply do not end with the user's",
    )
    return prompt.but(prompt.value, wrong)


def with_system(system: Column, messages: Column, *, wide: bool = False) -> Column:
    """Put a system text before the messages, unless it is empty or they begin with one."""
    begins = (
        messages.value.list.first().struct.field("role").is_in(list(SYSTEM)).fill_null(value=False)
    )
    first = pl.concat_list([message("system", system.value, wide=wide)])
    put = filled(system.value) & ~begins
    value = pl.when(put).then(pl.concat_list([first, messages.value])).otherwise(messages.value)
    return Column(
        value,
        (*system.problems, *messages.problems),
        (*system.warnings, *messages.warnings),
    )


def differ(chosen: Expr, rejected: Expr, *, wide: bool = False) -> Problem:
    """Say that the two replies, one message each, must differ."""
    return Problem(
        "no_preference",
        None,
        same_message(last(chosen), last(rejected), wide=wide),
        "chosen equals rejected",
    )


def same_context(one: Expr, other: Expr, names: str, *, wide: bool = False) -> Problem:
    """Say that the turns before the two replies must be the same."""
    return Problem(
        "context_mismatch",
        names,
        ~same_dialog(one, other, wide=wide),
        f"{names} do not answer the same turns",
    )


def parameter(name: str, kind: object, *, required: bool, value: Expr) -> Column:
    """Make the column of a converter's parameter, with the problems that its kind can have."""
    problems: list[Problem] = []
    if required:
        problems.append(Problem("null_field", name, value.is_null(), f"{name} is null"))
    if isinstance(kind, TextKind) and required:
        problems.append(Problem("empty_field", name, blank(value), f"{name} is empty or blank"))
    if isinstance(kind, ListKind) and required:
        problems += [
            Problem("empty_field", name, value.list.len() == 0, f"{name} is an empty list"),
            Problem(
                "null_field",
                name,
                value.list.eval(pl.element().is_null()).list.any(),
                f"{name} holds a null",
            ),
        ]
        if isinstance(kind.item, TextKind):
            problems.append(
                Problem(
                    "empty_field",
                    name,
                    value.list.eval(blank(pl.element())).list.any(),
                    f"{name} holds an empty text",
                )
            )
    if isinstance(kind, DialogKind):
        problems += _dialog_problems(name, kind, value, required=required)
    return Column(value, tuple(problems))


def _dialog_problems(name: str, kind: DialogKind, value: Expr, *, required: bool) -> list[Problem]:
    turn = pl.element().struct
    role, content = turn.field("role"), turn.field("content")
    spoken = turn.field("tool_calls").is_not_null() if kind.wide else pl.lit(value=False)
    if kind.wide:
        spoken |= turn.field("reasoning_content").is_not_null() & (role == "assistant")
    no_role = value.list.eval(role.is_null() & pl.element().is_not_null()).list.any()
    no_text = value.list.eval(content.is_null() & ~spoken).list.any()
    empty = value.list.eval(
        blank(content) & ~spoken & ~role.is_in(list(SYSTEM)).fill_null(value=False)
    ).list.any()
    problems = [
        Problem("null_field", f"{name}[].content", no_text, f"a message of {name} has no content"),
        Problem(
            "unknown_role",
            f"{name}[].role",
            no_role,
            f"a message of {name} has no role that is known",
        ),
        Problem(
            "empty_field", f"{name}[].content", empty, f"a message of {name} is empty or blank"
        ),
    ]
    if required:
        problems.append(
            Problem("empty_field", name, value.list.len() == 0, f"{name} has no messages")
        )
    return problems
