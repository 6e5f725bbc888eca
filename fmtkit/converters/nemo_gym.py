"""NeMo Gym: the input and the tools of a request, and what its verifier needs."""

from typing import Annotated, TypeAlias

from fmtkit.columns import ABSENT, Tools
from fmtkit.dialogs import asks
from fmtkit.message_kinds import ROLES, DialogKind
from fmtkit.problems import Column
from fmtkit.registry import converter
from fmtkit.tables import Prompt

Input: TypeAlias = Annotated[
    Column,
    DialogKind(
        accepts=frozenset({"text", "messages"}),
        speaker="user",
        roles=ROLES | {"developer": "system"},
    ),
]


@converter(
    keeps=True,
    paths={"input": "responses_create_params.input", "tools": "responses_create_params.tools"},
)
def request(input: Input, tools: Tools = ABSENT) -> Prompt:
    """https://github.com/NVIDIA-NeMo/Gym."""
    return Prompt(asks(input, "responses_create_params.input"), tools)
