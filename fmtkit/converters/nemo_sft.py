"""NeMo SFT: a system prompt, turns of {from, value, label}, and the speaker whose turns are masked."""

from typing import Annotated, TypeAlias

import polars as pl
from polars import Expr

from fmtkit.columns import ABSENT, Text, filled, records
from fmtkit.columns.conversations import conversation, with_system
from fmtkit.columns.kinds import TextKind
from fmtkit.columns.problems import Column, Problem
from fmtkit.columns.record_turns import speaker, turn, turns
from fmtkit.core.tables import Conversation
from fmtkit.formats.registry import converter

ROLES = {"User": "user", "Assistant": "assistant", "System": "system", "Human": "user"}
Spoken: TypeAlias = Annotated[
    Column,
    records(
        {"from": TextKind(), "value": TextKind(), "label": TextKind()},
        optional=("value", "label"),
    ),
]


@converter(wide=True)
def chat(conversations: Spoken, mask: Text, system: Text = ABSENT) -> Conversation:
    """https://docs.nvidia.com/nemo-framework/user-guide/24.07/modelalignment/steerlm.html.

    Turns of the masked speaker are not trained on. What `label` says of a turn is not read, and
    rows that have one are counted as `unread_turns`.
    """
    field = pl.element().struct.field
    said = pl.coalesce(field("value"), pl.lit(""))
    spoken = turns(conversations, turn(speaker(field("from"), ROLES), said), "conversations")
    masked = Column(speaker(mask.value, ROLES)).depending_on(mask).once("__masked")
    unknown = Problem(
        "value_error", "mask", masked.value.is_null(), f"mask is none of {', '.join(ROLES)}"
    )
    marked = (
        spoken.depending_on(masked).with_value(_marked(spoken.value, masked.value)).once("__marked")
    )
    labelled = conversations.value.list.eval(filled(field("label"))).list.any()
    trained = marked.with_value(marked.value, unknown).warn_unread(
        "conversations[].label", labelled
    )
    return conversation(with_system(system, trained))


def _marked(spoken: Expr, masked: Expr) -> Expr:
    """Return for each turn whether it is trained on: all but those of the masked speaker."""
    turn_of = pl.element().struct
    cases = {
        role: spoken.list.eval(turn_of.with_fields(train=turn_of.field("role") != role))
        for role in sorted(set(ROLES.values()))
    }
    return pl.coalesce(pl.when(masked == role).then(made) for role, made in cases.items())
