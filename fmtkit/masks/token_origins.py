"""Finds the origin of each token: of a conversation by what its template writes, else by its columns."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from fmtkit.columns import thinking
from fmtkit.columns.thinking import TAG_TOKENS
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import TemplateError
from fmtkit.core.message_keys import REASONING_KEYS
from fmtkit.masks.masked import Masked
from fmtkit.masks.origins import (
    BY_TEMPLATE,
    CONTENT,
    END,
    GENERATION_PROMPT,
    HEADER,
    OUTSIDE,
    PAD_IMAGE,
    REASONING,
    TEMPLATE,
    TOOL_CALL,
    TOOLS,
    Bools,
    Origins,
)
from fmtkit.masks.text_masks import is_prerendered
from fmtkit.rendering.row_templates import Message, RowTemplate, Span
from fmtkit.rendering.text_origins import Piece, written_text
from fmtkit.rendering.turn_spans import render_beginning
from fmtkit.tokenizers.tokens import Tokenizer
from fmtkit.tokenizers.turn_rule import OriginRule

EMPTY_BLOCK = re.compile(r"<([\w|]+)>\s*</\1>\s*")
"""An empty block for reasoning, with the white space after it."""
_KIND_OF = {"content": CONTENT, "reasoning": REASONING, "tool_call": TOOL_CALL, "tools": TOOLS}
UNKNOWN = (
    "nothing says which message wrote which token: the template cannot be traced and writes other texts "
    "where it gets marks for them; only replies are told from the rest"
)


def with_origins(
    masked: Sequence[Masked],
    row: Mapping[str, Any],
    table: str,
    tokenizer: Tokenizer,
    template: RowTemplate | None,
) -> tuple[Masked, ...]:
    """Return the sequences that `mask_row` made of a row, each with the origins of its tokens."""
    made = [(one, _origins(one, row, table, tokenizer, template)) for one in masked]
    return tuple(
        replace(one, origins=o, notes=(*one.notes, *((UNKNOWN,) if o.by == "spans" else ())))
        for one, o in made
    )


def _origins(
    one: Masked,
    row: Mapping[str, Any],
    table: str,
    tokenizer: Tokenizer,
    template: RowTemplate | None,
) -> Origins:
    if table == "Tokens":
        return _of_texts(one, [("document", one.text)], "")
    if table == "Segments":
        return _of_texts(one, [("document", one.text)], "")
    if table == "Stepwise":
        steps = [("step", step) for step in row["completions"]]
        return _of_texts(one, [("prompt", row["prompt"]), *steps], "\0")
    if is_prerendered(row, table) or template is None:
        return _of_texts(one, list(_texts(row, one.side)), "")
    name = "prompt" if "messages" not in row else "messages"
    messages = list(row[name])
    if name == "prompt":
        messages += row.get(one.side or "completion") or []
    asks = one.rule == "context"
    return origins_of(one, messages, row.get("tools"), tokenizer, template, asks=asks)


def _texts(row: Mapping[str, Any], side: str) -> list[tuple[str, str]]:
    """Return the columns of text of a sequence with their contents, in order."""
    names = ("text",) if isinstance(row.get("text"), str) else ("prompt", side or "completion")
    return [(name, row[name]) for name in names if isinstance(row.get(name), str)]


def _of_texts(one: Masked, texts: Sequence[tuple[str, str]], separator: str) -> Origins:
    """Return the origins of tokens of texts that follow each other; what is beside them ends or begins them.

    With a separator, something of any length is between the texts.
    """
    count = len(one.ids)
    kinds, messages, parts = _blank(count)
    starts, ends = _places(one)
    at = 0
    for number, (_, text) in enumerate(texts):
        if separator:
            at = max(one.text.find(text, at), at)
        inside = (starts >= at) & (starts < at + len(text)) & (ends > starts)
        kinds[inside], messages[inside], parts[inside] = CONTENT, number, 0
        at += len(text)
    bare = np.flatnonzero(parts == BY_TEMPLATE)
    if not separator and len(bare) and bare[-1] == count - 1 and count > 1:
        # The EOS that a trainer puts behind a text ends it; a BOS is before it.
        kinds[-1], messages[-1] = END, len(texts) - 1
    return Origins(kinds, messages, parts, tuple(role for role, _ in texts), "columns")


def _blank(count: int) -> tuple[Any, Any, Any]:
    return (
        np.full(count, TEMPLATE, np.int8),
        np.full(count, OUTSIDE, np.int32),
        np.full(count, BY_TEMPLATE, np.int32),
    )


def _places(one: Masked) -> Any:
    return np.array(one.offsets, dtype=np.int64).reshape(-1, 2).T


def origins_of(
    one: Masked,
    messages: list[Message],
    tools: str | None,
    tokenizer: Tokenizer,
    template: RowTemplate,
    *,
    asks: bool = False,
) -> Origins:
    """Return the origins of the tokens of a conversation that a template wrote.

    `asks` says that it ends with the generation prompt.
    """
    found = written_text(
        template, messages, tools, one.text, generation_prompt=asks, is_marked=bool(one.replies)
    )
    spans = {} if asks else _spans(one, messages, tools, template, is_traced=found is not None)
    pieces: Sequence[Piece] = found.pieces if found else ()
    if found is None:
        # What is known without a trace: the replies, as far as they can be found.
        pieces = [Piece(*span, number, "content") for number, span in spans.items()]
    text = _Text(one, messages, tokenizer, template, spans)
    text.take(pieces, asks=asks)
    return text.origins(found.by if found else "spans")


def _spans(
    one: Masked,
    messages: list[Message],
    tools: str | None,
    template: RowTemplate,
    *,
    is_traced: bool,
) -> dict[int, Span]:
    """Return the spans of the assistant's turns by message, as far as marks or beginnings show them."""
    replies = [number for number, m in enumerate(messages) if m["role"] == "assistant"]
    spans: Sequence[Span] = one.replies
    if not spans and template.spans_source == template.template.source and template.has_generation:
        try:
            written, spans = template.render_spans(messages, tools)
        except TemplateError:
            written = ""
        spans = spans if written == one.text else ()
    if len(spans) == len(replies):
        return dict(zip(replies, spans, strict=True))
    # Where a reply begins follows from the generation prompt, and where it ends from its end token: only that
    # of a turn with calls may not be the first control token after its texts.
    calls = any(messages[number].get("tool_calls") for number in replies)
    if is_traced and template.generation_prompt and not calls:
        return {}
    found = {}
    for number in replies:
        start = render_beginning(template, messages[:number], tools, asks=True)
        end = render_beginning(template, messages[: number + 1], tools, asks=False)
        if start is None or end is None or len(end) <= len(start):
            continue
        if one.text.startswith(start) and one.text.startswith(end):
            found[number] = (len(start), len(end))
    return found


