r"""Transcripts: conversations written as one text of `USER:` and `ASSISTANT:` turns, or inside of a turn."""

import polars as pl

from fmtkit.columns import ABSENT, Messages, Text, first_given
from fmtkit.columns.dialogs import conversation, with_system
from fmtkit.columns.problems import Column, Problem
from fmtkit.columns.transcripts import is_marked, marked_turns, untold
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

    The marks at the beginning of the text say how its turns are marked: USER and ASSISTANT, Human and
    Assistant, also as headings with ###; results of functions are tool turns.
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
        "the text does not begin with USER: or the like",
    )
    turns = given.with_value(marked_turns(given.value), unmarked).once("__turns")
    led = (
        with_system(system.with_value(untold(system.value)), turns)
        if system is not ABSENT
        else turns
    )
    return make_conversation(led, "text")


@converter()
def inside(messages: Messages, system: Text = ABSENT) -> Conversation:
    """https://huggingface.co/datasets/lmsys/lmsys-chat-1m; the transcript is a user turn."""
    said = pl.element().struct
    inner = (said.field("role") == "user") & is_marked(said.field("content"))
    whole = pl.concat_list(pl.struct(role=said.field("role"), content=said.field("content")))
    each = pl.when(inner).then(marked_turns(said.field("content"))).otherwise(whole)
    none = Problem(
        "value_error",
        "messages",
        ~messages.value.list.eval(inner).list.any(),
        "no user turn holds a transcript",
    )
    spoken = messages.with_value(messages.value.list.eval(each.explode()), none).once("__turns")
    return make_conversation(with_system(system, spoken), "messages")


def make_conversation(turns: Column, name: str) -> Conversation:
    """Make a conversation of turns that all say something."""
    content = pl.element().struct.field("content")
    silent = turns.value.list.eval(content.str.len_bytes() == 0).list.any()
    empty = Problem("empty_field", name, silent, f"a turn of {name} is empty")
    return conversation(turns.with_value(turns.value, empty))
