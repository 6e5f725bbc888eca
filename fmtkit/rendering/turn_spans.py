"""Where the turns of one rendered conversation are: those of the assistant, and every message's content.

Most templates of models mark no turns. There a reply reaches from the generation prompt of what came before
to the end of the turn, as fmtkit.rendering.spans finds it for whole columns.

Contents are marked, the conversation is written again, and the marks are looked for: the text itself is
searched only if a template tests what a content holds, and so writes a marked one differently.
"""

import re
from collections.abc import Callable
from typing import Any

from fmtkit.columns import thinking
from fmtkit.core.errors import TemplateError
from fmtkit.rendering.row_templates import Message, RowTemplate, Span
from fmtkit.rendering.spans import SPEAKER, span_of

UNMARKED = (
    "the template marks no replies: they are found by writing one turn after the other, each with "
    "its end of turn"
)
"""The note on a template without generation blocks."""


def reply_spans(
    template: RowTemplate, messages: list[Message], tools: str | None = None
) -> tuple[str, list[Span]]:
    """Write messages out, with the spans (in characters) of the assistant's turns.

    Raises TemplateError where the template refuses the messages, or rewrites a turn so that its
    text is not found.
    """
    if template.has_generation:
        return template.render_spans(messages, tools)
    text = template.render(messages, tools)
    spans: list[Span] = []
    for place, message in enumerate(messages):
        if message["role"] != SPEAKER:
            continue
        start = render_beginning(template, messages[:place], tools, asks=True)
        end = render_beginning(template, messages[: place + 1], tools, asks=False)
        found = _span(text, start, end, message, spans[-1][1] if spans else 0)
        if found is None:
            raise TemplateError(
                f"the chat template marks no replies, and the text of messages[{place}] is not found "
                "in what it writes; take a template that marks them, such as chatml"
            )
        spans.append(found)
    return text, spans


def _span(
    text: str, start: str | None, end: str | None, message: Message, start_at: int
) -> Span | None:
    """Return a turn's span; if the template left its thinking out, that of the rest."""
    said = (message.get("content") or "").strip()
    answer = thinking.without_blocks(said).strip()
    for words in dict.fromkeys((said, answer)):
        found = span_of(text, start, end, {**message, "content": words}, start_at)
        # A template that drops a turn would leave an empty span, and nothing to learn.
        if found is not None and words in text[slice(*found)]:
            return found
    return None


def render_beginning(
    template: RowTemplate, messages: list[Message], tools: str | None, *, asks: bool
) -> str | None:
    """Write the beginning of a conversation; None if the template cannot render it by itself."""
    try:
        return template.render(messages, tools, add_generation_prompt=asks)
    except TemplateError:
        return None


_OPEN, _CLOSE = "\U0010ffe0", "\U0010ffe1"
_MARK = re.compile(f"{_OPEN}(/?)([0-9]+){_CLOSE}")


def content_spans(
    template: RowTemplate, messages: list[Message], tools: str | None, text: str
) -> list[Span | None]:
    """Return the span in `text` of every message's content; None of one that is empty or not written.

    `text` is what the template writes of the messages.
    """
    for marked in (_around, _inside):
        found = _by_marks(template, messages, tools, text, marked)
        if found is not None:
            return found
    spans: list[Span | None] = []
    start_at = 0
    for message in messages:
        spans.append(_searched(text, message, start_at))
        start_at = (spans[-1] or (0, start_at))[1]
    return spans


def _by_marks(
    template: RowTemplate,
    messages: list[Message],
    tools: str | None,
    text: str,
    marked: Callable[[str, int], str],
) -> list[Span | None] | None:
    if any(_OPEN in (m.get("content") or "") for m in messages):
        return None
    written: list[Message] = [
        {**m, "content": _marked(m["content"], i, marked)} if m.get("content") else m
        for i, m in enumerate(messages)
    ]
    try:
        made = template.render(written, tools)
    except TemplateError:
        return None
    if _MARK.sub("", made) != text:
        return None
    return _read(made, len(messages))


def _read(made: str, count: int) -> list[Span | None]:
    """Return where the marks of each content are, in the text without them."""
    begun: dict[int, int] = {}
    spans: list[Span | None] = [None] * count
    gone = 0
    for mark in _MARK.finditer(made):
        place, at = int(mark[2]), mark.start() - gone
        if not mark[1]:
            begun.setdefault(place, at)
        elif place in begun and spans[place] is None and at > begun[place]:
            spans[place] = (begun[place], at)
        gone += len(mark[0])
    return spans


def _marked(content: Any, place: int, marked: Callable[[str, int], str]) -> Any:
    """Mark a content; of one in parts, from its first text to its last."""
    if isinstance(content, str):
        return marked(content, place)
    parts = [dict(part) for part in content]
    texts = [part for part in parts if part.get("text")]
    if len(texts) == 1:
        texts[0]["text"] = marked(texts[0]["text"], place)
    elif texts:
        before, after = marked("-", place).split("-")
        texts[0]["text"] = before + texts[0]["text"]
        texts[-1]["text"] += after
    return parts


def _around(content: str, place: int) -> str:
    return f"{_OPEN}{place}{_CLOSE}{content}{_OPEN}/{place}{_CLOSE}"


def _inside(content: str, place: int) -> str:
    """Mark a content inside of its outer white space, which templates trim."""
    core = content.strip()
    if not core:
        return content
    before = content[: len(content) - len(content.lstrip())]
    return before + _around(core, place) + content[len(before) + len(core) :]


def _searched(text: str, message: Message, start_at: int) -> Span | None:
    content = message.get("content") or ""
    if not isinstance(content, str):
        content = "".join(part.get("text") or "" for part in content)
    said = content.strip()
    for words in dict.fromkeys((said, thinking.without_blocks(said).strip())):
        at = text.find(words, start_at) if words else -1
        if at >= 0:
            return at, at + len(words)
    return None
