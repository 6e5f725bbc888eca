"""Which tokens of a row are trained: the ids and masks that `fmtkit train` makes of it.

Tests compare them with the batches of fmtkit's own runs, and with TRL's trainers and collators.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fmtkit.core.errors import OptionError
from fmtkit.core.tables import STEP_SEPARATOR
from fmtkit.counting.anchors import AnchorRule, row_anchors
from fmtkit.masks.conversation_masks import (
    mask_answer,
    mask_context,
    mask_conversation,
    mask_each_reply,
    mask_replies,
    mask_score,
)
from fmtkit.masks.masked import Ints, Masked
from fmtkit.masks.masking import USUAL, Masking
from fmtkit.masks.text_masks import as_messages, identity, is_prerendered, mask_text
from fmtkit.masks.token_origins import by_origin
from fmtkit.rendering.row_templates import Message, RowTemplate
from fmtkit.tokenizers.segment_tokens import SegmentTokens, cut, segment_tokens
from fmtkit.tokenizers.tokens import Tokenizer
from fmtkit.tokenizers.turn_rule import AS_MASKED, USUAL_TURNS

ANSWERLESS = ("Prompt", "Reference", "Ranking")
"""Tables whose rows are only context."""


def mask_row(
    row: Mapping[str, Any],
    table: str,
    tokenizer: Tokenizer,
    template: RowTemplate | None = None,
    masking: Masking = USUAL,
) -> tuple[Masked, ...]:
    """Return the sequences of one canonical row, in the order chosen, rejected.

    Raises OptionError where the table needs a template and there is none, TemplateError where the
    template refuses the messages, or masks by origin cannot be made of what it writes.
    """
    made = _masks(row, table, tokenizer, template, masking)
    if masking.by_origin == AS_MASKED:
        return made
    return by_origin(made, masking.by_origin, row, table, tokenizer, template)


def _masks(
    row: Mapping[str, Any],
    table: str,
    tokenizer: Tokenizer,
    template: RowTemplate | None,
    masking: Masking,
) -> tuple[Masked, ...]:
    if table == "Tokens":
        return (mask_tokens(row, tokenizer, masking.anchors),)
    if table == "Stepwise":
        one = mask_steps(
            row,
            tokenizer,
            step_separator=masking.step_separator,
            train_on_last_step_only=masking.train_on_last_step_only,
        )
        return (one,)
    if table == "Segments":
        return mask_segments(row, tokenizer, masking.max_length, everything=masking.train_on_inputs)
    if is_prerendered(row, table):
        if masking.rule != "teacher":
            return mask_text(row, table, tokenizer, masking)
        row, template = as_messages(row), identity()
    if template is None:
        raise OptionError(f"masks of a {table} table need a chat template: --chat-template NAME")
    if table in ANSWERLESS:
        return (mask_context(row["prompt"], row.get("tools"), tokenizer, template),)
    if table == "Conversation":
        return (_conversation(row, tokenizer, template, masking),)
    return _replies(row, table, tokenizer, template, masking)


def _conversation(
    row: Mapping[str, Any], tokenizer: Tokenizer, template: RowTemplate, masking: Masking
) -> Masked:
    messages, tools = row["messages"], row.get("tools")
    if masking.rule == "teacher":
        return mask_answer(messages, tools, tokenizer, template)
    everything = masking.learns_all("Conversation")
    return mask_conversation(
        messages, tools, tokenizer, template, everything=everything, turns=masking.turns
    )


def _replies(
    row: Mapping[str, Any],
    table: str,
    tokenizer: Tokenizer,
    template: RowTemplate,
    masking: Masking,
) -> tuple[Masked, ...]:
    prompt, tools = row["prompt"], row.get("tools")
    sides = ("chosen", "rejected") if table == "Preference" else ("completion",)
    replies: list[list[Message]] = [row[side] for side in sides]
    rule = masking.rule_of(table)
    everything = masking.learns_all("Completion")
    is_whole = everything and not masking.assistant_only
    if rule == "completion" and (masking.turns != USUAL_TURNS or is_whole):
        whole = {"messages": prompt + replies[0], "tools": tools}
        all_of = frozenset({"Conversation"} if everything else ())
        return (_conversation(whole, tokenizer, template, replace(masking, all_of=all_of)),)
    if rule == "score":
        made = [mask_score(prompt + reply, tools, tokenizer, template) for reply in replies]
    elif rule == "teacher":
        made = [mask_answer(prompt + reply, tools, tokenizer, template) for reply in replies]
    else:
        mask = mask_each_reply if rule == "each_reply" else mask_replies
        made = mask(prompt, replies, tools, tokenizer, template)
    if rule == "completion" and masking.assistant_only:
        conversation = prompt + replies[0]
        marked = mask_conversation(conversation, tools, tokenizer, template, everything=False)
        if not everything:
            marked.trained[:] &= made[0].trained
        length = made[0].prompt_length
        made, rule = [replace(marked, prompt_length=length)], "assistant"
    rule = "preference" if rule == "each_reply" else rule
    names = sides if len(sides) > 1 else ("",)
    return tuple(replace(one, side=s, rule=rule) for one, s in zip(made, names, strict=True))


def mask_tokens(row: Mapping[str, Any], tokenizer: Tokenizer, rule: AnchorRule) -> Masked:
    """Return a row without its padding, as the collator of strided EBFT cuts it."""
    attended = np.array(row["attention_mask"], dtype=np.bool_)
    length = int(attended.sum())
    is_right = bool(attended[:length].all())
    kept = length if is_right else len(attended)
    ids = np.array(row["input_ids"][:kept], dtype=np.int64)
    labels = np.array(row["labels"][:kept], dtype=np.int64)
    anchors = row_anchors(rule, row, length) if is_right else []
    text, offsets = _spelled(ids, tokenizer)
    return Masked(
        "",
        text,
        ids,
        (labels != -100) & attended[:kept],
        offsets,
        int(row["prompt_length"]),
        "blocks",
        windows=tuple((a, a + rule.generate_max_len) for a in anchors),
        notes=_window_notes(is_right=is_right, has_anchors=bool(anchors)),
    )


def _window_notes(*, is_right: bool, has_anchors: bool) -> tuple[str, ...]:
    if not is_right:
        return ("padding comes before a token: strided EBFT refuses the row",)
    if not has_anchors:
        return ("no window fits: only ce_coef trains the row",)
    return ()


def _spelled(ids: Ints, tokenizer: Tokenizer) -> tuple[str, tuple[tuple[int, int], ...]]:
    pieces = [
        tokenizer.backend.decode([number], skip_special_tokens=False) for number in ids.tolist()
    ]
    ends = np.cumsum([len(piece) for piece in pieces], dtype=np.int64).tolist()
    return "".join(pieces), tuple(zip([0, *ends[:-1]], ends, strict=False))


def mask_segments(
    row: Mapping[str, Any], tokenizer: Tokenizer, longest: int | None, *, everything: bool
) -> tuple[Masked, ...]:
    """Return the sequence of a row; of a document that is longer than `longest`, its parts."""
    whole = segment_tokens(row["segments"], row["ends"], tokenizer, everything=everything)
    parts = [whole]
    if row["ends"] == "document" and longest is not None:
        parts = cut(whole, longest)
    rule = "everything" if everything else "segments"
    return tuple(_masked(part, rule, number, len(parts)) for number, part in enumerate(parts, 1))


def _masked(part: SegmentTokens, rule: str, number: int, parts: int) -> Masked:
    trained = np.array(part.trained, dtype=np.bool_)
    first = int(np.argmax(trained)) if trained.any() else len(part.ids)
    side = f"part {number} of {parts}" if parts > 1 else ""
    ids = np.array(part.ids, dtype=np.int64)
    return Masked(side, part.text, ids, trained, tuple(part.offsets), first, rule)


def mask_steps(
    row: Mapping[str, Any],
    tokenizer: Tokenizer,
    *,
    step_separator: str = STEP_SEPARATOR,
    train_on_last_step_only: bool = False,
) -> Masked:
    """Return the sequence of a stepwise row; its labels are those that are trained on, as the row has them.

    A step's label is on the token after it. The ids are those of TRL's PRM trainer (last in TRL 1.13),
    which `fmtkit train` makes itself.
    """
    separator = tokenizer.encode(step_separator).ids
    prompt = tokenizer.encode(row["prompt"])
    bos = [] if tokenizer.bos_id is None else [tokenizer.bos_id]
    ids, places, text = [*bos, *prompt.ids], [], row["prompt"]
    offsets = [*((0, 0) for _ in bos), *prompt.offsets]
    for step in row["completions"]:
        encoding = tokenizer.encode(step)
        ids += [*encoding.ids, *separator]
        offsets += [(len(text) + a, len(text) + b) for a, b in encoding.offsets]
        text += step + step_separator
        offsets += [(len(text) - len(step_separator), len(text))] * len(separator)
        places.append(len(ids) - 1)
    chosen = places[-1:] if train_on_last_step_only else places
    trained = np.zeros(len(ids), dtype=np.bool_)
    trained[chosen] = True
    labels = tuple(float(label) for label in row["labels"][len(places) - len(chosen) :])
    return Masked(
        "",
        text,
        np.array(ids, dtype=np.int64),
        trained,
        tuple(offsets),
        len(bos) + len(prompt.ids),
        "steps",
        steps=labels,
        notes=_label_notes(labels),
    )


def _label_notes(labels: Sequence[float]) -> tuple[str, ...]:
    is_soft = any(label not in (0.0, 1.0) for label in labels)
    return ("soft labels: from one half on a step counts as right",) if is_soft else ()
