"""Conversations as lists of exchanges: {human, assistant} or {input, output}, one item each."""

from typing import Annotated, TypeAlias

import polars as pl

from fmtkit.columns import ABSENT, Text, first_given, records
from fmtkit.columns.dialogs import conversation as make_conversation
from fmtkit.columns.dialogs import with_system
from fmtkit.columns.kinds import TextKind
from fmtkit.columns.problems import Column
from fmtkit.columns.turns import of_exchanges
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


def _of(names: tuple[str, ...]) -> pl.Expr:
    return pl.coalesce(pl.element().struct.field(name) for name in names)
