"""Conversations whose answers are references: the first with what follows, the last, or each."""

from fmtkit.columns import ABSENT, WideMessages, WideShareGPT
from fmtkit.columns.references import conversation_of, every_reply, first_reply, last_reply
from fmtkit.core.tables import Reference
from fmtkit.formats.registry import converter

EITHER = [("messages", "conversations")]


@converter(
    name="ebft_chat_multiturn.transform",
    aliases=["ebft_chat_multiturn"],
    any_of=EITHER,
    differs="an answer before any question is not a target; rows without one are rejected",
)
def first(messages: WideMessages = ABSENT, conversations: WideMessages = ABSENT) -> Reference:
    """https://docs.axolotl.ai/docs/ebft.html."""
    return first_reply(conversation_of(messages, conversations))


@converter(name="ebft_chat_multiturn.transform")
def first_sharegpt(conversations: WideShareGPT) -> Reference:
    """https://huggingface.co/datasets/RyokoAI/ShareGPT52K."""
    return first_reply(conversation_of(conversations))


@converter(name="ebft_chat_multiturn.transform_last_turn", any_of=EITHER)
def final(messages: WideMessages = ABSENT, conversations: WideMessages = ABSENT) -> Reference:
    """https://docs.axolotl.ai/docs/ebft.html."""
    return last_reply(conversation_of(messages, conversations))


@converter(name="ebft_chat_multiturn.transform_last_turn")
def final_sharegpt(conversations: WideShareGPT) -> Reference:
    """https://huggingface.co/datasets/RyokoAI/ShareGPT52K."""
    return last_reply(conversation_of(conversations))


@converter(
    name="ebft_chat_multiturn.transform_all_turns",
    any_of=EITHER,
    differs="a conversation without a target is rejected, not dropped silently",
)
def each(messages: WideMessages = ABSENT, conversations: WideMessages = ABSENT) -> Reference:
    """https://docs.axolotl.ai/docs/ebft.html."""
    return every_reply(conversation_of(messages, conversations))


@converter(name="ebft_chat_multiturn.transform_all_turns")
def each_sharegpt(conversations: WideShareGPT) -> Reference:
    """https://huggingface.co/datasets/RyokoAI/ShareGPT52K."""
    return every_reply(conversation_of(conversations))
