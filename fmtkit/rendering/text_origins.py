"""Which message, and which of its texts, wrote each stretch of one rendered conversation.

A trace shows it: the output of the template with a symbol in place of each text of the row. Where there is
no trace (contents in parts, calls of an odd form, a template that cannot be traced) the row is rendered once
more with symbols as its texts. Either output is used only if, with the texts filled in, it is the rendered
text.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import pyarrow as pa

from fmtkit.columns import thinking
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import TemplateError
from fmtkit.core.message_keys import SPOKEN, for_template
from fmtkit.core.tables import WIDE_MESSAGE
from fmtkit.rendering.batch_answers import BatchContents
from fmtkit.rendering.content_parts import in_form
from fmtkit.rendering.conversation_columns import Batch, conversation_column, signature
from fmtkit.rendering.decision_tree import follow
from fmtkit.rendering.jinja_environment import text_part, write_json
from fmtkit.rendering.render_plan import Plan
from fmtkit.rendering.row_templates import Message, RowTemplate
from fmtkit.rendering.survival import part_slot
from fmtkit.rendering.traced_rows import Compiled
from fmtkit.rendering.tracing import Request
from fmtkit.rendering.unknowns import (
    ANY_SYMBOL,
    FIRST,
    LAST,
    TOOL,
    Derived,
    Slot,
    Unknown,
    evaluate,
    read_call_key,
    slots_of,
    symbolic,
)

By = Literal["trace", "marks"]
Wrote = Literal["content", "reasoning", "tool_call", "tools", "name"]
BY_KEY: Mapping[str, Wrote] = {
    **dict.fromkeys(SPOKEN, "content"),
    "reasoning_content": "reasoning",
    TOOL: "tools",
}
_CLOSING = frozenset(close for _, close in thinking.TAGS)


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a rendered text, in characters, that a text of the row wrote."""

    start: int
    end: int
    message: int
    """Its number; -1 for tools."""
    wrote: Wrote
    part: int = 0
    """The part of a content, or the number of a call or a tool."""


@dataclass(frozen=True)
class WrittenText:
    """What wrote a rendered text: its pieces in order; the template wrote everything between them."""

    pieces: tuple[Piece, ...]
    by: By


def written_text(
    template: RowTemplate,
    messages: list[Message],
    tools: str | None,
    text: str,
    *,
    generation_prompt: bool = False,
    is_marked: bool = False,
) -> WrittenText | None:
    """Return what wrote `text`, which the template made of messages; None if neither way gives it.

    `is_marked` says that the template marked replies in `text`, so its variant for training is tried first.
    """
    variants = list(_variants(template))
    for variant in reversed(variants) if is_marked else variants:
        for by, find in _WAYS.items():
            found = find(variant, messages, tools, generation_prompt=generation_prompt)
            pieces = None if found is None else _pieces(*found, text)
            if pieces is not None:
                return WrittenText(tuple(_cut_at_thinking(pieces, text, messages)), by)
    return None


def _variants(template: RowTemplate) -> Iterator[Compiled]:
    own = template.template.compiled
    yield own
    if template.spans_source != own.source and template.template.compiled_training is not None:
        yield template.template.compiled_training


TracedText = tuple[str, Sequence[Unknown], dict[Slot, str]]
"""A text with symbols, what they stand for, and the texts of the row."""


def _traced(
    compiled: Compiled, messages: list[Message], tools: str | None, *, generation_prompt: bool
) -> TracedText | None:
    if not compiled.engine.traceable or compiled.difference:
        return None
    if any(isinstance(message.get("content"), list) for message in messages):
        return None
    known = [{name: _value(message.get(name)) for name in _FIELDS} for message in messages]
    conversation = conversation_column(pa.array([known], pa.list_(WIDE_MESSAGE)), compiled.forms)
    if conversation.with_odd_calls()[0]:
        return None
    batch = Batch([conversation], None if tools is None else pa.array([tools]))
    plan = Plan(generation_prompt=generation_prompt)
    for parts in (batch.parts, batch.parts_with_known_tools):
        texts, shapes = BatchContents(parts).every_text(0), signature(parts, 0)
        trace = partial(compiled.engine.trace, shapes, plan.views, texts)
        tree = compiled.tree(plan, shapes)
        leaf = trace() if tree is None else follow(tree, texts, trace)
        if leaf is not None and isinstance(leaf.outputs[0], str):
            return leaf.outputs[0], leaf.unknowns, texts
        if tools is None:
            break
    return None


_FIELDS = tuple(field.name for field in WIDE_MESSAGE if pa.types.is_string(field.type))


def _value(value: Any) -> str | None:
    """Return a text as it is, and any other value (tool calls) as its JSON text."""
    return value if value is None or isinstance(value, str) else write_json(value)


