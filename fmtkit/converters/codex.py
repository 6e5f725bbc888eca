"""Sessions of Codex CLI, a file each: what the model read and wrote, among events that only show it."""

from collections.abc import Sequence
from itertools import takewhile

from fmtkit.columns.sessions import (
    HIDDEN,
    OTHER,
    UNKNOWN,
    ConversationBuilder,
    Event,
    Events,
    Session,
    conversations,
    kind_of,
    objects,
    text_of,
    texts,
)
from fmtkit.core.tables import Conversation
from fmtkit.formats.registry import converter

HARMLESS = frozenset({"event_msg", "turn_context", "world_state"})
"""Lines that show or configure what the items say: none is part of the conversation."""
SILENT = frozenset({"ghost_snapshot"})
"""Items that are not sent to the model."""
SPEAKERS = {"user": "user", "assistant": "assistant", "developer": "system", "system": "system"}
TEXT = ("input_text", "output_text", "text")
INJECTED = ("<", "# AGENTS.md")
"""How the texts begin that Codex itself says as the user."""


@converter(wide=True, rows_by="payload", whole_file=True)
def rollout(rows: Events) -> Conversation:
    """https://github.com/openai/codex/blob/main/codex-rs/protocol/src/protocol.rs.

    Only `response_item` lines are turns; the model's instructions and developer messages are the system's.
    Where turns were rolled back or the history was compacted, what was said until then is a row of its own.
    """
    return conversations(rows, _read)


def _read(events: Sequence[Event | None]) -> Session:
    found = Session()
    conversation = ConversationBuilder()
    is_rollout = False
    for event in events:
        if found.fault:
            return found
        payload = event.get("payload") if event is not None else None
        if event is None or not isinstance(payload, dict):
            found.noted |= set() if event is None else {UNKNOWN}
            continue
        kind = kind_of(event)
        if kind == "response_item":
            is_rollout = True
            _add(payload, conversation, found)
        elif kind == "session_meta":
            is_rollout = True
            _introduce(payload, conversation)
        elif kind == "compacted":
            found.add(conversation)
            conversation = _compacted(payload, conversation, found)
        elif kind == "event_msg" and kind_of(payload) == "thread_rolled_back":
            found.add(conversation)
            _roll_back(payload, conversation, found)
        elif kind not in HARMLESS:
            found.noted.add(UNKNOWN)
    found.add(conversation)
    if not is_rollout:
        found.fault = OTHER
    return found


def _introduce(meta: Event, conversation: ConversationBuilder) -> None:
    """Begin with the model's instructions; a later header is that of the session this one was forked from."""
    base = meta.get("base_instructions")
    if not conversation.turns and isinstance(base, dict):
        conversation.say("system", text_of(base.get("text")))


def _add(item: Event, conversation: ConversationBuilder, found: Session) -> None:
    kind = kind_of(item)
    key = text_of(item.get("call_id")) or text_of(item.get("id")) or None
    role = SPEAKERS.get(text_of(item.get("role")))
    if kind == "message" and role:
        conversation.say(role, texts(item.get("content"), found, TEXT))
    elif kind == "reasoning":
        _think(item, conversation, found)
    elif kind == "function_call":
        conversation.call(text_of(item.get("name")), text_of(item.get("arguments")), key)
    elif kind == "custom_tool_call":
        conversation.call(text_of(item.get("name")), {"input": text_of(item.get("input"))}, key)
    elif kind == "local_shell_call":
        conversation.call("local_shell", item.get("action") or {}, key)
    elif kind in ("function_call_output", "custom_tool_call_output"):
        output = item.get("output")
        said = output.get("content") if isinstance(output, dict) else output
        conversation.answer(texts(said, found, TEXT), key)
    elif kind not in SILENT:
        found.noted.add(UNKNOWN)


def _think(item: Event, conversation: ConversationBuilder, found: Session) -> None:
    """Add the reasoning where it is text, else its summary; encrypted reasoning cannot be read."""
    told = texts(item.get("content"), found, ("reasoning_text", "text"))
    conversation.think(told or texts(item.get("summary"), found, ("summary_text",)))
    if item.get("encrypted_content"):
        found.noted.add(HIDDEN)


def _compacted(
    payload: Event, conversation: ConversationBuilder, found: Session
) -> ConversationBuilder:
    """Return the conversation that goes on: with the history that replaces the former, or its summary."""
    made = ConversationBuilder()
    history = objects(payload.get("replacement_history"))
    if history:
        for item in history:
            _add(item, made, found)
    else:
        made.turns += [turn for turn in conversation.turns[:1] if turn.role == "system"]
        made.say("user", text_of(payload.get("message")))
    made.cut(len(made.turns))
    return made


def _roll_back(payload: Event, conversation: ConversationBuilder, found: Session) -> None:
    """Keep the conversation before its last turns of the user, and what Codex said as the user there."""
    count, first, place = payload.get("num_turns"), None, len(conversation.turns)
    left = count if isinstance(count, int) else 0
    while place and left > 0:
        place -= 1
        turn = conversation.turns[place]
        if turn.role == "user" and not all(map(_is_injected, turn.content)):
            first, left = place, left - 1
    if first is None:
        found.size += len(conversation.turns)
        found.noted.add(UNKNOWN)
        conversation.cut(len(conversation.turns))
        return
    kept = [*takewhile(_is_injected, conversation.turns[first].content)]
    conversation.cut(first)
    for text in kept:
        conversation.say("user", text)
    conversation.cut(len(conversation.turns))


def _is_injected(text: str) -> bool:
    return text.startswith(INJECTED)
