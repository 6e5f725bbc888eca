"""Claude's data export: `conversations.json`, a list of messages for each conversation."""

from collections.abc import Sequence

from fmtkit.columns.sessions import (
    BRANCHED,
    BROKEN,
    MEDIA,
    OTHER,
    UNKNOWN,
    ConversationBuilder,
    Event,
    Events,
    Session,
    conversations,
    kind_of,
    objects,
    reply_block,
    text_of,
    texts,
)
from fmtkit.core.tables import Conversation
from fmtkit.formats.registry import converter

ROLES = {"human": "user", "user": "user", "assistant": "assistant", "system": "system"}
SILENT = ("token_budget", "flag", "knowledge", "tool_reference")
"""Parts that nobody says."""


@converter(wide=True, harmless=("name", "summary", "account"))
def export(chat_messages: Events) -> Conversation:
    """https://support.claude.com/en/articles/9450526-how-can-i-export-my-claude-data.

    The schema is not documented by Anthropic; https://github.com/Sinity/polylogue describes it. Texts of
    attachments stand before what the user says. Where messages name their parents, the row is the branch
    that the last message ends.
    """
    return conversations(
        chat_messages, _read, "chat_messages", "no item of chat_messages has a sender"
    )


def _read(events: Sequence[Event | None]) -> Session:
    found = Session()
    messages = [event for event in events if event is not None and text_of(event.get("sender"))]
    if not messages:
        found.fault = OTHER
        return found
    conversation = ConversationBuilder()
    for message in _branch(messages, found):
        _say(message, conversation, found)
    found.add(conversation, len(messages))
    return found


def _branch(messages: Sequence[Event], found: Session) -> Sequence[Event]:
    """Return the messages from the first to the last one, without those of other branches."""
    names = [text_of(message.get("uuid")) for message in messages]
    places = {name: place for place, name in enumerate(names) if name}
    parents = [text_of(message.get("parent_message_uuid")) for message in messages]
    if places.keys().isdisjoint(parents):
        return messages
    path: list[int] = []
    at: int | None = len(messages) - 1
    while at is not None:
        path.append(at)
        above = places.get(parents[at])
        if above is not None and above >= at:
            found.noted.add(BROKEN)
            above = None
        at = above
    found.noted |= {BRANCHED} if len(path) < len(messages) else set()
    return [messages[place] for place in reversed(path)]


def _say(message: Event, conversation: ConversationBuilder, found: Session) -> None:
    role = ROLES.get(text_of(message.get("sender")))
    if role is None:
        found.noted.add(UNKNOWN)
        return
    attached = objects(message.get("attachments"))
    for one in attached:
        conversation.say(role, text_of(one.get("extracted_content")))
    extracted = {text_of(one.get("file_name")) for one in attached}
    if any(text_of(one.get("file_name")) not in extracted for one in objects(message.get("files"))):
        found.fault = MEDIA
    parts = objects(message.get("content"), found) or objects(message.get("text"))
    for part in parts:
        kind = kind_of(part)
        if kind == "tool_result":
            said = texts(part.get("content"), found, ("text",), SILENT)
            conversation.answer(said, text_of(part.get("tool_use_id")) or None)
        elif kind == "text":
            conversation.say(role, text_of(part.get("text")))
        elif kind not in SILENT:
            reply_block(part, conversation, found)
