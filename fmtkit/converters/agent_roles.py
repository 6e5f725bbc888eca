"""Messages of an agent in which reasoning, calls, results and answers are turns of roles of their own."""

import re
from collections.abc import Sequence

from fmtkit.columns import ABSENT, Tools
from fmtkit.columns.expansion import several
from fmtkit.columns.sessions import (
    OTHER,
    ConversationBuilder,
    Event,
    Events,
    Session,
    conversations_of,
    text_of,
)
from fmtkit.columns.strict_kinds import json_value
from fmtkit.core.tables import Conversation
from fmtkit.formats.registry import converter

THOUGHT = frozenset({"reasoning", "thinking", "thought", "think", "analysis"})
CALLED = frozenset({"tool_call", "tool_calls", "function_call", "call", "action"})
RETURNED = frozenset(
    {
        "tool",
        "tool_output",
        "tool_response",
        "tool_result",
        "function_response",
        "observation",
        "function",
    }
)
ANSWERED = frozenset({"answer", "final_answer", "final", "response"})
SPOKEN = {"user": "user", "human": "user", "system": "system", "assistant": "assistant"}
OWN = THOUGHT | ANSWERED | (CALLED & {"action", "call", "tool_calls"})
"""Roles that no other format has: a conversation without any is one of those."""
_TAGS = "|".join(sorted(THOUGHT | CALLED | RETURNED | ANSWERED))
_TAGGED = re.compile(rf"\A\s*<({_TAGS})>((?:(?!</\1>).)*)</\1>\s*\Z", re.DOTALL)


@converter(wide=True)
def chat(messages: Events, tools: Tools = ABSENT) -> Conversation:
    """https://huggingface.co/datasets/AmanPriyanshu/tool-reasoning-sft-TOOLS-ToolMind-data-cleaned-rectified.

    What a turn has between tags alone (`<think>`, `<tool_call>`, `<answer>`) is what it says.
    """
    strange = "messages have no roles of reasoning and answers, or a call in them is no JSON"
    return Conversation(several(conversations_of(messages, _read, "messages", strange)), tools)


def _read(events: Sequence[Event | None]) -> Session:
    found, conversation = Session(), ConversationBuilder()
    roles = {text_of(event.get("role")) for event in events if event is not None}
    if not roles & OWN or not all(_add(event or {}, conversation) for event in events):
        found.fault = OTHER
        return found
    found.add(conversation)
    return found


def _add(event: Event, conversation: ConversationBuilder) -> bool:
    """Add a turn; return whether it is one."""
    role, content = text_of(event.get("role")), event.get("content")
    if not isinstance(content, str):
        return False
    if role in SPOKEN:
        conversation.say(SPOKEN[role], content)
        return True
    tagged = _TAGGED.match(content)
    said = tagged[2].strip() if tagged else content
    if role in THOUGHT:
        conversation.think(said)
    elif role in ANSWERED:
        conversation.say("assistant", said)
    elif role in RETURNED:
        conversation.answer(said, None)
    else:
        return role in CALLED and _call(json_value(said), conversation)
    return True


def _call(value: object, conversation: ConversationBuilder) -> bool:
    """Add a call, or each of several; return whether all of them name a tool."""
    for call in value if isinstance(value, list) else [value]:
        if not isinstance(call, dict) or not text_of(call.get("name")):
            return False
        conversation.call(call["name"], call.get("arguments", call.get("parameters", {})), None)
    return True