@dataclass
class _Text:
    """The origins of the characters of one text, as far as they are known."""

    one: Masked
    messages: list[Message]
    tokenizer: Tokenizer
    template: RowTemplate
    spans: Mapping[int, Span]

    def __post_init__(self) -> None:
        self.text = self.one.text
        # One more for tokens without text behind the last character.
        self.kinds, self.turns, self.parts = _blank(len(self.text) + 1)
        self.empty: list[Span] = []

    @cached_property
    def control(self) -> list[Span]:
        """Return where the control tokens are, in order."""
        names = self.tokenizer.control_tokens()
        known = {number for name, number in names.items() if name not in TAG_TOKENS}
        known |= set() if self.tokenizer.eos_id is None else {self.tokenizer.eos_id}
        return [
            place
            for number, place in zip(self.one.ids.tolist(), self.one.offsets, strict=True)
            if number in known and place[1] > place[0]
        ]

    def fill(self, start: int, end: int, kind: int, turn: int) -> None:
        """Say of characters that the template wrote what they are."""
        self.kinds[start:end], self.turns[start:end] = kind, turn

    def take(self, pieces: Sequence[Piece], *, asks: bool) -> None:
        """Say of every character what wrote it: of pieces the messages, between them the template."""
        pieces = list(_in_turns(pieces))
        for piece in pieces:
            kind = _KIND_OF.get(piece.wrote, HEADER)
            stretch = slice(piece.start, piece.end)
            self.kinds[stretch], self.turns[stretch] = kind, piece.message
            self.parts[stretch] = piece.part
        for start, end in _joined(piece for piece in pieces if self._replies(piece.message)):
            self.empty += [block.span() for block in EMPTY_BLOCK.finditer(self.text, start, end)]
        ends = [None, *pieces]
        gaps = list(zip(ends, [*pieces, None], strict=True))
        # What is before the first text comes last: how turns end is known by then.
        for left, right in [*gaps[1:], gaps[0]]:
            start = left.end if left else 0
            end = right.start if right else len(self.text)
            if left and right and left.message == right.message:
                self._within(left, right)
            elif end > start:
                self._between(left, right, start, end, asks=asks)
        self._images()

    def _replies(self, number: int) -> bool:
        return number >= 0 and self.messages[number]["role"] == "assistant"

    def _within(self, left: Piece, right: Piece) -> None:
        """Say what the template writes between two texts of one message."""
        ahead = REASONING if left.wrote == "reasoning" else _KIND_OF.get(right.wrote, HEADER)
        if right.wrote == "tools" and left.wrote != "tools":
            ahead = TEMPLATE
        self._written(left.end, right.start, ahead, left.message)

    def _written(self, start: int, end: int, kind: int, turn: int) -> None:
        """Say what the template writes inside of a turn: of a reply, empty blocks are its own."""
        self.fill(start, end, kind, turn)
        if self._replies(turn):
            for block in EMPTY_BLOCK.finditer(self.text, start, end):
                self.fill(*block.span(), TEMPLATE, turn)
                self.empty.append(block.span())

    def _between(
        self, left: Piece | None, right: Piece | None, start: int, end: int, *, asks: bool
    ) -> None:
        """Say what the template writes between two messages: the end of one, the beginning of the other."""
        at = start
        if right is not None and right.wrote == "tools":
            self.fill(start, end, TEMPLATE, OUTSIDE if left is None else left.message)
            return
        if left is not None:
            at = self._ending(left, right, start, end)
        before = OUTSIDE if left is None else left.message
        after = len(self.messages) if right is None else right.message
        for turn in range(before + 1, after):
            # A message of which no text is known: an empty one, or one that only calls tools.
            if turn in self.spans and at <= self.spans[turn][0] and self.spans[turn][1] <= end:
                first, last = self.spans[turn]
                self._beginning(at, first, GENERATION_PROMPT, turn, before)
                before = turn
                kind = TOOL_CALL if self.messages[turn].get("tool_calls") else TEMPLATE
                at = self._closing(first, last, kind, turn)
        if right is not None:
            self._opening(right, at, end, before)
        elif asks:
            self._beginning(at, end, GENERATION_PROMPT, OUTSIDE, before)
        else:
            self.fill(at, end, TEMPLATE, before)

    def _ending(self, left: Piece, right: Piece | None, start: int, end: int) -> int:
        """Say what ends a turn; return where that ends."""
        turn = left.message
        limit = self.spans[turn][1] if turn in self.spans else None
        last = right is None and turn == len(self.messages) - 1
        if limit is None and last:
            limit = end
        kind = _KIND_OF.get(left.wrote, TEMPLATE) if self._replies(turn) else TEMPLATE
        if turn >= 0 and self.messages[turn].get("tool_calls"):
            kind = TOOL_CALL
        return self._closing(
            start, min(limit, end) if limit else end, kind, turn, is_open=not limit
        )

    def _closing(self, start: int, end: int, kind: int, turn: int, *, is_open: bool = False) -> int:
        """Say what a turn ends with: its end token and what is before it, and the template's after it.

        Of an open one it is not known where it ends: at its first control token.
        """
        inside = [place for place in self.control if start <= place[0] and place[1] <= end]
        calls = not is_open and kind == TOOL_CALL
        if not inside:
            if is_open:
                return start
            is_blank = not self.text[start:end].strip()
            self._written(start, end, TEMPLATE if is_blank else kind, turn)
            return end
        first, after = inside[-1 if calls else 0]
        self._written(start, first, kind, turn)
        self.fill(first, after, END, turn)
        if is_open:
            return after
        self.fill(after, end, TEMPLATE, turn)
        return end

    def _opening(self, right: Piece, start: int, end: int, before: int) -> None:
        """Say what begins a turn, and what of it a reply already is."""
        turn = right.message
        if not self._replies(turn):
            self._beginning(start, end, HEADER, turn, before)
            return
        prompt = self.template.generation_prompt
        at = self.text.rfind(prompt, start, end) if prompt else -1
        if at >= 0:
            inside = at + len(prompt)
        else:
            inside = min(max(self.spans[turn][0], start), end) if turn in self.spans else end
        self._beginning(start, inside, GENERATION_PROMPT, turn, before)
        self._written(inside, end, _KIND_OF.get(right.wrote, CONTENT), turn)

    def _beginning(self, start: int, end: int, kind: int, turn: int, before_it: int) -> None:
        """Say what begins a turn, and what the template writes before it by itself."""
        text = self.text[start:end]
        at = start + len(text) - len(text.lstrip())
        before = [place for place in self.control if start <= place[0] and place[1] <= end]
        bos = self.tokenizer.special_tokens.get("bos_token")
        if bos and before and before[0][0] == 0 and text.startswith(bos) and len(before) > 1:
            at = before[0][1]
        # A turn of the template's own, such as a system prompt, ends with an end of turn too.
        ends = {self.text[slice(*place)] for place in self.control if self.kinds[place[0]] == END}
        own = [place[1] for place in before if self.text[slice(*place)] in ends]
        if own:
            rest = self.text[own[-1] : end]
            at = own[-1] + len(rest) - len(rest.lstrip())
        self.fill(start, at, TEMPLATE, before_it)
        self.fill(at, end, kind, turn)

    def _images(self) -> None:
        """Say which of what the template wrote inside of a content stands for an image."""
        written = self.template.template.compiled.image
        if not written or not any(isinstance(m.get("content"), list) for m in self.messages):
            return
        for match in re.finditer(re.escape(written), self.text):
            stretch = slice(*match.span())
            if (self.parts[stretch] == BY_TEMPLATE).all():
                self.kinds[stretch] = PAD_IMAGE

    def origins(self, by: str) -> Origins:
        """Return the origins of the tokens: a token is of the first text of a message that it holds."""
        starts, ends = _places(self.one)
        count = len(self.text)
        first = np.minimum(starts, count)
        last = np.clip(ends - 1, 0, count)
        use_last = (self.parts[first] == BY_TEMPLATE) & (self.parts[last] != BY_TEMPLATE)
        place = np.where(use_last & (ends > starts), last, first)
        blocks = np.zeros(len(starts), np.bool_)
        for start, end in self.empty:
            blocks |= (starts >= start) & (ends <= end) & (ends > starts)
        return Origins(
            self.kinds[place],
            self.turns[place],
            self.parts[place],
            tuple(message["role"] for message in self.messages),
            by,
            blocks if blocks.any() else np.zeros(0, np.bool_),
        )


