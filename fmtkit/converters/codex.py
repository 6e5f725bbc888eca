"""Sessions of Codex CLI, a file each: what the model read and wrote, among events that only show it."""

from collections.abc import Sequence
from itertools import takewhile

from fmtkit.columns.sessions import (
    HIDDEN,
    OTHER,
    UNKNOWN,
    Dialog,
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
    dialog = Dialog()
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
            _add(payload, dialog, found)
        elif kind == "session_meta":
            is_rollout = True
            _introduce(payload, dialog)
        elif kind == "compacted":
            found.add(dialog)
            dialog = _compacted(payload, dialog, found)
        elif kind == "event_msg" and kind_of(payload) == "thread_rolled_back":
            found.add(dialog)
            _roll_back(payload, dialog, found)
        elif kind not in HARMLESS:
            found.noted.add(UNKNOWN)
    found.add(dialog)
    if not is_rollout:
        found.fault = OTHER
    return found


def _introduce(meta: Event, dialog: Dialog) -> None:
    """Begin with the model's instructions; a later header is that of the session this one was forked from."""
    base = meta.get("base_instructions")
    if not dialog.turns and isinstance(base, dict):
        dialog.say("system", text_of(base.get("text")))


def _add(item: Event, dialog: Dialog, found: Session) -> None:
    kind = kind_of(item)
    key = text_of(item.get("call_id")) or text_of(item.get("id")) or None
    role = SPEAKERS.get(text_of(item.get("role")))
    if kind == "message" and role:
        dialog.say(role, texts(item.get("content"), found, TEXT))
    elif kind == "reasoning":
        _think(item, dialog, found)
    elif kind == "function_call":
        dialog.call(text_of(item.get("name")), text_of(item.get("arguments")), key)
    elif kind == "custom_tool_call":
        dialog.call(text_of(item.get("name")), {"input": text_of(item.get("input"))}, key)
    elif kind == "local_shell_call":
        dialog.call("local_shell", item.get("action") or {}, key)
    elif kind in ("function_call_output", "custom_tool_call_output"):
        output = item.get("output")
        said = output.get("content") if isinstance(output, dict) else output
        dialog.answer(texts(said, found, TEXT), key)
    elif kind not in SILENT:
        found.noted.add(UNKNOWN)


def _think(item: Event, dialog: Dialog, found: Session) -> None:
    """Add the reasoning where it is text, else its summary; encrypted reasoning cannot be read."""
    told = texts(item.get("content"), found, ("reasoning_text", "text"))
    dialog.think(told or texts(item.get("summary"), found, ("summary_text",)))
    if item.get("encrypted_content"):
        found.noted.add(HIDDEN)


def _compacted(payload: Event, dialog: Dialog, found: Session) -> Dialog:
    """Return the conversation that goes on: with the history that replaces the former, or its summary."""
    made = Dialog()
    history = objects(payload.get("replacement_history"))
    if history:
        for item in history:
            _add(item, made, found)
    else:
        made.turns += [turn for turn in dialog.turns[:1] if turn.role == "system"]
        made.say("user", text_of(payload.get("message")))
    made.cut(len(made.turns))
    return made


def _roll_back(payload: Event, dialog: Dialog, found: Session) -> None:
    """Keep the conversation before its last turns of the user, and what Codex said as the user there."""
    count, first, place = payload.get("num_turns"), None, len(dialog.turns)
    left = count if isinstance(count, int) else 0
    while place and left > 0:
        place -= 1
        turn = dialog.turns[place]
        if turn.role == "user" and not all(map(_is_injected, turn.content)):
            first, left = place, left - 1
    if first is None:
        found.size += len(dialog.turns)
        found.noted.add(UNKNOWN)
        dialog.cut(len(dialog.turns))
        return
    kept = [*takewhile(_is_injected, dialog.turns[first].content)]
    dialog.cut(first)
    for text in kept:
        dialog.say("user", text)
    dialog.cut(len(dialog.turns))


def _is_injected(text: str) -> bool:
    return text.startswith(INJECTED)
