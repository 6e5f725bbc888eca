"""A prompt and its completion, each of them text or messages; or a text that is trained on as a whole."""

from fmtkit.columns import ABSENT, Reply, Text, Turns
from fmtkit.columns.dialogs import completion as completed
from fmtkit.columns.dialogs import with_system
from fmtkit.columns.instructions import document
from fmtkit.core.tables import Completion, Segments
from fmtkit.formats.registry import converter


@converter()
def reply(prompt: Turns, completion: Reply, system: Text = ABSENT) -> Completion:
    """https://huggingface.co/docs/trl/dataset_formats#prompt-completion."""
    return completed(with_system(system, prompt), completion)


@converter(text=True)
def raw(text: Text) -> Segments:
    """https://docs.axolotl.ai/docs/dataset-formats/pretraining.html; too long a text becomes several rows."""
    return document(text)
