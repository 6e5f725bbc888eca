"""Gemini on Vertex AI: contents of a user and a model in parts, and a system instruction."""

import polars as pl

from fmtkit.columns.exports import (
    each,
    key,
    must_be_one_message,
    must_end_with_prompt,
    must_have_names,
    must_have_reply,
    only_item,
    role_name,
    system_text,
    without_first_system,
)
from fmtkit.columns.problems import Column
from fmtkit.core.tables import Conversation, Preference
from fmtkit.formats.target_registry import WrittenColumns, target

NAMES = {"user": "user", "assistant": "model"}


@target(reads="gemini", holds=("system", "turns"), system="first")
def chat(table: Conversation) -> WrittenColumns:
    """https://cloud.google.com/vertex-ai/generative-ai/docs/models/gemini-supervised-tuning-prepare."""
    return {
        "systemInstruction": _instruction(table.messages),
        "contents": _contents(without_first_system(must_have_reply(table.messages))),
    }


@target(reads="gemini", holds=("system", "turns"), system="first")
def preference(table: Preference) -> WrittenColumns:
    """https://cloud.google.com/vertex-ai/generative-ai/docs/models/gemini-preference-tuning-prepare."""
    sides = {1: only_item(_contents(must_be_one_message(table.chosen)))}
    sides |= {0: only_item(_contents(must_be_one_message(table.rejected)))}
    scored = [
        pl.struct(score=pl.lit(float(score)), completion=side.value)
        for score, side in sides.items()
    ]
    return {
        "systemInstruction": _instruction(table.prompt),
        "contents": _contents(without_first_system(must_end_with_prompt(table.prompt))),
        "completions": Column(pl.concat_list(scored)).depending_on(*sides.values()),
    }


def _contents(conversation: Column) -> Column:
    named = must_have_names(conversation, NAMES)
    return each(named, {"role": role_name(NAMES), "parts": _parts(key("content"))})


def _parts(text: pl.Expr) -> pl.Expr:
    return pl.concat_list(pl.struct(text=text))


def _instruction(conversation: Column) -> Column:
    text = system_text(conversation).value
    made = pl.struct(role=pl.lit("system"), parts=_parts(text))
    return Column(pl.when(text.is_not_null()).then(made))
