r"""Transcripts: one text of `\n\nHuman:` and `\n\nAssistant:` turns becomes messages.

polars' regular expressions have no lookahead, so the text is split at one mark, then at the other.
"""

import polars as pl
from polars import Expr

from fmtkit.dialogs import dialog
from fmtkit.problems import Column, Problem

HUMAN = "\n\nHuman:"
ASSISTANT = "\n\nAssistant:"


def transcript(text: Column, name: str) -> Column:
    """Read a transcript; the white space around a turn's text is not part of it."""
    turns = text.but(_turns(text.value)).once(f"__turns_{name}")
    none = Problem(
        "value_error", name, ~_begins(text.value), f"{name} does not begin with {HUMAN.strip()}"
    )
    turn = pl.element().struct
    empty = turns.value.list.eval(turn.field("content").str.len_bytes() == 0).list.any()
    said_nothing = Problem("empty_field", name, empty, f"a turn of {name} is empty")
    return turns.but(turns.value, none, said_nothing)


def question_or_transcript(text: Column) -> Column:
    """Read a transcript that ends where the assistant is to speak; any other text is a question."""
    asked = dialog(user=text)
    read = text.but(_turns(text.value)).once("__turns")
    turns = read.value
    open_end = turns.list.last().struct.field("content").str.len_bytes() == 0
    spoken = pl.when(open_end).then(turns.list.head(turns.list.len() - 1)).otherwise(turns)
    value = pl.when(_begins(text.value)).then(spoken).otherwise(asked.value)
    return asked.but(value).having(read).once("__asked")


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
