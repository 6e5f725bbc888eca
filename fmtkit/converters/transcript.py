"""Transcripts: conversations as one text with `USER:` and `ASSISTANT:` marks, in a column or in a turn."""

import polars as pl

from fmtkit.columns import ABSENT, Messages, Text, first_given
from fmtkit.columns.conversations import conversation, with_system
from fmtkit.columns.problems import Column, Problem
from fmtkit.columns.transcripts import (
    all_must_speak,
    is_marked,
    marked_turns,
    without_system_mark,
)
from fmtkit.core.tables import Conversation
from fmtkit.formats.registry import converter


@converter(any_of=[("text", "chat", "transcript", "dialogue", "conversation")])
def text(
    text: Text = ABSENT,
    chat: Text = ABSENT,
    transcript: Text = ABSENT,
    dialogue: Text = ABSENT,
    conversation: Text = ABSENT,
    system: Text = ABSENT,
) -> Conversation:
    """https://huggingface.co/datasets/glaiveai/glaive-function-calling-v2.

    The mark at the beginning of the text decides which marks separate its turns: USER and ASSISTANT, or
    Human and Assistant, also as headings with ###; results of functions are tool turns.
    """
    given = first_given(
        text=text,
        chat=chat,
        transcript=transcript,
        dialogue=dialogue,
        conversation=conversation,
    )
    unmarked = Problem(
        "value_error",
        "text",
        ~is_marked(given.value),
        "the text does not begin with USER: or another mark of a turn",
    )
    turns = given.with_value(marked_turns(given.value), unmarked).once("__turns")
    if system is not ABSENT:
        turns = with_system(system.with_value(without_system_mark(system.value)), turns)
    return make_conversation(turns, "text")


@converter()
def inside(messages: Messages, system: Text = ABSENT) -> Conversation:
    """https://huggingface.co/datasets/lmsys/lmsys-chat-1m; the transcript is a user turn."""
    role, content = pl.element().struct.field("role"), pl.element().struct.field("content")
    is_transcript = (role == "user") & is_marked(content)
    unchanged = pl.concat_list(pl.struct(role=role, content=content))
    each = pl.when(is_transcript).then(marked_turns(content)).otherwise(unchanged)
    none = Problem(
        "value_error",
        "messages",
        ~messages.value.list.eval(is_transcript).list.any(),
        "no user turn holds a transcript",
    )
    turns = messages.with_value(messages.value.list.eval(each.explode()), none).once("__turns")
    return make_conversation(with_system(system, turns), "messages")


def make_conversation(turns: Column, name: str) -> Conversation:
    """Make a conversation of turns, each of which says something."""
    return conversation(all_must_speak(turns, name))
