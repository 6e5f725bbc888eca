"""Instructions in the prompt formats of axolotl and Stanford Alpaca, as segments of text.

The prompt is not trained on; the output is, with the tokenizer's EOS after it.
"""

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import polars as pl

from fmtkit import former_names
from fmtkit.columns import ABSENT, filled
from fmtkit.columns.problems import Column, literal
from fmtkit.columns.text_formats import formatted
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import UnknownNameError
from fmtkit.core.tables import Segments

STANFORD_SYSTEM_PROMPTS = (
    "Below is an instruction that describes a task, paired with an input that provides further "
    "context. Write a response that appropriately completes the request.",
    "Below is an instruction that describes a task. Write a response that appropriately completes "
    "the request.",
)
"""Stanford Alpaca's text before an instruction: with an input, and without one."""


@dataclass(frozen=True)
class Style:
    """The formats of a prompt.

    `format` takes {instruction} and {input}, `no_input_format` {instruction}, `system_format` {system}.
    """

    format: str
    no_input_format: str
    system_format: str


INSTRUCT = Style(
    "### Instruction:\n{instruction}\n\n### Input:\n{input}\n\n### Response:\n",
    "### Instruction:\n{instruction}\n\n### Response:\n",
    "{system}\n\n",
)
CHAT = Style(
    "USER: {instruction}\n{input}\nASSISTANT:",
    "USER: {instruction}\nASSISTANT:",
    "SYSTEM: {system}\n",
)
CHATML = Style(
    "<|im_start|>user\n{instruction}\n{input}<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>user\n{instruction}<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>system\n{system}<|im_end|>\n",
)
PHI = Style(
    "<|user|>\n{instruction}<|end|>{input}<|assistant|>",
    "<|user|>\n{instruction}<|end|>\n<|assistant|>\n",
    "<|system|>\n{system}<|end|>\n",
)
STYLES = {"instruct": INSTRUCT, "chat": CHAT, "chatml": CHATML, "phi": PHI}
"""The styles that axolotl's types may name after a colon, as in `jeopardy:chat`."""


def style_of(name: str) -> Style:
    """Return the style of that name; raise UnknownNameError, with a suggestion, for an unknown one."""
    if name not in STYLES:
        raise UnknownNameError("style", name, STYLES)
    return STYLES[name]


def introduced(introduction: tuple[str, str], input: Column = ABSENT) -> Column:
    """Return the system prompt of each row: the first if it has an input, else the second.

    Args:
        introduction: The system prompts of rows with an input, and of rows without one.
        input: The text of the input; null or empty if there is none.
    """
    with_input, without = (pl.lit(text) for text in introduction)
    return Column(pl.when(filled(input.value)).then(with_input).otherwise(without))


def answered(
    style: Style,
    instruction: Column,
    output: Column,
    *,
    input: Column = ABSENT,
    system: Column = ABSENT,
) -> Segments:
    """Make segments of an instruction's prompt in a style, and of the output, which is trained on.

    A null or empty system prompt or input is left out, with the style's text around it.

    Args:
        style: The formats, such as `INSTRUCT`.
        instruction: The text of the instruction.
        output: The text that is trained on.
        input: The text of the input.
        system: The text of the system prompt.

    Raises:
        OptionError: If a format has a placeholder that is not allowed in it.
    """
    asked = {"instruction": instruction, "input": input}
    without_input = {"instruction": instruction}
    introduction = _formatted("system_format", style.system_format, {"system": system})
    turn = (
        pl.when(filled(input.value))
        .then(_formatted("format", style.format, asked))
        .otherwise(_formatted("no_input_format", style.no_input_format, without_input))
    )
    before = pl.when(filled(system.value)).then(introduction).otherwise(pl.lit(""))
    prompt = Column(pl.concat_str([before, turn]))
    return trained_output(prompt.depending_on(instruction, input, system), output)


def _formatted(name: str, text: str, columns: Mapping[str, Column]) -> pl.Expr:
    return formatted(name, text, columns).value


def trained_output(prompt: Column, output: Column) -> Segments:
    """Make segments of a prompt and of the output, which is trained on; BOS and EOS are added around them.

    Args:
        prompt: The text before the output.
        output: The text that is trained on.
    """
    both = pl.concat_list(_segment(prompt, is_trained=False), _segment(output, is_trained=True))
    return Segments(Column(both).depending_on(prompt, output), literal("closed"))


def document(text: Column) -> Segments:
    """Make a text into one segment, all of it trained on; texts that are too long are split."""
    return Segments(
        text.with_value(pl.concat_list(_segment(text, is_trained=True))), literal("document")
    )


def _segment(text: Column, *, is_trained: bool) -> pl.Expr:
    return pl.struct(text.value.alias("text"), pl.lit(is_trained).alias("label"))


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        return former_names.attribute(sys.modules[__name__], __name__, name)
