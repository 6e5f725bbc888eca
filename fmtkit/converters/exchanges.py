"""Conversations as lists of exchanges: {human, assistant} or {input, output}, one item each."""

from typing import Annotated, TypeAlias

import polars as pl

from fmtkit.columns import ABSENT, Text, Texts, first_given, one_given, records
from fmtkit.columns.conversations import conversation as make_conversation
from fmtkit.columns.conversations import with_system
from fmtkit.columns.kinds import TextKind
from fmtkit.columns.problems import Column, Problem
from fmtkit.columns.record_turns import by_turns, of_exchanges
from fmtkit.core.tables import Conversation
from fmtkit.formats.registry import converter

ASKED = ("human", "input", "user", "question", "prompt", "query", "instruction")
SAID = ("assistant", "output", "bot", "answer", "response", "gpt")
_NAMES = (*ASKED, *SAID)
Exchanges: TypeAlias = Annotated[Column, records(dict.fromkeys(_NAMES, TextKind()), _NAMES)]


@converter(any_of=[("conversation", "conversations")])
def chat(
    conversation: Exchanges = ABSENT, conversations: Exchanges = ABSENT, system: Text = ABSENT
) -> Conversation:
    """https://huggingface.co/datasets/LDJnr/Capybara; ms-swift's `conversation`."""
    held = first_given(conversation=conversation, conversations=conversations)
    turns = of_exchanges(held, _of(ASKED), _of(SAID), "conversation")
    return make_conversation(with_system(system, turns))


@converter(
    any_of=[
        ("input", "inputs", "questions", "prompts"),
        ("output", "outputs", "answers", "responses"),
    ]
)
def lists(
    input: Texts = ABSENT,
    inputs: Texts = ABSENT,
    questions: Texts = ABSENT,
    prompts: Texts = ABSENT,
    output: Texts = ABSENT,
    outputs: Texts = ABSENT,
    answers: Texts = ABSENT,
    responses: Texts = ABSENT,
    system: Text = ABSENT,
) -> Conversation:
    """https://huggingface.co/datasets/stanfordnlp/coqa; what was asked and what was said, in a list each."""
    asked = one_given(input=input, inputs=inputs, questions=questions, prompts=prompts)
    said = one_given(output=output, outputs=outputs, answers=answers, responses=responses)
    turns = by_turns(asked, said, "input")
    nothing = Problem("empty_field", "input", turns.value.list.len() == 0, "there are no turns")
    return make_conversation(with_system(system, turns.with_value(turns.value, nothing)))


def _of(names: tuple[str, ...]) -> pl.Expr:
    return pl.coalesce(pl.element().struct.field(name) for name in names)
