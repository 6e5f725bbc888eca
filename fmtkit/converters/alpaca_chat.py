"""Questions and instructions that axolotl puts into turns of USER and ASSISTANT."""

from fmtkit.columns import ABSENT, Text
from fmtkit.columns.instructions import CHAT, answered, introduced
from fmtkit.core.tables import Segments
from fmtkit.formats.registry import converter

_WITH_INPUT = (
    "Below is an instruction from a USER that describes a task, paired with an input that provides "
    "further context. The ASSISTANT writes a response that concisely and appropriately completes "
    "the request.\n\n"
)
_WITHOUT = (
    "Below is an instruction from a USER that describes a task. The ASSISTANT writes a response "
    "that appropriately and concisely completes the request.\n\n"
)
_CONCISE = (_WITH_INPUT, _WITHOUT)


@converter(name="alpaca_chat.load_qa", text=True)
def question_answer(question: Text, answer: Text) -> Segments:
    """https://docs.axolotl.ai/docs/dataset-formats/inst_tune.html#alpaca_chat.load_qa."""
    return answered(CHAT, question, answer, system=introduced(_CONCISE))


@converter(name="alpaca_chat.load_concise", text=True)
def concise(instruction: Text, output: Text, input: Text = ABSENT) -> Segments:
    """https://docs.axolotl.ai/docs/dataset-formats/inst_tune.html#alpaca_chat.load_concise."""
    return answered(CHAT, instruction, output, input=input, system=introduced(_CONCISE, input))


@converter(name="alpaca_chat.load_camel_ai", text=True)
def camel_ai(message_1: Text, message_2: Text) -> Segments:
    """https://docs.axolotl.ai/docs/dataset-formats/inst_tune.html#alpaca_chat.load_camel_ai."""
    return answered(CHAT, message_1, message_2, system=introduced(_CONCISE))


@converter(name="alpaca_chat.load_no_prompt", text=True)
def bare(instruction: Text, output: Text, input: Text = ABSENT) -> Segments:
    """https://docs.axolotl.ai/docs/dataset-formats/inst_tune.html; no introduction."""
    return answered(CHAT, instruction, output, input=input)
