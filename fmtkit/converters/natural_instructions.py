"""Natural Instructions as rows: the definition of a task, the input of an instance, and its target."""

from fmtkit.columns import Text
from fmtkit.columns.conversations import messages_of, with_input
from fmtkit.core.tables import Completion
from fmtkit.formats.registry import converter


@converter(harmless=("task_name",))
def completion(definition: Text, inputs: Text, targets: Text) -> Completion:
    """https://huggingface.co/datasets/Muennighoff/natural-instructions; the input is below the definition."""
    return Completion(
        messages_of(user=with_input(definition, inputs)), messages_of(assistant=targets)
    )
