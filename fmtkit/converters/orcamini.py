"""Orca Mini: a question under a system heading, which is written even without a system prompt."""

from fmtkit.columns import ABSENT, Text
from fmtkit.columns.instructions import trained_output
from fmtkit.columns.text_formats import formatted
from fmtkit.core.tables import Segments
from fmtkit.formats.registry import converter

_FORMAT = "### System:\n{system}\n\n### User:\n{instruction}\n\n### Response:\n"


@converter(text=True)
def instruct(question: Text, response: Text, system_prompt: Text = ABSENT) -> Segments:
    """https://huggingface.co/pankajmathur/orca_mini_v2_7b."""
    columns = {"system": system_prompt, "instruction": question}
    return trained_output(formatted("format", _FORMAT, columns), response)
