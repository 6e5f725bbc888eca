"""OpenCodeInstruct: a task and the code that solves it, as a reference."""

from fmtkit.columns import Text
from fmtkit.dialogs import dialog
from fmtkit.registry import converter
from fmtkit.tables import Reference


@converter(
    name="ebft_opencode.transform",
    aliases=["ebft_opencode"],
    differs="a row without `input` or `output` is a rejected row, not a KeyError",
)
def reference(input: Text, output: Text) -> Reference:
    """https://huggingface.co/datasets/nvidia/OpenCodeInstruct."""
    return Reference(dialog(user=input), output)
