"""Masks of conversations that a chat template renders, as TRL 1.16 makes them, or by a rule of turns.

Two faults of transformers are reproduced, and a note says so: nothing is trained from a generation span that
begins in no token on, and everything is trained after one that ends in no token.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tokenizers import Encoding

from fmtkit.core.errors import TemplateError
from fmtkit.masks.masked import Masked, Span, common_prefix, encoded
from fmtkit.rendering.row_templates import Message, RowTemplate
from fmtkit.rendering.turn_spans import UNMARKED, content_spans, reply_spans
from fmtkit.tokenizers.tokens import Tokenizer
from fmtkit.tokenizers.turn_rule import USUAL_TURNS, TurnRule, details_of, trained_tokens


def mask_conversation(
    messages: list[Message],
    tools: str | None,
    tokenizer: Tokenizer,
    template: RowTemplate,
    *,
    everything: bool,
    turns: TurnRule = USUAL_TURNS,
) -> Masked:
    """Train the replies, or everything, except messages with `train: false`.

    Unless `turns` and the messages ask for replies alone (`TurnRule.is_plain`), the rule decides for each
    turn and its end.
    """
    if not turns.is_plain(messages):
        return _by_turns(messages, tools, tokenizer, template, turns, everything=everything)
    flags = [message.get("train") is not False for message in messages]
    if all(flags) and everything:
        one = encoded(template.render(messages, tools), tokenizer, "everything")
        return replace(one, trained=np.ones(len(one.ids), dtype=np.bool_))
    text, spans = reply_spans(template, messages, tools)
    if all(flags) and template.has_generation:
        return _by_generation_spans(text, spans, tokenizer)
    one = encoded(text, tokenizer, "everything" if everything else "replies")
    encoding = tokenizer.encode(text)
    one.trained[:] = everything
    for span, is_trained in zip(spans, trained_replies(messages, flags, spans), strict=True):
        first, last = _ends_with_whole_character(encoding, span)
        if first is not None and last is not None:
            one.trained[first : last + 1] = is_trained
    notes = [] if template.has_generation else [UNMARKED]
    if not all(flags):
        notes.append(f"{flags.count(False)} messages are not to be trained on (`train: false`)")
    marked = tuple(spans) if template.has_generation else ()
    return replace(one, prompt_length=_first_trained(one), notes=tuple(notes), replies=marked)


def _by_generation_spans(text: str, spans: Sequence[Span], tokenizer: Tokenizer) -> Masked:
    """Train spans as transformers marks them for TRL's `assistant_only_loss`."""
    one, encoding = encoded(text, tokenizer, "assistant"), tokenizer.encode(text)
    notes: list[str] = []
    for span in spans:
        first, last = _ends(encoding, span)
        if first is None:
            notes.append(
                "a generation span begins in no token: transformers trains nothing from there on"
            )
            break
        if not last:
            notes.append(
                "a generation span ends in no token: transformers trains all that follows it"
            )
        one.trained[first : last + 1 if last else len(one.ids)] = True
    return replace(one, prompt_length=_first_trained(one), notes=tuple(notes), replies=tuple(spans))


MOST_AFTER = 3
"""The end of a turn is looked for in so many tokens after its content, as in axolotl."""


def _by_turns(
    messages: list[Message],
    tools: str | None,
    tokenizer: Tokenizer,
    template: RowTemplate,
    turns: TurnRule,
    *,
    everything: bool,
) -> Masked:
    """Train the turns that a rule names: their contents, and the ends of turns that it names."""
    text, spans = reply_spans(template, messages, tools)
    contents = content_spans(template, messages, tools, text)
    trained = [turns.trains_on(message, everything=everything) for message in messages]
    # Raises if the spans are not those of the replies.
    trained_replies(messages, trained, spans)
    one, encoding = encoded(text, tokenizer, "turns"), tokenizer.encode(text)
    control = frozenset(tokenizer.control_tokens().values())
    replies, last, lost = iter(spans), None, 0
    for message, content, is_trained in zip(messages, contents, trained, strict=True):
        reply = next(replies) if message["role"] == "assistant" else None
        span = reply or content
        lost += is_trained and span is None and bool(message.get("content"))
        first, final = _ends_with_whole_character(encoding, span) if span else (None, None)
        if first is None or final is None:
            continue
        following = _token_after(encoding, content, first, final) if reply else final + 1
        limit = max(final, following - 1 + MOST_AFTER) + 1
        end = next(
            (i for i in range(following, min(limit, len(one.ids))) if one.ids[i] in control), None
        )
        if is_trained and message.get("train_detail") is not None:
            lost += not _train_details(one, encoding, message, content, text)
        elif is_trained:
            one.trained[first : final + 1 if end is None else min(end, final + 1)] = True
        if end is not None:
            end_is_trained = turns.ends == "all" or (turns.ends == "turn" and is_trained)
            one.trained[end : end + 1] = end_is_trained
            if reply and is_trained and turns.ends in ("turn", "all"):
                one.trained[end : final + 1] = True
            last = end
    if turns.ends == "last" and last is not None:
        one.trained[last] = True
    notes = [f"{lost} turns are not found in what the template writes"] if lost else []
    return replace(one, prompt_length=_first_trained(one), notes=tuple(notes))


def _train_details(
    one: Masked, encoding: Encoding, message: Message, content: Span | None, text: str
) -> bool:
    """Mark the parts of a content that its message names; return whether the content was found."""
    said = message.get("content") or ""
    # A template may have trimmed the content, or left the thinking out of it.
    begins = said.find(text[slice(*content)]) if content else -1
    first, final = _ends(encoding, content) if content else (None, None)
    if content is None or begins < 0 or first is None or final is None:
        return False
    # As in axolotl, a token ends before the next begins: several tokens may make up one character.
    starts = [one.offsets[i][0] - content[0] + begins for i in range(first, final + 1)]
    stops = [*(start - 1 for start in starts[1:]), content[1] - content[0] + begins - 1]
    trained = trained_tokens(details_of(message), list(zip(starts, stops, strict=True)))
    one.trained[first : final + 1] = trained
    return True


