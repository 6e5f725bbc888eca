"""SWE-agent's trajectories: steps in which the system prompt has a key of its own, apart from the text."""

from typing import Annotated, TypeAlias

import polars as pl

from fmtkit.columns import ABSENT, Text, records
from fmtkit.columns.conversations import conversation, with_system
from fmtkit.columns.kinds import TextKind
from fmtkit.columns.problems import Column
from fmtkit.columns.record_turns import speaker, turn, turns
from fmtkit.core.tables import Conversation
from fmtkit.formats.registry import converter

ROLES = {"system": "system", "user": "user", "ai": "assistant", "assistant": "assistant"}
KEYS = ("role", "text", "system_prompt")
Steps: TypeAlias = Annotated[
    Column, records(dict.fromkeys(KEYS, TextKind()), ("text", "system_prompt"))
]


@converter(wide=True)
def chat(trajectory: Steps, system: Text = ABSENT) -> Conversation:
    """https://huggingface.co/datasets/nebius/SWE-agent-trajectories."""
    role, text, system_prompt = (pl.element().struct.field(name) for name in KEYS)
    said = turn(speaker(role, ROLES), pl.coalesce(text, system_prompt))
    return conversation(with_system(system, turns(trajectory, said, "trajectory")))
