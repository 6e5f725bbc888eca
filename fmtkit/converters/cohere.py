"""Cohere chat fine-tuning: messages of System, User and Chatbot."""

from typing import Annotated, TypeAlias

from fmtkit.columns import ABSENT, Tools
from fmtkit.columns.conversations import conversation
from fmtkit.columns.kinds import ConversationKind
from fmtkit.columns.problems import Column
from fmtkit.core.tables import Conversation
from fmtkit.formats.registry import converter

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
Spoken: TypeAlias = Annotated[Column, ConversationKind(wide=True, roles=ROLES)]


@converter(wide=True)
def chat(messages: Spoken, tools: Tools = ABSENT) -> Conversation:
    """https://docs.cohere.com/docs/chat-preparing-the-data."""
    return conversation(messages, tools)
