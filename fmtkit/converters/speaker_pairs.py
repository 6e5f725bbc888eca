"""Conversations as lists of pairs: who speaks, and what they say."""

import polars as pl

from fmtkit.columns import ABSENT, Exchanges, Text, first_given
from fmtkit.columns.conversations import conversation as make_conversation
from fmtkit.columns.conversations import with_system
from fmtkit.columns.problems import Problem
from fmtkit.columns.record_turns import speaker, turn
from fmtkit.columns.record_turns import turns as made_turns
from fmtkit.core.message_keys import SHAREGPT_ROLES
from fmtkit.core.tables import Conversation
from fmtkit.formats.registry import converter

SPEAKERS = SHAREGPT_ROLES | {
    **dict.fromkeys(("u", "h", "q", "customer", "client", "prompter"), "user"),
    **dict.fromkeys(("a", "ai", "b", "bot", "agent", "model"), "assistant"),
    "s": "system",
}


@converter(
    wide=True,
    any_of=[("turns", "dialog", "dialogue", "conversation", "conversations", "messages", "chat")],
)
def chat(
    turns: Exchanges = ABSENT,
    dialog: Exchanges = ABSENT,
    dialogue: Exchanges = ABSENT,
    conversation: Exchanges = ABSENT,
    conversations: Exchanges = ABSENT,
    messages: Exchanges = ABSENT,
    chat: Exchanges = ABSENT,
    system: Text = ABSENT,
) -> Conversation:
    """https://huggingface.co/datasets/Salesforce/dialogstudio, as pairs; `u` is the user, `a` the model."""
    held = first_given(
        turns=turns,
        dialog=dialog,
        dialogue=dialogue,
        conversation=conversation,
        conversations=conversations,
        messages=messages,
        chat=chat,
    )
    pair = pl.element().list
    who = pair.get(0, null_on_oob=True).str.strip_chars().str.to_lowercase()
    uneven = Problem(
        "value_error",
        "turns[]",
        held.value.list.eval(pair.len() != 2).list.any(),
        "a turn is not a pair of a speaker and what was said",
    )
    said = turn(speaker(who, SPEAKERS), pair.get(1, null_on_oob=True))
    return make_conversation(with_system(system, made_turns(held, said, "turns", uneven)))
