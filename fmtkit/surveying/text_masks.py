"""Masks of rows that are text already: ids and masks as TRL 1.16 builds them of plain strings.

TRL lets the tokenizer add its BOS and EOS and appends the text of EOS where a reply does not end
with it: text that a chat template wrote gets both a second time.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fmtkit.surveying.masks import Masked, common_prefix
from fmtkit.tokens import Tokenizer

SIDES = {
    "Preference": ("chosen", "rejected"),
    "Unpaired": ("completion",),
    "Completion": ("completion",),
}
RULE = {"Preference": "preference", "Unpaired": "unpaired", "Completion": "sft"}


def mask_texts(row: Mapping[str, Any], table: str, tokenizer: Tokenizer) -> tuple[Masked, ...]:
    """Return the sequences of a row of texts, in the order chosen, rejected."""
    if table not in SIDES:
        text = row.get("text", row.get("prompt", ""))
        rule = "everything" if table == "Conversation" else "context"
        one = _encoded(
            text + _end(text, tokenizer) if rule == "everything" else text, tokenizer, rule
        )
        return (replace(one, trained=np.full(len(one.ids), fill_value=rule == "everything")),)
    context = tokenizer.encode(row["prompt"], add_special_tokens=True).ids
    replies = [row[side] + _end(row[side], tokenizer) for side in SIDES[table]]
    made = [_encoded(row["prompt"] + reply, tokenizer, RULE[table]) for reply in replies]
    length = min(common_prefix(context, one.ids) for one in made)
    sides = SIDES[table] if len(made) > 1 else ("",)
    for one in made:
        one.trained[length:] = True
    return tuple(
        replace(one, side=side, prompt_length=length, notes=_notes(one, tokenizer))
        for one, side in zip(made, sides, strict=True)
    )


def _end(text: str, tokenizer: Tokenizer) -> str:
    eos = tokenizer.special_tokens.get("eos_token") or ""
    return "" if text.endswith(eos) else eos


def _encoded(text: str, tokenizer: Tokenizer, rule: str) -> Masked:
    encoding = tokenizer.encode(text, add_special_tokens=True)
    ids = np.array(encoding.ids, dtype=np.int64)
    nothing = np.zeros(len(ids), dtype=np.bool_)
    return Masked("", text, ids, nothing, tuple(encoding.offsets), 0, rule)


def _notes(one: Masked, tokenizer: Tokenizer) -> tuple[str, ...]:
    bos = tokenizer.bos_id
    if bos is not None and one.ids[:2].tolist() == [bos, bos]:
        return ("the text begins with a BOS token and the tokenizer adds another",)
    return ()
