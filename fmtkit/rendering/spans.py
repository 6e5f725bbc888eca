"""Where the assistant turns are in a rendered conversation, and which tokens they are."""

import re
import sys
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from itertools import accumulate
from typing import Any

import pyarrow as pa

from fmtkit.columns import thinking
from fmtkit.core import buffers
from fmtkit.core.data_classes import dataclass
from fmtkit.rendering import chat
from fmtkit.rendering.chat import ChatTemplate, Failure
from fmtkit.rendering.content_parts import Cuts
from fmtkit.tokenizers.tokens import Tokenizer

Span = tuple[int, int]
"""First character and the one after the last."""

Message = Mapping[str, Any]
SPEAKER = "assistant"
MOST_WRITTEN = 64 << 20
"""To find its replies a conversation is rendered once for each of them: with 100,000 no memory suffices."""
TURN_BYTES = 32
"""About what a template writes around a turn."""
TOO_MANY_TURNS = (
    "so many turns, or so long ones, that their positions cannot be found by rendering each prefix of the "
    f"conversation (more than {MOST_WRITTEN >> 20} MiB of text); cut the conversation"
)
_CLOSE = re.compile(thinking.CLOSE)
_OPEN_AT_END = re.compile(rf"(?:{thinking.OPEN})\s*\Z")


@dataclass(frozen=True)
class Spanned:
    """A rendered conversation with the spans of its assistant, in order."""

    text: str
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class TokenRow:
    """One row of a Tokens table, not yet padded."""

    input_ids: list[int]
    labels: list[int]
    prompt_length: int
    anchor_mask: list[int] = field(default_factory=list)

    def cut(self, longest: int, *, at_start: bool = False) -> "TokenRow":
        """Return the row truncated to a number of tokens, at its end or at its start."""
        kept = slice(-longest, None) if at_start else slice(longest)
        gone = max(len(self.input_ids) - longest, 0) if at_start else 0
        return replace(
            self,
            input_ids=self.input_ids[kept],
            labels=self.labels[kept],
            anchor_mask=self.anchor_mask[kept],
            prompt_length=min(max(self.prompt_length - gone, 0), longest),
        )


def find_spans(
    template: ChatTemplate, conversations: pa.Array, cuts: Mapping[int, Cuts] | None = None
) -> tuple[list[Spanned | None], list[Failure]]:
    """Render conversations and find their assistant's spans; None where there is a failure.

    A span reaches from the end of the generation prompt of what came before to the end of the
    turn. Where the template writes earlier turns differently once others follow, the turn's content is
    searched after the previous span. `cuts` says by row which contents came in parts.
    """
    rows: list[list[Message]] = conversations.to_pylist()
    whole = chat.render(template, conversations, cuts=cuts)
    failures = list(whole.failures)
    costly = {i for i, row in enumerate(rows) if _written_again(row) > MOST_WRITTEN}
    failures += [Failure(i, "template_error", TOO_MANY_TURNS) for i in sorted(costly)]
    places = [
        (i, j)
        for i, row in enumerate(rows)
        for j, m in enumerate(row)
        if m["role"] == SPEAKER and i not in costly
    ]
    before = buffers.values_of([rows[i][:j] for i, j in places], conversations.type)
    through = buffers.values_of([rows[i][: j + 1] for i, j in places], conversations.type)
    begun = {n: cuts[i] for n, (i, _) in enumerate(places) if i in cuts} if cuts else None
    started = chat.render(template, before, add_generation_prompt=True, cuts=begun)
    starts = started.text.to_pylist()
    ends = chat.render(template, through, cuts=begun).text.to_pylist()
    texts = whole.text.to_pylist()
    spans: list[list[Span]] = [[] for _ in rows]
    lost: dict[int, int] = {}
    for (i, j), start, end in zip(places, starts, ends, strict=True):
        if texts[i] is None or i in lost:
            continue
        found = span_of(texts[i], start, end, rows[i][j], spans[i][-1][1] if spans[i] else 0)
        if found is None:
            lost[i] = j
        else:
            spans[i].append(found)
    message = "the text of messages[{}] cannot be found in the rendered conversation"
    failures += [
        Failure(i, "template_not_prefix_preserving", message.format(j)) for i, j in lost.items()
    ]
    out = [
        None if text is None or i in lost or i in costly else Spanned(text, tuple(spans[i]))
        for i, text in enumerate(texts)
    ]
    return out, failures


