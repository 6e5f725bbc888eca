"""The Cauldron: what a user asked about the images of a row, and what was answered, one item each."""

from typing import Annotated, TypeAlias

import polars as pl

from fmtkit.columns import ABSENT, Text, records
from fmtkit.columns.conversations import conversation, with_system
from fmtkit.columns.kinds import TextKind
from fmtkit.columns.problems import Column
from fmtkit.columns.record_turns import of_exchanges
from fmtkit.core.tables import Conversation
from fmtkit.formats.registry import converter

Texts: TypeAlias = Annotated[Column, records({"user": TextKind(), "assistant": TextKind()})]


@converter()
def chat(texts: Texts, system: Text = ABSENT) -> Conversation:
    """https://huggingface.co/datasets/HuggingFaceM4/the_cauldron; also FineVision's rows."""
    asked, said = (pl.element().struct.field(name) for name in ("user", "assistant"))
    return conversation(with_system(system, of_exchanges(texts, asked, said, "texts")))
