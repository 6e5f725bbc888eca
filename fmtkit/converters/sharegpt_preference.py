"""ShareGPT with a better and a worse reply, as in LLaMA-Factory's DPO demo."""

from fmtkit.columns import (
    ABSENT,
    ShareGPT,
    ShareGPTReply,
    Text,
    Tools,
    WideShareGPT,
    WideShareGPTReply,
)
from fmtkit.columns.conversations import answered, with_system
from fmtkit.columns.preference_cut import cut_pair, whole_with
from fmtkit.core.tables import Preference
from fmtkit.formats.registry import converter


@converter()
def preference(
    conversations: ShareGPT,
    chosen: ShareGPTReply,
    rejected: ShareGPTReply,
    system: Text = ABSENT,
) -> Preference:
    """https://huggingface.co/datasets/llamafactory/DPO-En-Zh-20k; a reply may be a string."""
    return answered(with_system(system, conversations), "conversations", chosen, rejected)


@converter(wide=True)
def preference_with_tools(
    conversations: WideShareGPT,
    chosen: WideShareGPTReply,
    rejected: WideShareGPTReply,
    tools: Tools = ABSENT,
    system: Text = ABSENT,
) -> Preference:
    """https://github.com/hiyouga/LLaMA-Factory/blob/main/data/README.md, with tool calls."""
    context = with_system(system, conversations).once("__context")
    better = whole_with(context, chosen, "chosen")
    return cut_pair(better, whole_with(context, rejected, "rejected"), tools)
