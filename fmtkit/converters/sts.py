"""Sessions in Hugging Face's STS format, a file each: a header with a harness, then a line a message."""

from collections.abc import Sequence

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


@converter(wide=True, rows_by="harness", whole_file=True)
def session(rows: Events) -> Conversation:
    """https://huggingface.co/docs/hub/session-traces-format.

    A header begins a session: a file may hold several. Pi's own format, in which lines name their parents,
    is another one.
    """
    return conversations(rows, _read)


def _read(events: Sequence[Event | None]) -> Session:
    found = Session()
    conversation = ConversationBuilder()
    headers = 0
    for event in events:
        message = event.get("message") if event is not None else None
        if event is None:
            continue
        if found.fault:
            return found
        if kind_of(event) == "session" and "harness" in event:
            found.add(conversation)
            conversation, headers = ConversationBuilder(), headers + 1
        elif kind_of(event) == "message" and "parentId" in event:
            found.fault = OTHER
        elif kind_of(event) == "message" and isinstance(message, dict):
            _say(message, conversation, found)
        else:
            found.noted.add(UNKNOWN)
    found.add(conversation)
    if not headers:
        found.fault = OTHER
    return found


def _say(message: Event, conversation: ConversationBuilder, found: Session) -> None:
    role, said = message.get("role"), texts(message.get("content"), found, ("text",))
    if role == "tool":
        conversation.answer(said, text_of(message.get("toolCallId")) or None)
    elif role in ("user", "system"):
        conversation.say(role, said)
    elif role == "assistant":
        conversation.think(text_of(message.get("reasoningContent")))
        conversation.say("assistant", said)
        for call in objects(message.get("toolCalls"), found):
            _call(call, conversation, found)
    else:
        note_part("", found)


def _call(call: Event, conversation: ConversationBuilder, found: Session) -> None:
    function = call.get("function")
    if not isinstance(function, dict) or not text_of(function.get("name")):
        found.noted.add(UNKNOWN)
        return
    key = text_of(call.get("id")) or None
    conversation.call(function["name"], function.get("arguments", "{}"), key)
