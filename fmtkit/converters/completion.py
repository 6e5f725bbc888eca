"""A prompt and its completion, each of them text or messages; or a text that is trained on as a whole."""

from typing import Annotated, TypeAlias

import polars as pl

from fmtkit.columns import ABSENT, Flag, Messages, Reply, Text, Turns, WideMessages, filled
from fmtkit.columns.conversations import completion as completed
from fmtkit.columns.conversations import must_end_with_prompt, reply_of, with_system
from fmtkit.columns.instructions import document
from fmtkit.columns.kinds import ConversationKind
from fmtkit.columns.problems import Column
from fmtkit.columns.record_turns import turn
from fmtkit.core.tables import Completion, Segments, Unpaired
from fmtkit.formats.registry import converter

OneReply: TypeAlias = Annotated[Column, ConversationKind(accepts=frozenset({"text", "message"}))]


@converter()
def reply(prompt: Turns, completion: Reply, system: Text = ABSENT) -> Completion:
    """https://huggingface.co/docs/trl/dataset_formats#prompt-completion."""
    return completed(with_system(system, prompt), completion)


@converter(wide=True)
def reasoned(
    prompt: WideMessages, completion: Text, reasoning: Text, system: Text = ABSENT
) -> Completion:
    """https://huggingface.co/datasets/QuixiAI/dolphin-r1; what was thought is in a column of its own."""
    asked = must_end_with_prompt(with_system(system, prompt), "prompt")
    thinks = pl.when(filled(reasoning.value)).then(reasoning.value)
    said = turn(pl.lit("assistant"), completion.value, reasoning_content=thinks)
    reply = completion.with_value(pl.concat_list([said])).depending_on(reasoning)
    return Completion(asked, reply)


@converter()
def unpaired(
    prompt: Messages, completion: OneReply, label: Flag, system: Text = ABSENT
) -> Unpaired:
    """https://github.com/hpcaitech/ColossalAI, the KTO data of ColossalChat: a message, or text."""
    asked = must_end_with_prompt(with_system(system, prompt), "prompt")
    return Unpaired(asked, reply_of(completion, "completion"), label)


@converter(text=True)
def raw(text: Text) -> Segments:
    """https://docs.axolotl.ai/docs/dataset-formats/pretraining.html; too long a text becomes several rows."""
    return document(text)
