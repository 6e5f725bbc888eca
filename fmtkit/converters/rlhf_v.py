"""RLHF-V: a question about an image and two answers, in one object that the file holds as JSON text."""

from typing import Annotated, TypeAlias

from fmtkit.columns.conversations import pair
from fmtkit.columns.kinds import RecordKind, TextKind
from fmtkit.columns.problems import Column
from fmtkit.core.tables import Preference
from fmtkit.formats.registry import converter

NAMES = ("question", "chosen", "rejected")
Pair: TypeAlias = Annotated[Column, RecordKind(dict.fromkeys(NAMES, TextKind()))]


@converter()
def preference(text: Pair) -> Preference:
    """https://huggingface.co/datasets/openbmb/RLHF-V-Dataset."""
    question, chosen, rejected = (text.with_value(text.value.struct.field(n)) for n in NAMES)
    return pair(question, chosen, rejected)
