"""Functions of converters for turns that are not messages yet: records of any names, exchanges, and strings.

Each takes a list column and makes messages of it.
"""

from collections.abc import Callable, Mapping
from functools import reduce

import polars as pl
from polars import Expr

from fmtkit.columns import blank
from fmtkit.columns.message_rules import NARROW, WIDE, is_empty, message_of
from fmtkit.columns.problems import Column, Problem


def turn(role: Expr, content: Expr, **others: Expr) -> Expr:
    """Make a wide message.

    Args:
        role: Who speaks; null for a speaker that is not known.
        content: The text.
        **others: The other fields of a wide message, by name.
    """
    return message_of(WIDE, role, content, **others)


def speaker(name: Expr, roles: Mapping[str, str]) -> Expr:
    """Return the role of a speaker; null for an unknown one.

    Args:
        name: What the source calls the speaker.
        roles: Name of a speaker -> role.
    """
    return name.replace_strict(dict(roles), default=None, return_dtype=pl.String)


def joined_texts(parts: Expr, text: Expr) -> Expr:
    """Join the texts of a list of parts.

    Args:
        parts: A list of parts.
        text: The text of one part, an expression over `pl.element()`; null if it has none.
    """
    return parts.list.eval(text.drop_nulls()).list.join("")


def turns(source: Column, message: Expr, name: str, *problems: Problem) -> Column:
    """Make wide messages of a list; roles and contents are checked.

    Args:
        source: The list.
        message: The message of one item, made by `turn` over `pl.element()`.
        name: The source column, for errors.
        *problems: What else may be wrong; a row with one of these is not also reported for an empty turn.
    """
    made = source.with_value(source.value.list.eval(message)).once(f"__turns_{name}")
    field = pl.element().struct.field

    def any_turn(wrong: Expr) -> Expr:
        return made.value.list.eval(wrong).list.any()

    silent = any_turn(is_empty(field))
    conditions = [problem.when for problem in problems if isinstance(problem.when, Expr)]
    assert len(conditions) == len(problems)
    has_problem = reduce(Expr.or_, conditions, pl.lit(value=False))
    return made.with_value(
        made.value,
        *problems,
        Problem(
            "unknown_role",
            f"{name}[]",
            any_turn(field("role").is_null()),
            f"a role in {name} is not known",
        ),
        Problem(
            "empty_field",
            f"{name}[]",
            silent & ~has_problem.fill_null(value=False),
            f"a turn of {name} is empty",
        ),
    )


def must_speak(
    conversation: Column, field: str, message: str, nothing: Callable[[Expr], Expr] = blank
) -> Column:
    """Refuse conversations of narrow messages with a turn that says nothing; see `message_rules.is_empty`."""
    silent = conversation.value.list.eval(
        is_empty(pl.element().struct.field, (), nothing)
    ).list.any()
    return conversation.with_value(
        conversation.value, Problem("empty_field", field, silent, message)
    )


def alternating(texts: Column, name: str) -> Column:
    """Make narrow messages of strings: the first is the user's, the second the assistant's, and so on.

    Args:
        texts: A list of texts.
        name: The source column, for the error.
    """
    is_first = pl.int_range(pl.len()) % 2 == 0
    role = pl.when(is_first).then(pl.lit("user")).otherwise(pl.lit("assistant"))
    made = texts.value.list.eval(pl.struct(role=role, content=pl.element()))
    turns = texts.with_value(made).once(f"__turns_{name}")
    return must_speak(turns, f"{name}[]", f"a text of {name} is empty or blank")


def by_turns(asked: Column, answered: Column, name: str, layout: pl.Struct = NARROW) -> Column:
    """Make messages of the lists of what the user and the model said in turn.

    Args:
        asked: A list of what the user said.
        answered: A list of what the model said.
        name: What the messages are called in errors.
        layout: The layout of a message, `NARROW` or `WIDE`.
    """
    count, place = pl.len() // 2, pl.int_range(pl.len())
    is_asked = place % 2 == 0
    role = pl.when(is_asked).then(pl.lit("user")).otherwise(pl.lit("assistant"))
    content = pl.element().gather(place // 2 + pl.when(is_asked).then(0).otherwise(count))
    both = pl.concat_list(asked.value, answered.value)
    differ = asked.value.list.len() != answered.value.list.len()
    uneven = Problem(
        "length_mismatch", None, differ, "the questions and the answers differ in number"
    )
    made = pl.when(~differ).then(both).list.eval(message_of(layout, role, content))
    turns = asked.with_value(made, uneven).depending_on(answered).once(f"__turns_{name}")
    return must_speak(turns, f"{name}[]", f"an exchange of {name} has an empty turn")


def of_exchanges(exchanges: Column, asked: Expr, answered: Expr, name: str) -> Column:
    """Make narrow messages of a list of exchanges, each a question and its answer.

    Args:
        exchanges: The list.
        asked: What the user said in one exchange, an expression over `pl.element()`.
        answered: What the model said in it.
        name: The source column, for the error.
    """
    pairs = exchanges.value.list.eval(
        pl.concat_list(
            message_of(NARROW, pl.lit("user"), asked),
            message_of(NARROW, pl.lit("assistant"), answered),
        ).explode()
    )
    made = exchanges.with_value(pairs).once(f"__turns_{name}")
    return must_speak(made, f"{name}[]", f"an exchange of {name} has an empty turn")
