"""Plain text to train on as it is."""

from fmtkit.columns import Text
from fmtkit.core.tables import Conversation
from fmtkit.formats.registry import converter


@converter(text=True)
def plain(text: Text) -> Conversation:
    """https://huggingface.co/docs/trl/dataset_formats#language-modeling."""
    return Conversation(text)
