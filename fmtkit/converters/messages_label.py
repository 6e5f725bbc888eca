"""A conversation with a label for its last reply, as in LLaMA-Factory's KTO demo."""

from fmtkit.columns import ABSENT, Flag, Messages, Text
from fmtkit.columns.conversations import context_of, reply_of, with_system
from fmtkit.core.tables import Unpaired
from fmtkit.formats.registry import converter


@converter()
def unpaired(messages: Messages, label: Flag, system: Text = ABSENT) -> Unpaired:
    """https://huggingface.co/datasets/llamafactory/kto-mix-15k."""
    turns = with_system(system, messages)
    return Unpaired(context_of(turns, "messages"), reply_of(turns, "messages"), label)
