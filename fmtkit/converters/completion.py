"""A prompt and its completion, each of them text or messages."""

from fmtkit.columns import Reply, Turns
from fmtkit.dialogs import completion as completed
from fmtkit.registry import converter
from fmtkit.tables import Completion


@converter()
def reply(prompt: Turns, completion: Reply) -> Completion:
    """https://huggingface.co/docs/trl/dataset_formats#prompt-completion."""
    return completed(prompt, completion)
