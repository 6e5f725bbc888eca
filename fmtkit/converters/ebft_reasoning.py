"""Conversations with thinking: the last answer as a reference, its thinking kept, dropped or separate."""

from fmtkit.columns import ABSENT, WideMessages, WideShareGPT
from fmtkit.columns.references import conversation_of, last_answer, last_reply, last_thought
from fmtkit.core.tables import Reference
from fmtkit.formats.registry import converter

EITHER = [("messages", "conversations")]


@converter(
    name="ebft_reasoning.transform",
    aliases=["ebft_reasoning"],
    any_of=EITHER,
    differs="a row without an answer is rejected; axolotl cuts off its last question",
)
def whole(messages: WideMessages = ABSENT, conversations: WideMessages = ABSENT) -> Reference:
    """https://docs.axolotl.ai/docs/ebft.html."""
    return last_reply(conversation_of(messages, conversations))


@converter(name="ebft_reasoning.transform")
def whole_sharegpt(conversations: WideShareGPT) -> Reference:
    """https://huggingface.co/datasets/RyokoAI/ShareGPT52K."""
    return last_reply(conversation_of(conversations))


@converter(
    name="ebft_reasoning.transform_answer_only",
    any_of=EITHER,
    differs="all three pairs of tags are known; a row whose thinking never ends is rejected",
)
def answer(messages: WideMessages = ABSENT, conversations: WideMessages = ABSENT) -> Reference:
    """https://docs.axolotl.ai/docs/ebft.html."""
    return last_answer(conversation_of(messages, conversations))


@converter(name="ebft_reasoning.transform_answer_only")
def answer_sharegpt(conversations: WideShareGPT) -> Reference:
    """https://huggingface.co/datasets/RyokoAI/ShareGPT52K."""
    return last_answer(conversation_of(conversations))


@converter(
    name="ebft_reasoning.transform_split_thinking",
    wide=True,
    any_of=EITHER,
    differs="text before the thinking is kept, and so is a tag that closes before it opens",
)
def apart(messages: WideMessages = ABSENT, conversations: WideMessages = ABSENT) -> Reference:
    """https://docs.axolotl.ai/docs/ebft.html."""
    return last_thought(conversation_of(messages, conversations))


@converter(name="ebft_reasoning.transform_split_thinking", wide=True)
def apart_sharegpt(conversations: WideShareGPT) -> Reference:
    """https://huggingface.co/datasets/RyokoAI/ShareGPT52K."""
    return last_thought(conversation_of(conversations))
