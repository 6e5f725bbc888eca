"""Contents made of parts: which form of content a template takes, and a message in that form.

A message's content is one text, or a list of parts (`{"type": "text", "text": ...}`). Templates of
vision models often read parts alone: of a text they write nothing, or raise. Others take texts
alone and would print the list itself. transformers hands over what it is given, TRL makes parts of
every text where the model has a processor (`trl.data_utils.prepare_multimodal_messages`); here the
template itself is tried once, with both forms.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Protocol

from fmtkit.rendering.jinja_environment import text_part
from fmtkit.rendering.tracing import Fault, Request

Cuts = Mapping[str, tuple[str, ...]]
"""Joined text -> the parts that it came in, for the contents of one row."""


class Form(Enum):
    """The form of content that a template writes out."""

    TEXT = "text"
    PARTS = "parts"
    EITHER = "either"
    """Texts as texts and parts as parts; they may differ, where each part is trimmed."""


class Renders(Protocol):
    """Something that renders conversations (see render_plan.Engine)."""

    def render(self, requests: Sequence[Request]) -> list[str | Fault]:
        """Render conversations one by one."""
        ...


_TRIED = (("user", "assistant"), ("user",), ("system", "user", "assistant"))
_WORD = "Sentinel{}x"
_MARK = "sentinelkey"
"""A key that a part has besides: who prints it has printed the list, not its texts."""


def form_of(template: Renders) -> Form:
    """Try which form of content a template writes out; TEXT where it takes neither."""
    for roles in _TRIED:
        words = [_WORD.format(number) for number in range(len(roles))]
        parts = [[{**text_part(word), _MARK: _MARK}] for word in words]
        text, listed = (_writes(template, roles, contents) for contents in (words, parts))
        if text or listed:
            return Form.EITHER if text and listed else Form.TEXT if text else Form.PARTS
    return Form.TEXT


def _writes(template: Renders, roles: Sequence[str], contents: Sequence[Any]) -> bool:
    """Tell whether the words of a conversation occur in what a template makes of it, and no more."""
    pairs = zip(roles, contents, strict=True)
    messages = [{"role": role, "content": content} for role, content in pairs]
    written = template.render([Request(messages, None, generation_prompt=False)])[0]
    said = written.casefold() if isinstance(written, str) else _MARK
    return _MARK not in said and all(
        _WORD.format(number).casefold() in said for number in range(len(roles))
    )


def in_form(message: Mapping[str, Any], form: Form) -> dict[str, Any]:
    """Return a message with its content, a text or text parts, in the form that a template takes."""
    content = message.get("content")
    if isinstance(content, str) and form is Form.PARTS:
        return {**message, "content": [text_part(content)]}
    if isinstance(content, list) and form is Form.TEXT:
        return {**message, "content": "".join(texts_of(content))}
    return dict(message)


def texts_of(content: Sequence[Any]) -> tuple[str, ...]:
    """Return the texts of parts, each a text or an object with one."""
    return tuple(part if isinstance(part, str) else str(part["text"]) for part in content)


def cuts_of(contents: Iterable[Any]) -> dict[str, tuple[str, ...]]:
    """Say of the contents of a row that came in parts, by their joined text, which parts.

    A text that occurs in the same row in two cuts (or whole as well) is taken as a whole: messages
    are found again by what they say.
    """
    seen: dict[str, tuple[str, ...] | None] = {}
    for content in contents:
        if not isinstance(content, str | list):
            continue
        parts = texts_of(content) if isinstance(content, list) else None
        text = content if isinstance(content, str) else "".join(parts or ())
        seen[text] = parts if seen.get(text, parts) == parts else None
    return {text: parts for text, parts in seen.items() if parts is not None}
