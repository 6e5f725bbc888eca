"""Masks of rows of text: ids and marks as the trainer of a method makes them of strings.

A method whose trainer takes only messages (GKD, GOLD) gets each text as messages that are rendered unchanged.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fmtkit.core.tables import UNRENDERED
from fmtkit.masks.masked import Masked, common_prefix
from fmtkit.masks.masking import Masking
from fmtkit.rendering import template_sources
from fmtkit.rendering.row_templates import Message, RowTemplate
from fmtkit.tokenizers.text_ends import TextTokens, tokens_of
from fmtkit.tokenizers.tokens import Tokenizer

_ROLE_OF_COLUMN = {
    "prompt": "user",
    "chosen": "assistant",
    "rejected": "assistant",
    "completion": "assistant",
    "text": "assistant",
}
"""Column of text -> the role that its text is given."""


def is_prerendered(row: Mapping[str, Any], table: str) -> bool:
    """Return whether a row's conversations are rendered text."""
    begins = row.get("text") if row.get("prompt") is None else row["prompt"]
    return isinstance(begins, str) and table not in UNRENDERED


def mask_text(
    row: Mapping[str, Any], table: str, tokenizer: Tokenizer, masking: Masking
) -> tuple[Masked, ...]:
    """Return the sequences of a row of text; a prompt to sample from is one too.

    Raises TokenizerError if the trainer writes an EOS that the tokenizer does not have.
    """
    if table == "Conversation":
        return (_whole(row["text"], tokenizer, masking),)
    names = [name for name in ("chosen", "rejected", "completion") if row.get(name) is not None]
    if not names:
        return (mask_plain_prompt(row["prompt"], tokenizer),)
    ends = masking.text_ends(table)
    context = tokens_of(row["prompt"], tokenizer, ends, closed=False).ids
    made = [tokens_of(row["prompt"] + row[name], tokenizer, ends, closed=True) for name in names]
    lengths = [common_prefix(context, one.ids) for one in made]
    rule = masking.rule_of(table)
    if rule == "preference":
        # TRL's trainers cut a pair where its prompt ends in both of its rows.
        lengths = [min(lengths)] * len(lengths)
    sides = names if len(names) > 1 else [""]
    return tuple(
        replace(_reply(one, length, len(context), rule, masking), side=side)
        for one, length, side in zip(made, lengths, sides, strict=True)
    )


def _whole(text: str, tokenizer: Tokenizer, masking: Masking) -> Masked:
    made = tokens_of(text, tokenizer, masking.text_ends("Conversation"), closed=True)
    is_trained = "assistant" in masking.turns.roles or masking.learns_all("Conversation")
    return replace(_masked(made, "everything"), trained=_marks(made, is_trained))


def _reply(made: TextTokens, length: int, context: int, rule: str, masking: Masking) -> Masked:
    one = replace(_masked(made, rule), prompt_length=length)
    if rule == "score":
        one.trained[-1:] = True
        return replace(one, prompt_length=len(one.ids))
    if rule == "completion":
        everything, roles = masking.learns_all("Completion"), masking.turns.roles
        one.trained[:length] = everything or "user" in roles
        one.trained[length:] = everything or "assistant" in roles
        if everything:
            return replace(one, rule="everything")
    else:
        one.trained[length:] = True
    lost = context - length
    notes = () if lost == 0 else (
        f"the last {lost} tokens of the prompt are not in the whole: the tokenizer writes them "
        "differently once a reply follows",
    )  # fmt: skip
    return replace(one, rule="preference" if rule == "each_reply" else rule, notes=notes)


def _masked(made: TextTokens, rule: str) -> Masked:
    ids = np.array(made.ids, dtype=np.int64)
    return Masked("", made.text, ids, _marks(made, False), made.offsets, 0, rule)


def _marks(made: TextTokens, is_trained: bool) -> "np.ndarray[Any, np.dtype[np.bool_]]":
    return np.full(len(made.ids), is_trained, dtype=np.bool_)


def mask_plain_prompt(text: str, tokenizer: Tokenizer) -> Masked:
    """Return a prompt that is sampled from as text: the tokenizer adds its special tokens."""
    made = tokens_of(text, tokenizer, "text", closed=False)
    return replace(_masked(made, "context"), prompt_length=len(made.ids))


def as_messages(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of text as a row of messages."""
    out = dict(row)
    for name, role in _ROLE_OF_COLUMN.items():
        if isinstance(out.get(name), str):
            message: Message = {"role": role, "content": out.pop(name)}
            out["messages" if name == "text" else name] = [message]
    return out


def as_text(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of messages that `as_messages` made as the row of text that it was."""
    out = dict(row)
    for name in ("messages", *_ROLE_OF_COLUMN):
        value = out.get(name)
        if isinstance(value, Sequence) and not isinstance(value, str):
            text = "".join(message["content"] for message in out.pop(name))
            out["text" if name == "messages" else name] = text
    return out


def identity() -> RowTemplate:
    """Return the template that renders messages as their contents."""
    return RowTemplate(template_sources.find_family("identity"))
