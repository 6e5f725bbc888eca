"""Messages of Anthropic's API with content blocks: calls of tools, their results, reasoning."""

from collections.abc import Sequence
from typing import Any

import polars as pl

from fmtkit.columns import ABSENT, TextOrParts, Tools
from fmtkit.columns.conversations import with_system
from fmtkit.columns.sessions import (
    OTHER,
    UNKNOWN,
    ConversationBuilder,
    Event,
    Events,
    Session,
    add_question,
    add_reply,
    conversations_of,
    text_of,
)
from fmtkit.columns.strict_kinds import json_value
from fmtkit.core.tables import Conversation
from fmtkit.formats.registry import converter
from fmtkit.sources.canonical_json import canonical


@converter(wide=True)
def chat(messages: Events, system: TextOrParts = ABSENT, tools: Tools = ABSENT) -> Conversation:
    """https://docs.claude.com/en/api/messages; rows of text alone are read by type openai too."""
    strange = "messages are not those of Anthropic's API"
    conversations = conversations_of(messages, _read, "messages", strange)
    whole = conversations.with_value(conversations.value.list.first())
    defined = tools
    if tools is not ABSENT:
        renamed = tools.value.map_batches(_parameters, return_dtype=pl.String, is_elementwise=True)
        defined = tools.with_value(renamed)
    return Conversation(with_system(system, whole), None if tools is ABSENT else defined)


def _read(events: Sequence[Event | None]) -> Session:
    found = Session()
    conversation = ConversationBuilder()
    for event in events:
        role = text_of((event or {}).get("role"))
        if event is None or role not in ("user", "assistant") or "content" not in event:
            found.fault = OTHER
            return found
        if role == "assistant":
            add_reply(event, conversation, found)
        else:
            add_question(event, conversation, found)
    if UNKNOWN in found.noted:
        found.fault = found.fault or OTHER
        return found
    found.add(conversation)
    return found


def _parameters(tools: pl.Series) -> pl.Series:
    """Call the schema of a tool's arguments what templates call it."""
    made = [
        text if text is None else canonical([*map(_renamed, json_value(text))]) for text in tools
    ]
    return pl.Series(tools.name, made, dtype=pl.String)


def _renamed(tool: Any) -> Any:
    function = tool.get("function", tool)
    if "input_schema" not in function:
        return tool
    named = {"parameters" if key == "input_schema" else key: v for key, v in function.items()}
    return {**tool, "function": named} if function is not tool else named
