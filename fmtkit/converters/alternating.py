"""Conversations as lists of texts: the user speaks first, and the two take turns."""

from fmtkit.columns import ABSENT, Text, Texts, first_given
from fmtkit.columns.conversations import conversation as make_conversation
from fmtkit.columns.conversations import with_system
from fmtkit.columns.record_turns import alternating
from fmtkit.core.tables import Conversation
from fmtkit.formats.registry import converter


@converter(any_of=[("data", "dialog", "dialogue", "conversation", "conversations", "turns")])
def chat(
    data: Texts = ABSENT,
    dialog: Texts = ABSENT,
    dialogue: Texts = ABSENT,
    conversation: Texts = ABSENT,
    conversations: Texts = ABSENT,
    turns: Texts = ABSENT,
    system: Text = ABSENT,
) -> Conversation:
    """https://huggingface.co/datasets/stingning/ultrachat."""
    texts = first_given(
        data=data,
        dialog=dialog,
        dialogue=dialogue,
        conversation=conversation,
        conversations=conversations,
        turns=turns,
    )
    return make_conversation(with_system(system, alternating(texts, "data")))
