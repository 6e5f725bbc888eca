"""A conversation with a label for its last reply, as in LLaMA-Factory's KTO demo."""

from fmtkit.columns import Flag, Messages
from fmtkit.dialogs import context_of, reply_of
from fmtkit.registry import converter
from fmtkit.tables import Unpaired


@converter()
def unpaired(messages: Messages, label: Flag) -> Unpaired:
    """https://huggingface.co/datasets/llamafactory/kto-mix-15k."""
    return Unpaired(context_of(messages, "messages"), reply_of(messages, "messages"), label)
