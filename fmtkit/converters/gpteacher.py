"""GPTeacher: an instruction, sometimes an input to it, and the response, in Stanford's prompt text."""

from fmtkit.columns import ABSENT, Text
from fmtkit.columns.instructions import STANFORD_SYSTEM_PROMPTS, answered, introduced, style_of
from fmtkit.core.tables import Segments
from fmtkit.formats.registry import converter


@converter(text=True)
def instruct(
    instruction: Text, response: Text, input: Text = ABSENT, *, style: str = "instruct"
) -> Segments:
    """https://huggingface.co/datasets/teknium/GPTeacher-General-Instruct."""
    system = introduced(STANFORD_SYSTEM_PROMPTS, input)
    return answered(style_of(style), instruction, response, input=input, system=system)
