"""Sessions: the events of an agent or a chat become conversations with tools, one for each branch.

An agent writes a line for each event: what was asked, what the model said, thought and called, what tools
answered, and much that is no turn. The lines of a file are one row (`whole_file` of the registry); exports of
chats have a row for each. A format reads them into a `Session`. Sessions have no shape that columns could
share, so they are read one by one.
"""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import polars as pl

from fmtkit import former_names
from fmtkit.columns.expansion import repeats_too_much, several, too_large
from fmtkit.columns.kinds import ListKind, OpenKind
from fmtkit.columns.message_rules import WIDE
from fmtkit.columns.problems import Column, Problem
from fmtkit.columns.strict_kinds import json_value
from fmtkit.core.data_classes import dataclass
from fmtkit.core.tables import Conversation
from fmtkit.sources.canonical_json import canonical

Events: TypeAlias = Annotated[Column, ListKind(OpenKind())]
Event: TypeAlias = Mapping[str, Any]
Message: TypeAlias = dict[str, str | None]

MEDIA, OTHER, LARGE, NOTHING = "media", "other", "large", "nothing"
TRAILING = "trailing_user_turn"
UNKNOWN, UNREAD, BROKEN, ROOTS, UNANSWERED, BRANCHED, RESULTLESS, CALLLESS, HIDDEN, HARNESS = (
    CODES
) = (
    "unknown_events",
    "unread_events",
    "broken_chain",
    "several_roots",
    "unanswered_branches",
    "other_branches",
    "calls_without_results",
    "results_without_calls",
    "hidden_reasoning",
    "harness_text",
)
"""What is not as it should be in a session that is converted; `fmtkit.core.codes` says what they mean."""
_MADE = pl.Struct(
    {"conversations": pl.List(pl.List(WIDE)), "fault": pl.String, "noted": pl.List(pl.String)}
)


@dataclass
class Session:
    """The conversations of a session, and what was found in it."""

    conversations: list[list[Message]] = field(default_factory=list)
    noted: set[str] = field(default_factory=set)
    """CODES, and TRAILING."""
    fault: str | None = None
    """Why it has no conversation."""
    size: int = 0
    """Messages of all conversations."""
    text: int = 0
    """Characters of them."""

    def add(self, conversation: "ConversationBuilder", events: int = 0) -> None:
        """Add a conversation of so many events, if the model says something in it that no row has yet."""
        if not conversation.goes_on:
            return
        self.size += max(len(conversation.turns), events)
        self.text += sum(turn.size for turn in conversation.turns)
        if repeats_too_much(self.size, self.text):
            self.fault, self.conversations = LARGE, []
        if self.fault:
            return
        if not conversation.is_new:
            self.noted.add(UNANSWERED)
            return
        self.conversations.append([turn.message() for turn in conversation.turns])
        called = {key for turn in conversation.turns for key in turn.called}
        answered = {turn.id or "" for turn in conversation.turns if turn.role == "tool"}
        self.noted |= {RESULTLESS} if called - answered else set()
        self.noted |= {CALLLESS} if answered - called else set()
        self.noted |= {TRAILING} if conversation.turns[-1].role == "user" else set()


@dataclass
class Turn:
    """What one speaker says in a row, in parts: many of them are joined once."""

    role: str
    content: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    """As JSON."""
    called: list[str] = field(default_factory=list)
    """The ids of the calls."""
    id: str | None = None
    """The id of the call that a tool's turn answers."""
    size: int = 0
    """Characters of all parts."""

    def message(self) -> Message:
        """Return the turn as a wide message."""
        return {
            "role": self.role,
            "content": "\n\n".join(self.content) if self.content else None,
            "reasoning_content": "\n\n".join(self.reasoning) if self.reasoning else None,
            "tool_calls": f"[{','.join(self.calls)}]" if self.calls else None,
            "tool_call_id": self.id,
        }


