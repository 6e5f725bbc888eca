"""Messages as LangChain writes them: `{type, data}`, serialized objects, or a type beside the content."""

from collections.abc import Mapping, Sequence
from typing import Any

from fmtkit.columns.sessions import (
    OTHER,
    UNKNOWN,
    ConversationBuilder,
    Event,
    Events,
    Session,
    conversations,
    kind_of,
    note_part,
    objects,
    text_of,
    texts,
)
from fmtkit.core.tables import Conversation
from fmtkit.formats.registry import converter

ROLES = {
    "human": "user",
    "ai": "assistant",
    "system": "system",
    "tool": "tool",
    "function": "tool",
}
"""Types of messages, those of chunks and of the names of classes without their last word."""
SPOKEN = {
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "system": "system",
}
"""Roles of messages of the type `chat`."""


@converter(wide=True)
def chat(messages: Events) -> Conversation:
    """https://reference.langchain.com/python/langchain-core/messages/base/message_to_dict.

    Also `dumpd` of messages (`lc`, `id`, `kwargs`), and `model_dump` of them (`type` beside `content`).
    """
    return conversations(messages, _read, "messages", "messages are not LangChain's")


def _read(events: Sequence[Event | None]) -> Session:
    found = Session()
    conversation = ConversationBuilder()
    for event in events:
        kind, message = _opened(event or {})
        role = ROLES.get(kind)
        if kind == "chat":
            role = SPOKEN.get(text_of(message.get("role")))
        if role is None or "content" not in message:
            found.fault = OTHER
            return found
        if role == "tool":
            named = text_of(message.get("tool_call_id")) or text_of(message.get("name"))
            conversation.answer(texts(message.get("content"), found, ("text",)), named or None)
        else:
            _say(message, role, conversation, found)
        if found.fault:
            return found
    found.add(conversation)
    return found


def _opened(event: Event) -> tuple[str, Mapping[str, Any]]:
    """Return the type of a message, and its fields."""
    kind, fields = kind_of(event), event.get("data", event)
    if kind == "constructor" and isinstance(event.get("kwargs"), dict):
        names = event.get("id")
        last = text_of(names[-1]) if isinstance(names, list) and names else ""
        kind, fields = last.lower().removesuffix("chunk").removesuffix("message"), event["kwargs"]
    return kind.removesuffix("MessageChunk").lower(), fields if isinstance(fields, dict) else {}


def _say(
    message: Mapping[str, Any], role: str, conversation: ConversationBuilder, found: Session
) -> None:
    called, said = set(), []
    for part in objects(message.get("content"), found):
        kind = kind_of(part)
        if kind in ("text", ""):
            said.append(text_of(part.get("text")))
        elif kind in ("thinking", "reasoning"):
            conversation.think(text_of(part.get(kind)))
        elif kind == "tool_use" and text_of(part.get("name")):
            called.add(text_of(part.get("id")))
            conversation.call(
                part["name"], part.get("input") or {}, text_of(part.get("id")) or None
            )
        else:
            note_part(kind, found)
    conversation.say(role, "".join(said))
    beside = message.get("additional_kwargs")
    more = beside if isinstance(beside, dict) else {}
    if role == "assistant":
        conversation.think(text_of(more.get("reasoning_content")))
        _call(message, more, called, conversation, found)


def _call(
    message: Mapping[str, Any],
    more: Mapping[str, Any],
    called: set[str],
    conversation: ConversationBuilder,
    found: Session,
) -> None:
    """Add the calls of a reply: LangChain's own, or those that the model's provider wrote."""
    own = objects(message.get("tool_calls"))
    for call in own:
        name, key = text_of(call.get("name")), text_of(call.get("id"))
        if name and key not in called:
            conversation.call(name, call.get("args") or {}, key or None)
    for call in [] if own or called else objects(more.get("tool_calls")):
        function = call.get("function")
        if isinstance(function, dict) and text_of(function.get("name")):
            conversation.call(
                function["name"], function.get("arguments") or {}, text_of(call.get("id")) or None
            )
        else:
            found.noted.add(UNKNOWN)
    if isinstance(function := more.get("function_call"), dict) and not own:
        name = text_of(function.get("name"))
        conversation.call(name, function.get("arguments") or {}, name or None)
