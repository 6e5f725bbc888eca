"""Instructions with a system prompt of their own, in the prompt texts that axolotl knows for them."""

from fmtkit.columns import ABSENT, Text
from fmtkit.columns.instructions import CHAT, CHATML, INSTRUCT, Style, answered
from fmtkit.core.tables import Segments
from fmtkit.formats.registry import converter

_ORCA = Style(
    "### Human:\n{instruction}\n### Additional Context:\n{input}\n### Assistant:\n",
    "### Human:\n{instruction}\n### Assistant:\n",
    "### System:\n{system}\n",
)


@converter(text=True, aliases=["alpaca_w_system.load", "alpaca_w_system.load_chat"])
def chat(instruction: Text, output: Text, input: Text = ABSENT, system: Text = ABSENT) -> Segments:
    """https://docs.axolotl.ai/docs/dataset-formats/inst_tune.html; SYSTEM, USER and ASSISTANT."""
    return answered(CHAT, instruction, output, input=input, system=system)


@converter(name="alpaca_w_system.load_instruct", text=True)
def instruct(
    instruction: Text, output: Text, input: Text = ABSENT, system: Text = ABSENT
) -> Segments:
    """https://docs.axolotl.ai/docs/dataset-formats/inst_tune.html; Stanford's headings."""
    return answered(INSTRUCT, instruction, output, input=input, system=system)


@converter(name="alpaca_w_system.load_open_orca", text=True)
def open_orca(question: Text, response: Text, system_prompt: Text = ABSENT) -> Segments:
    """https://huggingface.co/datasets/Open-Orca/OpenOrca."""
    return answered(_ORCA, question, response, system=system_prompt)


@converter(name="alpaca_w_system.load_open_orca_chatml", text=True)
def open_orca_chatml(question: Text, response: Text, system_prompt: Text = ABSENT) -> Segments:
    """https://huggingface.co/datasets/Open-Orca/OpenOrca; turns of ChatML."""
    return answered(CHATML, question, response, system=system_prompt)
