"""ShareGPT: conversations of {from, value}, with function calls and tools where there are any."""

from fmtkit.columns import ABSENT, Flag, ShareGPT, Text, Tools, WideShareGPT, first_given
from fmtkit.columns.conversations import context_of, conversation, reply_of, with_system
from fmtkit.core.tables import Conversation, Unpaired
from fmtkit.formats.registry import converter


@converter(wide=True)
def chat(conversations: WideShareGPT, system: Text = ABSENT, tools: Tools = ABSENT) -> Conversation:
    """https://huggingface.co/datasets/RyokoAI/ShareGPT52K."""
    return conversation(with_system(system, conversations), tools)


@converter(any_of=[("kto_tag", "label")])
def unpaired(
    conversations: ShareGPT, kto_tag: Flag = ABSENT, label: Flag = ABSENT, system: Text = ABSENT
) -> Unpaired:
    """https://github.com/hiyouga/LLaMA-Factory/blob/main/data/README.md, KTO dataset."""
    turns = with_system(system, conversations)
    liked = first_given(kto_tag=kto_tag, label=label)
    prompt = context_of(turns, "conversations")
    return Unpaired(prompt, reply_of(turns, "conversations"), liked)
