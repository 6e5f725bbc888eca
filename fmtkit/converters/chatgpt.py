"""ChatGPT's data export: `conversations.json`, a tree of messages for each conversation."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from fmtkit.columns import ABSENT, Open, Text
from fmtkit.columns.sessions import (
    BRANCHED,
    BROKEN,
    HARNESS,
    MEDIA,
    OTHER,
    UNANSWERED,
    UNKNOWN,
    ConversationBuilder,
    Event,
    Session,
    conversations,
    text_of,
)
from fmtkit.columns.strict_kinds import json_value
from fmtkit.core.errors import UnknownNameError
from fmtkit.core.tables import Conversation
from fmtkit.formats.registry import converter

BRANCHES = ("shown", "all")
HARMLESS = (
    *("title", "is_archived", "is_starred", "default_model_slug", "gizmo_type", "async_status"),
    *("memory_scope", "context_scopes", "moderation_results", "disabled_tool_ids", "safe_urls"),
    *("plugin_ids", "voice", "sugar_item_id", "sugar_item_visible", "is_do_not_remember"),
)
"""What a conversation has beside its messages."""
EDITABLE = ("user_editable_context", "model_editable_context")
"""Types of contents that ChatGPT adds by itself: what the user told of themselves, what it remembers."""
SAID = ("text", "multimodal_text", "code", "execution_output", "tether_quote", "sonic_webpage")
SILENT = ("reasoning_recap", "system_error", "tether_browsing_display", "tether_browsing_code")


@converter(wide=True, harmless=HARMLESS)
def export(mapping: Open, current_node: Text = ABSENT, *, branches: str = "shown") -> Conversation:
    """https://help.openai.com/en/articles/7260999-how-do-i-export-my-chatgpt-history-and-data.

    The schema is not documented by OpenAI; https://github.com/mitkury/chatgpt-export-parser describes it.
    The branch that ended in `current_node` is the row; with `branches=all` each path to a last reply is one.
    What ChatGPT adds by itself (custom instructions, memories, hidden turns) is left out and counted.
    """
    if branches not in BRANCHES:
        raise UnknownNameError("branches", branches, BRANCHES)
    # Both are JSON texts of one session; ids need no escapes.
    last = current_node.value.str.replace_all(r'["\\[:cntrl:]]', "")
    named = pl.concat_str(pl.lit('{"current_node":"'), last, pl.lit('"}'))
    events = mapping.with_value(pl.concat_list(mapping.value, named.fill_null("{}")))
    return conversations(
        events.depending_on(current_node),
        lambda given: _read(given, every=branches == "all"),
        "mapping",
        "mapping holds no messages of ChatGPT",
    )


def _read(events: Sequence[Event | None], *, every: bool) -> Session:
    found = Session()
    given, last = events
    nodes = {name: node for name, node in (given or {}).items() if isinstance(node, dict)}
    if not any("message" in node for node in nodes.values()):
        found.fault = OTHER
        return found
    above = _parents(nodes, found)
    if every:
        ends = _last_replies(nodes, above)
    else:
        ends = [_shown(nodes, above, text_of((last or {}).get("current_node")))]
    used: set[str] = set()
    for end in ends:
        path = [*reversed([*_up(above, end)])]
        used.update(path)
        found.add(_conversation([nodes[name] for name in path], found), len(path))
        if found.fault:
            return found
    if any(name not in used and _role(nodes[name]) for name in nodes):
        found.noted.add(UNANSWERED if every else BRANCHED)
    return found


def _parents(nodes: Mapping[str, Event], found: Session) -> dict[str, str | None]:
    """Return the node above each one: of those in a circle, the first has none."""
    above: dict[str, str | None] = {}
    for name, node in nodes.items():
        parent = node.get("parent")
        is_there = isinstance(parent, str) and parent in nodes
        if parent is not None and not is_there:
            found.noted.add(BROKEN)
        above[name] = parent if is_there else None
    whole: set[str] = set()
    for name in nodes:
        way: dict[str, None] = {}
        at: str | None = name
        while at is not None and at not in whole and at not in way:
            way[at] = None
            at = above[at]
        if at is not None and at in way:
            above[at] = None
            found.noted.add(BROKEN)
        whole.update(way)
    return above


def _up(above: Mapping[str, str | None], name: str | None) -> Iterator[str]:
    while name is not None:
        yield name
        name = above[name]


def _last_replies(nodes: Mapping[str, Event], above: Mapping[str, str | None]) -> list[str]:
    """Return the nodes of replies after which none follows."""
    replies = [name for name in nodes if _role(nodes[name]) == "assistant"]
    inner: set[str] = set()
    for name in replies:
        for up in _up(above, above[name]):
            if up in inner:
                break
            inner.add(up)
    return [name for name in replies if name not in inner]


def _shown(nodes: Mapping[str, Event], above: Mapping[str, str | None], last: str) -> str:
    """Return the node in which the shown branch ends: the named one, or else the last of the last replies."""
    if last in nodes:
        return last
    return [*nodes, *_last_replies(nodes, above)][-1]


def _role(node: Event) -> str:
    """Return who speaks in a node; empty for one without a message, and where nothing is said."""
    message = node.get("message")
    author = message.get("author") if isinstance(message, dict) else None
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(author, dict) or not isinstance(content, dict) or not _said(content):
        return ""
    return text_of(author.get("role"))


def _conversation(path: Sequence[Event], found: Session) -> ConversationBuilder:
    conversation = ConversationBuilder()
    for node in path:
        message = node.get("message")
        if isinstance(message, dict):
            _add(message, conversation, found)
    return conversation


def _add(message: Event, conversation: ConversationBuilder, found: Session) -> None:
    author, content = (message.get(key) or {} for key in ("author", "content"))
    if not isinstance(author, dict) or not isinstance(content, dict):
        found.noted.add(UNKNOWN)
        return
    role, kind, said = (
        text_of(author.get("role")),
        text_of(content.get("content_type")),
        _said(content),
    )
    metadata = message.get("metadata")
    hidden = isinstance(metadata, dict) and metadata.get("is_visually_hidden_from_conversation")
    if kind in EDITABLE or hidden or message.get("weight") == 0:
        found.noted |= {HARNESS} if said or kind in EDITABLE else set()
        return
    if any(isinstance(part, dict) and not _heard(part) for part in _parts(content)):
        found.fault = MEDIA
    elif kind == "thoughts":
        conversation.think("\n\n".join(_thoughts(content)))
    elif kind not in SAID:
        found.noted |= set() if kind in SILENT else {UNKNOWN}
    elif role == "tool":
        conversation.answer(said, None)
    elif role == "assistant" and text_of(message.get("recipient")) not in ("", "all"):
        conversation.call(message["recipient"], _arguments(said), None)
    elif role in ("system", "user", "assistant"):
        conversation.say(role, said)
    else:
        found.noted.add(UNKNOWN)


def _parts(content: Event) -> list[Any]:
    parts = content.get("parts")
    return parts if isinstance(parts, list) else []


def _heard(part: Event) -> bool:
    """Return whether a part is what ChatGPT heard, as text."""
    return part.get("content_type") == "audio_transcription"


def _said(content: Event) -> str:
    """Return the text of a content; of a spoken one what was heard."""
    parts = [
        text_of(part.get("text")) if isinstance(part, dict) else text_of(part)
        for part in _parts(content)
    ]
    texts = [*parts, text_of(content.get("text")), text_of(content.get("result"))]
    return "\n".join(filter(None, [*texts, *_thoughts(content)]))


def _thoughts(content: Event) -> list[str]:
    thoughts = content.get("thoughts")
    listed = thoughts if isinstance(thoughts, list) else []
    return [text_of(one.get("content")) for one in listed if isinstance(one, dict)]


def _arguments(said: str) -> Any:
    """Return the arguments of a call: an object as it is written, of any other text an `input`."""
    value = json_value(said) if said.lstrip().startswith("{") else None
    return value if isinstance(value, dict) else {"input": said}