def _written_again(row: Sequence[Message]) -> int:
    """Return about how many bytes all beginnings of a conversation have that end in a reply."""
    sizes = accumulate(TURN_BYTES + len(message["content"] or "") for message in row)
    return sum(size for size, message in zip(sizes, row, strict=True) if message["role"] == SPEAKER)


def span_of(
    text: str, start: str | None, end: str | None, message: Message, start_at: int
) -> Span | None:
    """Return a turn's span: by what was written before and through it, else by its content."""
    if start is not None and end is not None and text.startswith(start) and text.startswith(end):
        return len(start), len(end)
    content = message["content"] or ""
    place = text.find(content, start_at) if content else -1
    return (place, place + len(content)) if place >= 0 else None


def thinking_spans(text: str, span: Span) -> list[Span]:
    """Return where an assistant's turn thinks; the prompt may have opened the thinking already."""
    start, end = span
    turn = text[start:end]
    found = [(start + begin, start + stop) for begin, stop in thinking.blocks(turn)]
    closing = _CLOSE.search(turn)
    if _OPEN_AT_END.search(text[:start]) and closing:
        found.append((start, start + closing.end()))
    return found


def token_rows(
    spanned: Sequence[Spanned], trained: Sequence[str], tokenizer: Tokenizer
) -> list[TokenRow]:
    """Tokenise conversations; trained on are the tokens that begin in a span of the assistant.

    `trained` says of which spans: `every` one, the `last`, or only the `answer` of the last one.

    Anchors may be in the same tokens, thinking included, also where it is not trained on.
    """
    encodings = tokenizer.encode_batch([one.text for one in spanned])
    out = []
    for one, which, encoding in zip(spanned, trained, encodings, strict=True):
        spans = one.spans if which == "every" else one.spans[-1:]
        silent = thinking_spans(one.text, spans[-1]) if which == "answer" else []
        anchors = [int(_inside(offset[0], spans)) for offset in encoding.offsets]
        labels = [
            number if anchor and not _inside(offset[0], silent) else -100
            for number, anchor, offset in zip(encoding.ids, anchors, encoding.offsets, strict=True)
        ]
        first = anchors.index(1) if 1 in anchors else len(anchors)
        out.append(TokenRow(list(encoding.ids), labels, first, anchors))
    return out


def _inside(place: int, spans: Sequence[Span]) -> bool:
    """Return whether a character is in one of some spans, which are in order."""
    before = bisect_right(spans, (place, sys.maxsize)) - 1
    return before >= 0 and place < spans[before][1]


def continuation_rows(
    contexts: Sequence[str],
    continuations: Sequence[str],
    tokenizer: Tokenizer,
    *,
    special_tokens: bool = True,
) -> list[TokenRow]:
    """Tokenise a context with special tokens and what follows it without; the latter is trained on."""
    befores = tokenizer.encode_batch(list(contexts), add_special_tokens=special_tokens)
    afters = tokenizer.encode_batch(list(continuations))
    out = []
    for before, after in zip(befores, afters, strict=True):
        context = list(before.ids)
        # A tokenizer that ends every text would end this one in the middle.
        if special_tokens and context and context[-1] == tokenizer.eos_id:
            context.pop()
        ids = [*context, *after.ids]
        labels = [-100] * len(context) + list(after.ids)
        anchors = [0] * len(context) + [1] * len(after.ids)
        out.append(TokenRow(ids, labels, len(context), anchors))
    return out