def _in_turns(pieces: Sequence[Piece]) -> Iterator[Piece]:
    """Put tools into the turn in which the template writes them: into that of a system prompt before them."""
    turn = OUTSIDE
    for piece in pieces:
        turn = piece.message if piece.wrote != "tools" else turn
        yield replace(piece, message=turn)


def _joined(pieces: Iterable[Piece]) -> list[Span]:
    """Return where pieces are, those that touch as one."""
    found: list[Span] = []
    for piece in pieces:
        if found and found[-1][1] == piece.start:
            found[-1] = (found[-1][0], piece.end)
        else:
            found.append((piece.start, piece.end))
    return found


def by_origin(
    masked: Sequence[Masked],
    rule: OriginRule,
    row: Mapping[str, Any],
    table: str,
    tokenizer: Tokenizer,
    template: RowTemplate | None,
) -> tuple[Masked, ...]:
    """Return sequences without the trained tokens that a rule leaves out.

    Raises TemplateError where it is not known what the template wrote, or if it has left out reasoning of a
    reply that is to be kept.
    """
    made = with_origins(masked, row, table, tokenizer, template)
    for one in made:
        _leave_out(one, rule, row)
    return made


def _leave_out(one: Masked, rule: OriginRule, row: Mapping[str, Any]) -> None:
    origins = one.origins
    assert origins is not None
    if origins.by == "spans":
        raise TemplateError(
            "which tokens the template wrote is not known, so they cannot be left out: it cannot be traced; "
            "leave out mask_template_tokens, ignore_empty_think and keep_reasoning, or take another template"
        )
    if rule.mask_template_tokens:
        one.trained[never_sampled(one)] = False
    if rule.ignore_empty_think and len(origins.blocks):
        one.trained[origins.blocks] = False
    reasoning = origins.kinds == REASONING
    if rule.keep_reasoning == "last" and origins.of_replies.any():
        last = origins.messages[origins.of_replies].max()
        one.trained[reasoning & (origins.messages != last)] = False
    if rule.keep_reasoning == "all":
        kept = {*origins.messages[reasoning & ~origins.by_template].tolist()}
        messages = [
            *(row.get("messages") or row.get("prompt") or ()),
            *(row.get("completion") or ()),
        ]
        lost = [n for n, message in enumerate(messages) if _thinks(message) and n not in kept]
        if lost:
            raise TemplateError(
                f"keep_reasoning: all, but the template leaves out the reasoning of messages[{lost[0]}]; "
                "take a template that keeps it, or leave keep_reasoning out"
            )


def _thinks(message: object) -> bool:
    """Return whether a message is a reply with reasoning, beside its content or in it."""
    if not isinstance(message, Mapping) or message.get("role") != "assistant":
        return False
    content = message.get("content")
    said = content if isinstance(content, str) else ""
    inside = (said[start:end] for start, end in thinking.blocks(said))
    within = any(not EMPTY_BLOCK.fullmatch(block) for block in inside)
    return bool((message.get(REASONING_KEYS[0]) or "").strip()) or within


_TEMPLATES_OWN = (TEMPLATE, HEADER, GENERATION_PROMPT)
"""Kinds that a template writes by itself, in replies too, and that no model learns to write."""


def never_sampled(one: Masked) -> Bools:
    """Return which trained tokens only a template writes: a model that is asked never does."""
    assert one.origins is not None
    own = np.isin(one.origins.kinds, _TEMPLATES_OWN) & one.origins.by_template
    found: Bools = one.trained & own
    return found