@dataclass
class ConversationBuilder:
    """A conversation while its turns are added."""

    turns: list[Turn] = field(default_factory=list)
    goes_on: bool = False
    """Whether something was said, besides what a row before it has."""
    is_new: bool = False
    """Whether the model said some of it."""

    def say(self, role: str, text: str) -> None:
        """Add what a speaker says; blank text is nothing."""
        if text.strip():
            turn = self._turn(role)
            turn.content.append(text)
            turn.size += len(text)

    def think(self, text: str) -> None:
        """Add what the model thinks."""
        if text.strip():
            turn = self._turn("assistant")
            turn.reasoning.append(text)
            turn.size += len(text)

    def call(self, name: str, arguments: Any, id: str | None) -> None:
        """Add a call of a tool to the model's turn; arguments are an object, or the JSON text of one."""
        turn = self._turn("assistant")
        head = {"id": id} if id else {}
        function = {"name": name, "arguments": arguments}
        turn.calls.append(canonical({**head, "type": "function", "function": function}))
        turn.called.append(id or "")
        turn.size += len(turn.calls[-1])

    def answer(self, text: str, id: str | None) -> None:
        """Add a tool's result, which may be empty."""
        self.turns.append(Turn("tool", [text], id=id, size=len(text)))
        self.goes_on = True

    def cut(self, length: int) -> None:
        """Keep the first turns, for a conversation that may go on from there."""
        del self.turns[length:]
        self.goes_on = self.is_new = False

    def _turn(self, role: str) -> Turn:
        self.goes_on = True
        self.is_new = self.is_new or role == "assistant"
        if not self.turns or self.turns[-1].role != role:
            self.turns.append(Turn(role))
        return self.turns[-1]


def conversations(
    events: Column,
    read: Callable[[Sequence[Event | None]], Session],
    name: str = "rows",
    strange: str = "no line of the file is an event of such a session",
) -> Conversation:
    """Make a table of the conversations of sessions.

    Args:
        events: A list of JSON texts for each session.
        read: Gets the events of a session; None for one that is no object, or a rejected line.
        name: The column of the events.
        strange: What is said of a session that is not of the format.
    """
    return Conversation(several(conversations_of(events, read, name, strange)))


def conversations_of(
    events: Column,
    read: Callable[[Sequence[Event | None]], Session],
    name: str,
    strange: str,
) -> Column:
    """Make the conversations of sessions, a list for each.

    Args:
        events: A list of JSON texts for each session.
        read: Gets the events of a session; None for one that is no object, or a rejected line.
        name: The column of the events.
        strange: What is said of a session that is not of the format.
    """

    def of_all(column: pl.Series) -> pl.Series:
        lists: list[list[str | None] | None] = column.to_list()
        made = [None if texts is None else _made(texts, read) for texts in lists]
        return pl.Series(column.name, made, dtype=_MADE)

    made = events.with_value(
        events.value.map_batches(of_all, return_dtype=_MADE, is_elementwise=True)
    ).once("__session")
    fault, noted = (made.value.struct.field(name) for name in ("fault", "noted"))
    conversations = made.with_value(
        made.value.struct.field("conversations"),
        Problem(
            "missing_field",
            name,
            fault == OTHER,
            strange,
        ),
        Problem(
            "unsupported",
            name,
            fault == MEDIA,
            "a turn of the session has an image, a sound or a document; this type reads text only",
        ),
        Problem(
            "no_assistant_turn", name, fault == NOTHING, "the model says nothing in the session"
        ),
        too_large("session", name, fault == LARGE),
    )
    for code in (*CODES, TRAILING):
        conversations = conversations.warn(code, noted.list.contains(code))
    return conversations


def _made(
    texts: Sequence[str | None], read: Callable[[Sequence[Event | None]], Session]
) -> dict[str, Any]:
    values = (None if text is None else json_value(text) for text in texts)
    events = [value if isinstance(value, dict) else None for value in values]
    session = read(events)
    if None in events:
        session.noted.add(UNREAD)
    if not session.conversations and not session.fault:
        session.fault = NOTHING
    noted = sorted(session.noted)
    return {"conversations": session.conversations, "fault": session.fault, "noted": noted}


def kind_of(event: Event) -> str:
    """Return the type of an event or a part; empty where it has none."""
    kind = event.get("type")
    return kind if isinstance(kind, str) else ""