def _rendered_with_symbols(
    compiled: Compiled, messages: list[Message], tools: str | None, *, generation_prompt: bool
) -> TracedText | None:
    """Render with a symbol for each text, which does not suit a template that tests what texts hold."""
    texts: dict[Slot, str] = {}
    opened = [in_form(for_template(message), compiled.forms) for message in messages]
    shown = [_with_symbols(message, number, texts) for number, message in enumerate(opened)]
    if len(texts) > LAST - FIRST or any(map(symbolic, texts.values())):
        return None
    try:
        request = Request.of(shown, tools, generation_prompt)
        made = compiled.engine.render([request])[0]
    except TemplateError:
        return None
    return (made, list(texts), texts) if isinstance(made, str) else None


def _with_symbols(message: Message, number: int, texts: dict[Slot, str]) -> dict[str, Any]:
    def symbol(slot: Slot, text: str) -> str:
        # White space around a text may be trimmed: it is left outside of the symbol.
        core = text.strip()
        if not core:
            return text
        at = text.index(core)
        texts[slot] = core
        return text[:at] + chr(FIRST + len(texts) - 1) + text[at + len(core) :]

    made = dict(message)
    for key in SPOKEN:
        if isinstance(made.get(key), str):
            made[key] = symbol(Slot(0, number, key), made[key])
    content = made.get("content")
    if isinstance(content, list):
        made["content"] = [
            text_part(symbol(part_slot(0, number, place), part["text"])) if "text" in part else part
            for place, part in enumerate(content)
        ]
    return made


_WAYS: Mapping[By, Callable[..., TracedText | None]] = {
    "trace": _traced,
    "marks": _rendered_with_symbols,
}


def _pieces(
    made: str, unknowns: Sequence[Unknown], texts: dict[Slot, str], text: str
) -> list[Piece] | None:
    """Return the pieces of `text`; None if filling the symbols in gives another text, or one is unknown."""
    known, found, at, reached = list(unknowns), [], 0, 0
    for match in ANY_SYMBOL.finditer(made):
        constant = made[reached : match.start()]
        if not text.startswith(constant, at):
            return None
        at += len(constant)
        number = ord(match[0]) - FIRST
        if number >= len(known):
            return None
        said = evaluate(known[number], known, texts)
        if not text.startswith(said, at):
            return None
        piece = _piece(known[number], known, at, at + len(said))
        if said and piece is not None:
            found.append(piece)
        at, reached = at + len(said), match.end()
    return found if text[at:] == made[reached:] else None


def _piece(unknown: Unknown, unknowns: list[Unknown], start: int, end: int) -> Piece | None:
    slots = [unknown] if isinstance(unknown, Slot) else slots_of((unknown.text,), unknowns)
    if not slots:
        return None
    slot = slots[0]
    call = read_call_key(slot.key)
    if call is not None:
        return Piece(start, end, slot.message, "tool_call", call[0])
    if slot.key == TOOL:
        return Piece(start, end, -1, "tools", max(slot.message - 1, 0))
    wrote: Wrote = BY_KEY.get(slot.key, "name")
    part = 0
    if slot.key.startswith("content["):
        wrote, part = "content", int(slot.key[len("content[") : -1])
    if wrote == "content" and _is_before_close(unknown, unknowns):
        wrote = "reasoning"
    return Piece(start, end, slot.message, wrote, part)


def _is_before_close(unknown: Unknown, unknowns: list[Unknown]) -> bool:
    """Return whether a text is the part of a content before its closing tag of thinking."""
    while isinstance(unknown, Derived):
        if unknown.operation == "part" and unknown.arguments[1] in _CLOSING:
            return bool(unknown.arguments[-1] == 0)
        inner = ANY_SYMBOL.search(unknown.text)
        if inner is None:
            return False
        unknown = unknowns[ord(inner[0]) - FIRST]
    return False


def _cut_at_thinking(
    pieces: Sequence[Piece], text: str, messages: Sequence[Message]
) -> Iterator[Piece]:
    """Cut the contents of replies where a block of thinking begins and ends."""
    for piece in pieces:
        is_reply = piece.message >= 0 and messages[piece.message]["role"] == "assistant"
        if piece.wrote != "content" or not is_reply:
            yield piece
            continue
        at = piece.start
        for start, end in thinking.blocks(text[piece.start : piece.end]):
            if piece.start + start > at:
                yield Piece(at, piece.start + start, piece.message, "content", piece.part)
            at = piece.start + end
            yield Piece(piece.start + start, at, piece.message, "reasoning", piece.part)
        if at < piece.end:
            yield Piece(at, piece.end, piece.message, "content", piece.part)
