"""ShareGPT with a better and a worse reply, as in LLaMA-Factory's DPO demo."""

from fmtkit.columns import ShareGPT, ShareGPTMessage
from fmtkit.dialogs import answered
from fmtkit.registry import converter
from fmtkit.tables import Preference


@converter()
def preference(
    conversations: ShareGPT, chosen: ShareGPTMessage, rejected: ShareGPTMessage
) -> Preference:
    """https://huggingface.co/datasets/llamafactory/DPO-En-Zh-20k."""
    return answered(conversations, "conversations", chosen, rejected)