def text_of(value: Any) -> str:
    """Return a text; empty for anything else."""
    return value if isinstance(value, str) else ""


def objects(value: Any, session: Session | None = None) -> list[Event]:
    """Return the parts of a content; a text is one part, and what is no part is noted in a session.

    Args:
        value: A content: a text, a part, or a list of parts.
        session: Where what is no part is noted.
    """
    if isinstance(value, str):
        return [{"type": "text", "text": value}]
    listed = value if isinstance(value, list) else [] if value is None else [value]
    parts: list[Event] = [part for part in listed if isinstance(part, dict)]
    if session is not None and len(parts) < len(listed):
        session.noted.add(UNKNOWN)
    return parts


def texts(value: Any, session: Session, kinds: Iterable[str], harmless: Iterable[str] = ()) -> str:
    """Join the texts of parts of these types, and note parts of others.

    Args:
        value: A content: a text, a part, or a list of parts.
        session: Where parts of other types are noted.
        kinds: The types of the parts whose text is joined.
        harmless: Types of parts that are left out without a note.
    """
    said = []
    for part in objects(value, session):
        kind = kind_of(part)
        if kind in kinds:
            said.append(text_of(part.get("text")))
        elif kind not in harmless:
            note_part(kind, session)
    return "\n\n".join(filter(None, said))


def add_reply(message: Event, conversation: ConversationBuilder, session: Session) -> None:
    """Add a reply as Anthropic's API has it: https://docs.claude.com/en/api/messages.

    Args:
        message: The message of the API, with its content.
        conversation: The conversation that it is added to.
        session: Where parts that are not read are noted.
    """
    for part in objects(message.get("content"), session):
        reply_block(part, conversation, session)


def add_question(message: Event, conversation: ConversationBuilder, session: Session) -> None:
    """Add a message of the user, as the same API has it: the results of tools, then what the user says.

    Args:
        message: The message of the API, with its content.
        conversation: The conversation that it is added to.
        session: Where parts that are not read are noted.
    """
    said = []
    for part in objects(message.get("content"), session):
        kind = kind_of(part)
        if kind == "tool_result":
            add_result(part, conversation, session)
        elif kind == "text":
            said.append(text_of(part.get("text")))
        else:
            note_part(kind, session)
    conversation.say("user", "\n\n".join(filter(None, said)))


def add_result(part: Event, conversation: ConversationBuilder, session: Session) -> None:
    """Add the result of a tool, a content block of the same API.

    Args:
        part: The content block.
        conversation: The conversation that it is added to.
        session: Where parts that are not read are noted.
    """
    said = texts(part.get("content"), session, ("text",), ("tool_reference",))
    conversation.answer(said, text_of(part.get("tool_use_id")) or None)


def reply_block(part: Event, conversation: ConversationBuilder, session: Session) -> None:
    """Add a content block of a reply.

    Args:
        part: The content block.
        conversation: The conversation that it is added to.
        session: Where parts that are not read are noted.
    """
    kind = kind_of(part)
    if kind == "text":
        conversation.say("assistant", text_of(part.get("text")))
    elif kind == "thinking" and text_of(part.get("thinking")).strip():
        conversation.think(part["thinking"])
    elif kind in ("thinking", "redacted_thinking"):
        session.noted.add(HIDDEN)
    elif kind == "tool_use" and text_of(part.get("name")):
        arguments = {} if part.get("input") is None else part["input"]
        conversation.call(part["name"], arguments, text_of(part.get("id")) or None)
    else:
        note_part(kind, session)


def note_part(kind: str, session: Session) -> None:
    """Note a part that is no text: media stop a session, others are left out.

    Args:
        kind: The type of the part, such as `image_url`.
        session: Where it is noted.
    """
    named = kind.removeprefix("input_").removesuffix("_url")
    if named in ("image", "audio", "file", "video", "document"):
        session.fault = MEDIA
    else:
        session.noted.add(UNKNOWN)


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        return former_names.attribute(sys.modules[__name__], __name__, name)
