"""Contents made of parts: which form of content a template takes, and a message in that form.

A message's content is one text, or a list of parts (`{"type": "text", "text": ...}`). Templates of
vision models often read only parts: of a string they write nothing, or raise. Others take only strings
and would print the list itself. transformers passes contents on unchanged, TRL makes parts of every text if
the model has a processor (`trl.data_utils.prepare_multimodal_messages`); here the template itself is tried
once, with both forms.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field
from enum import Enum
from itertools import takewhile
from typing import Any, Protocol

from fmtkit.core.data_classes import dataclass
from fmtkit.core.message_keys import ImageMark, in_parts, is_image_part, texts_of
from fmtkit.rendering.jinja_environment import text_part
from fmtkit.rendering.tracing import Refusal, Request

Cuts = Mapping[str, tuple[str, ...]]
"""Joined text -> the parts that it came in, for the contents of one row; an ImageMark is an image."""


class Form(Enum):
    """The form of content that a template writes out."""

    TEXT = "text"
    PARTS = "parts"
    EITHER = "either"
    """Texts as texts and parts as parts; they may differ, where each part is trimmed."""


@dataclass(frozen=True)
class Forms:
    """The forms that a template takes by role; it has `most` for all roles that are not named."""

    most: Form = Form.TEXT
    roles: Mapping[str, Form] = field(default_factory=dict)

    def of(self, role: str | None) -> Form:
        """Return the form for a role."""
        return self.roles.get(role, self.most) if role is not None else self.most

    def any(self, form: Form) -> bool:
        """Return whether some role has this form."""
        return form in {self.most, *self.roles.values()}


TEXTS = Forms()


class Renders(Protocol):
    """Something that renders conversations (see render_plan.Engine)."""

    def render(self, requests: Sequence[Request]) -> list[str | Refusal]:
        """Render conversations one by one."""
        ...


_WORD = "Sentinel{}x"
_MARK = "sentinelkey"
"""A key that a part has besides: a template that prints it has printed the list, not its texts."""
_TRIED = (("user", "assistant"), ("user",), ("system", "user", "assistant"))
_TRIED_AFTER = {
    "user": ("user", "assistant"),
    "assistant": ("user", "assistant"),
    "system": ("system", "user", "assistant"),
    "developer": ("developer", "user", "assistant"),
    "tool": ("user", "assistant", "tool"),
}
"""Role -> a conversation to try it in: Gemma 4 takes parts, but prints the list of a system prompt."""


def forms_of(template: Renders) -> Forms:
    """Try which forms of content a template writes out; TEXT where it takes neither."""
    tried = (_tried(template, roles, set(roles), TEXTS) for roles in _TRIED)
    most = next(filter(None, tried), Form.TEXT)
    found: dict[str, Form] = {}
    for role, roles in _TRIED_AFTER.items():
        form = _tried(template, roles, {role}, Forms(most, found))
        if form not in {None, most}:
            found[role] = form
    return Forms(most, found)


def _tried(
    template: Renders, roles: Sequence[str], varied: Collection[str], others: Forms
) -> Form | None:
    """Return the form in which a template writes the contents of some roles; None for neither."""
    text, parts = (_writes(template, roles, varied, form, others) for form in (False, True))
    if text:
        return Form.EITHER if parts else Form.TEXT
    return Form.PARTS if parts else None


def _writes(
    template: Renders, roles: Sequence[str], varied: Collection[str], in_parts: bool, others: Forms
) -> bool:
    """Return whether the words of some roles occur in what a template makes of them, and no more."""
    messages, wanted = [], []
    for number, role in enumerate(roles):
        word = _WORD.format(number)
        message = {"role": role, "content": word}
        if role not in varied:
            messages.append(in_form(message, others))
            continue
        wanted.append(word.casefold())
        part = {**text_part(word), _MARK: _MARK}
        messages.append({**message, "content": [part]} if in_parts else message)
    written = template.render([Request(messages, None, generation_prompt=False)])[0]
    said = written.casefold() if isinstance(written, str) else _MARK
    return _MARK not in said and all(word in said for word in wanted)


def part(piece: str) -> dict[str, str]:
    """Return a piece of a content as a template gets it: an image, or a text."""
    return {"type": "image"} if isinstance(piece, ImageMark) else text_part(piece)


def shows_images(content: Any) -> bool:
    """Return whether a content, a text or parts, has an image among its parts."""
    return isinstance(content, list) and any(map(is_image_part, content))


def shown_in_parts(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message of a row with images: a content that shows some in parts, others as texts."""
    content = message.get("content")
    pieces = in_parts(content) if isinstance(content, str) else []
    if not any(isinstance(piece, ImageMark) for piece in pieces):
        return dict(message)
    return {**message, "content": [part(piece) for piece in pieces]}


NO_IMAGES = "the template writes no images; take that of the vision model (its --tokenizer has it)"


def image_text(template: Renders, forms: Forms) -> str:
    """Return what a template writes for an image in what a user says; an empty text if nothing."""
    if forms.of("user") is Form.TEXT:
        return ""
    before, after = (text_part(_WORD.format(number)) for number in range(2))
    for roles in _TRIED:
        others = [in_form({"role": role, "content": _WORD.format(role)}, forms) for role in roles]
        asked = [[before, after], [before, {"type": "image"}, after]]
        bare, shown = template.render(
            [
                Request(
                    [{**m, "content": parts} if m["role"] == "user" else m for m in others],
                    None,
                    generation_prompt=False,
                )
                for parts in asked
            ]
        )
        if isinstance(bare, str) and isinstance(shown, str):
            return _inserted(bare, shown)
    return ""


def _inserted(bare: str, whole: str) -> str:
    """Return what the one text has more than the other, between what both begin and end with."""
    start = _agreeing(bare, whole)
    end = _agreeing(bare[start:][::-1], whole[start:][::-1])
    return whole[start : len(whole) - end]


def _agreeing(one: str, two: str) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, two, strict=False)))


def in_form(message: Mapping[str, Any], forms: Forms) -> dict[str, Any]:
    """Return a message with its content, a text or text parts, in the form that a template takes."""
    content, form = message.get("content"), forms.of(message.get("role"))
    if isinstance(content, str) and form is Form.PARTS:
        return {**message, "content": [text_part(content)]}
    if isinstance(content, list) and form is Form.TEXT:
        return {**message, "content": "".join(texts_of(content))}
    return dict(message)


def cuts_of(contents: Iterable[Any]) -> dict[str, tuple[str, ...]]:
    """Return how the joined contents of a row split into the parts in which they came.

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
