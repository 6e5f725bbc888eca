"""ms-swift's agent format: messages in which a call and its result are turns of roles of their own."""

from typing import Annotated, TypeAlias

from fmtkit.columns import ABSENT, Text, Tools
from fmtkit.columns.conversations import conversation, with_system
from fmtkit.columns.kinds import ConversationKind
from fmtkit.columns.problems import Column
from fmtkit.core.message_keys import ROLES
from fmtkit.core.tables import Conversation
from fmtkit.formats.registry import converter

Messages: TypeAlias = Annotated[
    Column,
    ConversationKind(
        wide=True,
        function_calls=True,
        call_role="tool_call",
        roles={**ROLES, "tool_response": "tool"},
    ),
]


@converter(wide=True)
def chat(messages: Messages, tools: Tools = ABSENT, system: Text = ABSENT) -> Conversation:
    """https://swift.readthedocs.io/en/latest/Instruction/Agent-support.html.

    A turn of `tool_call` is the JSON of a call, or of several, and one of `tool_response` its result.
    """
    return conversation(with_system(system, messages), tools)