def _token_after(encoding: Encoding, content: Span | None, first: int, final: int) -> int:
    """Return the token from which a reply's end is searched: the one after its content, or its first."""
    is_empty = content is None or content[1] == content[0]
    at = None if is_empty or content is None else _ends_with_whole_character(encoding, content)[1]
    return first if at is None or not first <= at <= final else at + 1


def trained_replies(
    messages: Sequence[Mapping[str, Any]], flags: Sequence[bool], spans: Sequence[Span]
) -> list[bool]:
    """Return for each generation block whether its reply is trained on; raise if there are more or fewer."""
    replies = [flag for m, flag in zip(messages, flags, strict=True) if m["role"] == "assistant"]
    if len(replies) != len(spans):
        raise TemplateError(
            f"the chat template marks {len(spans)} generation blocks for {len(replies)} replies, so "
            "`train: false` of a message cannot be placed; take a shipped template, such as chatml"
        )
    return replies


def mask_replies(
    prompt: list[Message],
    replies: Sequence[list[Message]],
    tools: str | None,
    tokenizer: Tokenizer,
    template: RowTemplate,
) -> list[Masked]:
    """Train the tokens after the longest prefix that the prompt and all complete sequences have in common."""
    context, made = _rendered(prompt, replies, tools, tokenizer, template)
    length = min(common_prefix(context, one.ids) for one in made)
    return [_trained_after(one, length, len(context)) for one in made]


def mask_each_reply(
    prompt: list[Message],
    replies: Sequence[list[Message]],
    tools: str | None,
    tokenizer: Tokenizer,
    template: RowTemplate,
) -> list[Masked]:
    """Do as `mask_replies`, but with a prefix for each reply, as fmtkit's CPO and ORPO do."""
    context, made = _rendered(prompt, replies, tools, tokenizer, template)
    return [_trained_after(one, common_prefix(context, one.ids), len(context)) for one in made]


def mask_answer(
    messages: list[Message], tools: str | None, tokenizer: Tokenizer, template: RowTemplate
) -> Masked:
    """Train the last turn, as TRL's collator for GKD finds it.

    With a byte-level tokenizer it begins at the first token after the prompt's text, with any other after as
    many tokens as the prompt alone has.
    """
    context = template.render(messages[:-1], tools, add_generation_prompt=True)
    one = encoded(template.render(messages, tools), tokenizer, "teacher")
    start = len(tokenizer.encode(context).ids)
    if _is_byte_level(tokenizer):
        following = (i for i, (first, _) in enumerate(one.offsets) if first >= len(context))
        start = next(following, len(one.ids))
    one.trained[start:] = True
    return replace(one, prompt_length=min(start, len(one.ids)))


def _is_byte_level(tokenizer: Tokenizer) -> bool:
    """Return whether a tokenizer is byte-level, as TRL decides it (`is_byte_level_tokenizer`)."""
    backend = tokenizer.backend
    return "ByteLevel" in repr(backend.pre_tokenizer) or "ByteLevel" in repr(backend.decoder)


def mask_score(
    messages: list[Message], tools: str | None, tokenizer: Tokenizer, template: RowTemplate
) -> Masked:
    """Mark the last token, at which a reward model scores."""
    one = encoded(template.render(messages, tools), tokenizer, "score")
    one.trained[-1:] = True
    return replace(one, prompt_length=max(len(one.ids) - 1, 0))


def mask_context(
    prompt: list[Message], tools: str | None, tokenizer: Tokenizer, template: RowTemplate
) -> Masked:
    """Train nothing: the reply is made while training."""
    one = encoded(template.render(prompt, tools, add_generation_prompt=True), tokenizer, "context")
    return replace(one, prompt_length=len(one.ids))


def _rendered(
    prompt: list[Message],
    replies: Sequence[list[Message]],
    tools: str | None,
    tokenizer: Tokenizer,
    template: RowTemplate,
) -> tuple[list[int], list[Masked]]:
    context = tokenizer.encode(template.render(prompt, tools, add_generation_prompt=True)).ids
    return context, [
        encoded(template.render(prompt + reply, tools), tokenizer, "completion")
        for reply in replies
    ]


def _trained_after(one: Masked, length: int, prompt_length: int) -> Masked:
    one.trained[length:] = True
    notes = () if length == prompt_length else (
        f"the last {prompt_length - length} tokens of the prompt are not in the whole: "
        "the template or the tokenizer writes them differently once a reply follows",
    )  # fmt: skip
    return replace(one, prompt_length=length, notes=notes)


def _ends_with_whole_character(encoding: Encoding, span: Span) -> tuple[int | None, int | None]:
    """Return the tokens in which a span begins and ends; an emoji at its end may have several."""
    first, last = _ends(encoding, span)
    offsets = encoding.offsets
    while last is not None and last + 1 < len(offsets) and offsets[last][1] == offsets[last + 1][1]:
        last += 1
    return first, last


def _ends(encoding: Encoding, span: Span) -> tuple[int | None, int | None]:
    """Return the tokens in which a span begins and ends; None where a character is in no token."""
    return encoding.char_to_token(span[0]), encoding.char_to_token(span[1] - 1)


def _first_trained(one: Masked) -> int:
    return int(np.argmax(one.trained)) if one.trained.any() else len(one.ids)
