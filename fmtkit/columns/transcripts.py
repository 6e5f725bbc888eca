r"""Transcripts: one text of `\n\nHuman:` and `\n\nAssistant:` turns, or of other marks, becomes messages.

polars' regular expressions have no lookahead, so the text is split at one mark, then at the other.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

import polars as pl
from polars import Expr

from fmtkit.columns.conversations import messages_of
from fmtkit.columns.problems import Column, Problem
from fmtkit.columns.record_turns import must_speak

HUMAN = "\n\nHuman:"
ASSISTANT = "\n\nAssistant:"


def transcript(text: Column, name: str) -> Column:
    """Read a transcript; the white space around a turn's text is not part of it.

    Args:
        text: The column of transcripts.
        name: The source column, for the error.
    """
    turns = text.with_value(_turns(text.value)).once(f"__turns_{name}")
    none = Problem(
        "value_error", name, ~_begins(text.value), f"{name} does not begin with {HUMAN.strip()}"
    )
    return all_must_speak(turns.with_value(turns.value, none), name)


def all_must_speak(turns: Column, name: str) -> Column:
    """Refuse transcripts with a turn that says nothing, though its role has to.

    Args:
        turns: The messages, which are returned.
        name: The source column, for the error.
    """
    # Their texts are stripped: to look for anything but white space took 5 % of the time of hh_rlhf.
    return must_speak(
        turns, name, f"a turn of {name} is empty", lambda text: text.str.len_bytes() == 0
    )


def question_or_transcript(text: Column) -> Column:
    """Read a transcript that ends with a turn for the assistant to answer; any other text is a question."""
    asked = messages_of(user=text)
    read = text.with_value(_turns(text.value)).once("__turns")
    turns = read.value
    open_end = turns.list.last().struct.field("content").str.len_bytes() == 0
    spoken = pl.when(open_end).then(turns.list.head(turns.list.len() - 1)).otherwise(turns)
    value = pl.when(_begins(text.value)).then(spoken).otherwise(asked.value)
    return asked.with_value(value).depending_on(read).once("__asked")


def _begins(text: Expr) -> Expr:
    return text.str.contains(r"\A\s*Human:")


def _turns(text: Expr) -> Expr:
    whole = pl.lit("\n\n") + text.str.strip_chars_start()
    exchanges = whole.str.split(HUMAN).list.slice(1)
    parts = pl.element()
    role = pl.when(pl.int_range(pl.len()) == 0).then(pl.lit("user")).otherwise(pl.lit("assistant"))
    said = parts.list.eval(pl.struct(role=role, content=pl.element().str.strip_chars()))
    return (
        exchanges.list.eval(parts.str.split(ASSISTANT)).list.eval(said).list.eval(parts.explode())
    )


MARKS = {
    "USER:": {"USER:": "user", "ASSISTANT:": "assistant", "FUNCTION RESPONSE:": "tool"},
    "User:": {"User:": "user", "Assistant:": "assistant"},
    "Human:": {"Human:": "user", "Assistant:": "assistant"},
    "### Human:": {"### Human:": "user", "### Assistant:": "assistant"},
    "### User:": {"### User:": "user", "### Assistant:": "assistant"},
    "### Instruction:": {"### Instruction:": "user", "### Response:": "assistant"},
}
"""How a transcript begins -> its marks, each at the beginning of a line, and who speaks after them.

Marks with ### may also be within a line.
"""
SIGN = "\x1e"
"""A character before each turn while text is cut: no text of a conversation has it."""
END = r"\s*<\|endoftext\|>\s*\z"
"""What some sources put after each answer."""


def is_marked(text: Expr) -> Expr:
    """Return whether a string is a transcript: it begins with a mark and has an assistant turn."""
    found = [_is(text, first) for first in MARKS]
    return reduce(Expr.or_, found) & ~text.str.contains(SIGN)


def marks_of(texts: Sequence[str]) -> list[str | None]:
    """Return for each text the marks of its turns, in words; None if it has none."""
    text = pl.col("text")
    names = {first: " ".join(list(marks)[:2]) for first, marks in MARKS.items()}
    marks = (pl.when(_is(text, first)).then(pl.lit(name)) for first, name in names.items())
    found = pl.DataFrame({"text": list(texts)}, schema={"text": pl.String})
    named = found.select(pl.when(is_marked(text)).then(pl.coalesce(marks)))
    return named.to_series().to_list()


def asked_in(row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the strings of a row and of its user messages, with their columns."""
    for name, value in row.items():
        if isinstance(value, str):
            yield name, value
        for one in value if isinstance(value, list) else ():
            if isinstance(one, Mapping):
                speaker = one.get("role", one.get("from"))
                content = one.get("content", one.get("value"))
                if speaker in ("user", "human") and isinstance(content, str):
                    yield name, content


def is_in_turn(sample: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a user turn holds a complete conversation, which types of messages read as one turn."""
    turns = [{n: v for n, v in row.items() if isinstance(v, list)} for row in sample]
    return any(marks_of([text for row in turns for _, text in asked_in(row)]))


def marked_turns(text: Expr) -> Expr:
    """Cut a transcript into messages, without a last assistant turn that has no text."""
    cut = pl.coalesce(pl.when(_is(text, first)).then(_signed(text, first)) for first in MARKS)
    part = pl.element()
    roles = {str(number): role for number, role in enumerate(("user", "assistant", "tool"))}
    said = pl.struct(
        role=part.str.slice(0, 1).replace_strict(roles, default=None, return_dtype=pl.String),
        content=part.str.slice(1).str.replace(END, "").str.strip_chars(),
    )
    turns = cut.str.split(SIGN).list.slice(1).list.eval(said)
    last = turns.list.last().struct
    open_end = (last.field("role") == "assistant") & (last.field("content").str.len_bytes() == 0)
    return pl.when(open_end).then(turns.list.head(turns.list.len() - 1)).otherwise(turns)


def without_system_mark(system: Expr) -> Expr:
    """Return a system prompt without the mark before it."""
    return system.str.replace(r"\A\s*SYSTEM:\s*", "")


def _is(text: Expr, first: str) -> Expr:
    answer = next(mark for mark, role in MARKS[first].items() if role == "assistant")
    return text.str.contains(r"\A\s*" + first) & text.str.contains(_pattern(answer))


def _pattern(mark: str) -> str:
    return r"\s*" + mark if mark.startswith("#") else r"(?:\A|\n)[ \t]*" + mark


def _signed(text: Expr, first: str) -> Expr:
    """Replace each mark by the sign and the number of the speaker."""
    numbers = {"user": "0", "assistant": "1", "tool": "2"}
    begun = text.str.strip_chars_start()
    return reduce(
        lambda done, mark: done.str.replace_all(_pattern(mark), SIGN + numbers[MARKS[first][mark]]),
        MARKS[first],
        begun,
    )
