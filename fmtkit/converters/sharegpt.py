"""ShareGPT: conversations of {from, value}, with function calls and tools where there are any."""

from fmtkit.columns import ABSENT, Text, Tools, WideShareGPT
from fmtkit.dialogs import conversation, with_system
from fmtkit.registry import converter
from fmtkit.tables import Conversation


@converter(wide=True)
def chat(conversations: WideShareGPT, system: Text = ABSENT, tools: Tools = ABSENT) -> Conversation:
    """https://huggingface.co/datasets/RyokoAI/ShareGPT52K."""
    return conversation(with_system(system, conversations, wide=True), tools)
