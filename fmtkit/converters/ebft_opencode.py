"""OpenCodeInstruct: a task and the code that solves it, as a reference."""

from fmtkit.columns import Text
from fmtkit.columns.conversations import messages_of
from fmtkit.core.tables import Reference
from fmtkit.formats.registry import converter


@converter(
    name="ebft_opencode.transform",
    aliases=["ebft_opencode"],
    differs="a row without `input` or `output` is a rejected row, not a KeyError",
)
def reference(input: Text, output: Text) -> Reference:
    """https://huggingface.co/datasets/nvidia/OpenCodeInstruct."""
    return Reference(messages_of(user=input), output)
