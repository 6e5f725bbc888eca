"""Cohere chat fine-tuning: messages of System, User and Chatbot."""

from typing import Annotated, TypeAlias

from fmtkit.columns import ABSENT, Tools
from fmtkit.dialogs import conversation
from fmtkit.kinds import DialogKind
from fmtkit.problems import Column
from fmtkit.registry import converter
from fmtkit.tables import Conversation

ROLES = {
    "System": "system",
    "User": "user",
    "Chatbot": "assistant",
    "Tool": "tool",
    "system": "system",
    "user": "user",
    "chatbot": "assistant",
    "tool": "tool",
}
Spoken: TypeAlias = Annotated[Column, DialogKind(wide=True, roles=ROLES)]


@converter(wide=True)
def chat(messages: Spoken, tools: Tools = ABSENT) -> Conversation:
    """https://docs.cohere.com/docs/chat-preparing-the-data."""
    return conversation(messages, tools)
