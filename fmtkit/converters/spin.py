"""Self-play: a real conversation, and the same with a reply that a model generated."""

from fmtkit.columns import ABSENT, Messages, Text
from fmtkit.columns.conversations import split_pair
from fmtkit.core.tables import Preference
from fmtkit.formats.registry import converter


@converter()
def preference(real: Messages, generated: Messages, system: Text = ABSENT) -> Preference:
    """https://huggingface.co/datasets/UCLA-AGI/SPIN_iter0; the real reply is the better one."""
    return split_pair(real, generated, system)
