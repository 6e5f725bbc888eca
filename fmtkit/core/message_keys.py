"""What a message is: who speaks, what it may have besides its text, and whose text may be empty.

All that reads, converts, renders, checks or writes messages takes its keys and roles from here, and the
kernel is told them. What follows for a column of messages is in fmtkit.columns.message_rules.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from fmtkit.core.data_classes import dataclass

Form = Literal["text", "flag", "calls", "spans"]

ROLES: dict[str, str] = {
    "system": "system",
    "developer": "developer",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
"""What sources call the speakers -> what templates call them; OpenAI's API once used `function`."""
SPEAKER_KEYS = ("role", "from", "speaker", "author", "sender")
"""Under which key of a message sources say who speaks."""
CANONICAL_ROLES = tuple(dict.fromkeys(ROLES.values()))
"""The roles of messages in fmtkit's tables."""
SHAREGPT_ROLES: dict[str, str] = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "bing": "assistant",
    "chatgpt": "assistant",
    "tool": "tool",
    "observation": "tool",
}
"""The speakers of ShareGPT; `function_call` is an assistant turn, not a speaker."""
CALL_ROLE = "function_call"
"""What ShareGPT calls a turn whose text is the JSON of a call."""
CALL_SPEAKER = "assistant"
"""Who speaks in such a turn."""
SYSTEM = ("system", "developer")
SILENT = frozenset({"system"})
"""Roles whose null content makes no turn."""
MAY_BE_EMPTY = frozenset({*SYSTEM, "tool"})
"""Roles whose text may be blank: a tool may answer with nothing, and an empty system prompt is left to the
template.
"""


@dataclass(frozen=True)
class MessageKey:
    """What a message may have besides its role and its content."""

    name: str
    """What templates call it."""
    names: tuple[str, ...]
    """What sources call it. The first that holds something counts."""
    about: str
    """What is lost where it cannot be held."""
    form: Form
    """`text`; `flag`; `calls`, a list of calls or its JSON text, which becomes JSON text; `spans`, a
    list of parts of the content, each trained on or not, which becomes JSON text."""
    says: bool = False
    """It is part of what the turn says: a message that cannot hold it is refused, not cut short, and one in
    which it is not blank needs no text."""
    marks: bool = False
    """It says what is trained on: templates do not see it, and messages that differ in it are the same."""

    def __post_init__(self) -> None:
        # Templates are traced with texts and with calls: nothing else that they were to see would reach them.
        if self.marks != (self.form in ("flag", "spans")):
            raise ValueError(
                f"{self.name}: templates see texts and calls; marks are flags or spans"
            )


MESSAGE_KEYS = (
    MessageKey("name", ("name",), "the names of speakers", "text"),
    MessageKey(
        "reasoning_content",
        ("reasoning_content", "reasoning", "thinking"),
        "reasoning",
        "text",
        says=True,
    ),
    MessageKey(
        "tool_calls",
        ("tool_calls", "function_call"),
        "tool calls, and tool turns",
        "calls",
        says=True,
    ),
    MessageKey("tool_call_id", ("tool_call_id",), "the ids of tool calls", "text"),
    MessageKey(
        "train",
        ("train", "training", "weight", "loss"),
        "which messages are trained on",
        "flag",
        marks=True,
    ),
    MessageKey(
        "train_detail",
        ("train_detail",),
        "which parts of messages are trained on",
        "spans",
        marks=True,
    ),
)
"""In the order of a wide message's fields, which are role and content and then these."""
SAYING = tuple(key.name for key in MESSAGE_KEYS if key.says)
"""Keys with which a message says something without a text."""
TEXT_KEYS = ("content", *(key.name for key in MESSAGE_KEYS if key.form == "text"))
"""Keys whose value is a text that a template sees, in the order of a message's fields."""
SPOKEN = (*(name for name in TEXT_KEYS if name in SAYING), "content")
"""Those of them whose text is what the turn says, in the order in which templates write them."""
MARKS = frozenset(key.name for key in MESSAGE_KEYS if key.marks)
SEEN = ("role", "content", *(key.name for key in MESSAGE_KEYS if not key.marks))
"""What a template sees of a message."""
CARRIED = frozenset(name for key in MESSAGE_KEYS if key.says for name in key.names)
"""Keys that change what a turn says, by all their names."""
ROW_PATH = frozenset(name for key in MESSAGE_KEYS for name in key.names)
"""Keys that must not be overlooked: a message that has one is read row by row."""
REASONING_KEYS = next(key.names for key in MESSAGE_KEYS if key.name == "reasoning_content")
"""What sources and templates call the reasoning; the first is fmtkit's own."""
FLAGS = next(key.names for key in MESSAGE_KEYS if key.name == "train")
"""Names under which sources say whether a message is trained on; the first is fmtkit's own."""
IMAGE_PARTS = ("image", "input_image")
"""Prefixes of the types of parts that are an image."""
MEDIA_PARTS = (*IMAGE_PARTS, "audio", "video", "input_audio", "file")
"""Prefixes of the types of parts that hold no text."""


class ImageMark(str):
    """What stands for an image in the text of a content, until rows are written or rendered.

    Unicode keeps its noncharacters for such uses inside of programs. A text that comes with one is refused
    in rows that may have images.
    """

    __slots__ = ()


IMAGE = ImageMark("\ufdd0")


def in_parts(content: str) -> list[str]:
    """Return a text in pieces: texts that are not empty, and IMAGE for each image."""
    pieces: list[str] = []
    for place, text in enumerate(content.split(IMAGE)):
        pieces += [IMAGE] if place else []
        pieces += [text] if text else []
    return pieces


def is_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two canonical messages say the same in the same role; a null is an absent key."""
    keys = {*one, *other} - MARKS
    return all(one.get(key) == other.get(key) for key in keys)


def for_template(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a canonical message as a template gets it: without nulls and marks, its tool calls as values."""
    seen = {key: value for key, value in message.items() if value is not None and key not in MARKS}
    calls = seen.get("tool_calls")
    return {**seen, "tool_calls": json.loads(calls)} if isinstance(calls, str) else seen


def is_image_part(part: Any) -> bool:
    """Return whether a part of a content is an image, named or not (Qwen's parts have no type)."""
    if not isinstance(part, Mapping):
        return False
    kind = part.get("type")
    if isinstance(kind, str):
        return kind.startswith(IMAGE_PARTS)
    return kind is None and part.get("text") is None and part.get("image") is not None


def texts_of(content: Sequence[Any]) -> tuple[str, ...]:
    """Return the texts of sound parts, each a string or an object with one; IMAGE for an image."""
    return tuple(map(text_of_part, content))


def text_of_part(part: Any) -> str:
    """Return the text of a sound part."""
    if isinstance(part, str):
        return part
    return IMAGE if is_image_part(part) else str(part["text"])
