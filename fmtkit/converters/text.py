"""Plain text to learn as it is."""

from fmtkit.columns import Text
from fmtkit.registry import converter
from fmtkit.tables import Conversation


@converter(text=True)
def plain(text: Text) -> Conversation:
    """https://huggingface.co/docs/trl/dataset_formats#language-modeling."""
    return Conversation(text)
