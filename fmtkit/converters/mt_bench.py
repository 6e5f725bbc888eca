"""Questions of a benchmark: the turns of one user, to each of which a model has to reply first."""

from typing import Annotated, TypeAlias

import polars as pl

from fmtkit.columns import Texts, records
from fmtkit.columns.conversations import messages_of, of_each
from fmtkit.columns.kinds import TextKind
from fmtkit.columns.problems import Column, Problem
from fmtkit.core.message_keys import SPEAKER_KEYS
from fmtkit.core.tables import Prompt
from fmtkit.formats.registry import converter

Contents: TypeAlias = Annotated[
    Column,
    records(
        {"content": TextKind(), **dict.fromkeys(SPEAKER_KEYS, TextKind())}, optional=SPEAKER_KEYS
    ),
]


@converter(keeps=True)
def prompt(turns: Texts) -> Prompt:
    """https://github.com/lm-sys/FastChat, mt_bench/question.jsonl; the first turn is the prompt.

    Later turns ask about a reply that is not there: rows that have some are counted.
    """
    return _first(turns)


@converter(keeps=True)
def arena_hard(turns: Contents) -> Prompt:
    """https://huggingface.co/datasets/lmarena-ai/arena-hard-auto; each turn is an object with its content."""
    speakers = [pl.element().struct.field(key).is_not_null() for key in SPEAKER_KEYS]
    spoken = Problem(
        "value_error",
        "turns[]",
        turns.value.list.eval(pl.any_horizontal(speakers)).list.any(),
        "the turns say who speaks: they are a conversation, and not one user's",
    )
    return _first(turns.with_value(of_each(turns.value, "content"), spoken))


def _first(turns: Column) -> Prompt:
    first = turns.with_value(turns.value.list.first())
    return Prompt(messages_of(user=first.warn("unread_turns", turns.value.list.len() > 1)))
