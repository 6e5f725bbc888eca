"""An instruction in the prompt text of Stanford Alpaca, or in another that axolotl knows for it."""

from fmtkit.columns import ABSENT, Text
from fmtkit.columns.instructions import (
    CHAT,
    CHATML,
    INSTRUCT,
    PHI,
    STANFORD_SYSTEM_PROMPTS,
    answered,
    introduced,
)
from fmtkit.core.tables import Segments
from fmtkit.formats.registry import converter


@converter(text=True, aliases=["alpaca:instruct", "alpaca_instruct"])
def instruct(instruction: Text, output: Text, input: Text = ABSENT) -> Segments:
    """https://github.com/tatsu-lab/stanford_alpaca; `alpaca` in axolotl's configs."""
    system = introduced(STANFORD_SYSTEM_PROMPTS, input)
    return answered(INSTRUCT, instruction, output, input=input, system=system)


@converter(name="alpaca_prompt.chat", text=True, aliases=["alpaca:chat", "alpaca_chat"])
def chat(instruction: Text, output: Text, input: Text = ABSENT) -> Segments:
    """https://docs.axolotl.ai/docs/dataset-formats/inst_tune.html; USER and ASSISTANT."""
    system = introduced(STANFORD_SYSTEM_PROMPTS, input)
    return answered(CHAT, instruction, output, input=input, system=system)


@converter(name="alpaca_prompt.chatml", text=True, aliases=["alpaca:chatml"])
def chatml(instruction: Text, output: Text, input: Text = ABSENT) -> Segments:
    """https://docs.axolotl.ai/docs/dataset-formats/inst_tune.html; turns of ChatML."""
    system = introduced(STANFORD_SYSTEM_PROMPTS, input)
    return answered(CHATML, instruction, output, input=input, system=system)


@converter(name="alpaca_prompt.phi", text=True, aliases=["alpaca:phi"])
def phi(instruction: Text, output: Text, input: Text = ABSENT) -> Segments:
    """https://docs.axolotl.ai/docs/dataset-formats/inst_tune.html; turns of Phi-3."""
    system = introduced(STANFORD_SYSTEM_PROMPTS, input)
    return answered(PHI, instruction, output, input=input, system=system)


@converter(name="alpaca_instruct.load_no_prompt", text=True)
def bare(instruction: Text, output: Text, input: Text = ABSENT) -> Segments:
    """https://docs.axolotl.ai/docs/dataset-formats/inst_tune.html; headings without an introduction."""
    return answered(INSTRUCT, instruction, output, input=input)
