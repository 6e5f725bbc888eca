"""NeMo Gym: the input and the tools of a request, the row as its servers expect it, and their names."""

from typing import Annotated, TypeAlias

import polars as pl

from fmtkit.columns import ABSENT, Tools, WholeRow
from fmtkit.columns.conversations import must_end_with_prompt
from fmtkit.columns.kinds import ConversationKind, RecordKind, TextKind
from fmtkit.columns.problems import Column, literal
from fmtkit.core.message_keys import ROLES
from fmtkit.core.tables import Prompt
from fmtkit.formats.registry import converter

AGENTS = "responses_api_agents"
Input: TypeAlias = Annotated[
    Column,
    ConversationKind(
        accepts=frozenset({"text", "messages"}),
        speaker="user",
        roles=ROLES | {"developer": "system"},
    ),
]
_REFERENCE = {"type": TextKind(), "name": TextKind()}
Reference: TypeAlias = Annotated[Column, RecordKind(_REFERENCE, frozenset(_REFERENCE))]


@converter(
    keeps=True,
    paths={"input": "responses_create_params.input", "tools": "responses_create_params.tools"},
)
def request(
    input: Input,
    row: WholeRow,
    tools: Tools = ABSENT,
    agent_ref: Reference = ABSENT,
    *,
    server_name: str = "",
) -> Prompt:
    """https://github.com/NVIDIA-NeMo/Gym."""
    return Prompt(
        must_end_with_prompt(input, "responses_create_params.input"),
        tools,
        nemo_gym_row=row,
        nemo_gym_server=_named(agent_ref, literal(server_name or None), is_agent=False),
        nemo_gym_agent=_named(agent_ref, literal(None), is_agent=True),
    )


def _named(reference: Column, otherwise: Column, *, is_agent: bool) -> Column:
    """Take the name from a reference to an agent, or to any other server."""
    kind, name = (reference.value.struct.field(field) for field in _REFERENCE)
    wanted = kind.eq_missing(pl.lit(AGENTS)) == is_agent
    return reference.with_value(
        pl.coalesce(pl.when(wanted).then(name), otherwise.value.cast(pl.String))
    )
