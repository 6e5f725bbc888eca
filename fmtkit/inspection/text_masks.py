"""Rows of prerendered text, as `fmtkit train` gives them to a trainer: messages that are rendered unchanged.

TRL by itself would let the tokenizer add a second BOS and append a second EOS to such text.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fmtkit.inspection.masked import Masked
from fmtkit.rendering import template_sources
from fmtkit.rendering.row_templates import Message, RowTemplate
from fmtkit.tokenizers.tokens import Tokenizer

_ROLE_OF_COLUMN = {
    "prompt": "user",
    "chosen": "assistant",
    "rejected": "assistant",
    "completion": "assistant",
    "text": "assistant",
}
"""Column of text -> the role that its text is given."""

_NOT_CONVERSATIONS = frozenset({"Segments", "Stepwise", "Tokens"})
"""Tables whose texts are not conversations."""


def is_prerendered(row: Mapping[str, Any], table: str) -> bool:
    """Return whether a row's conversations are rendered text."""
    return isinstance(row.get("prompt", row.get("text")), str) and table not in _NOT_CONVERSATIONS


def mask_plain_prompt(text: str, tokenizer: Tokenizer) -> Masked:
    """Return a prompt that is sampled from as text: the tokenizer adds its special tokens."""
    encoding = tokenizer.encode(text, add_special_tokens=True)
    ids = np.array(encoding.ids, dtype=np.int64)
    nothing = np.zeros(len(ids), dtype=np.bool_)
    return Masked("", text, ids, nothing, tuple(encoding.offsets), len(ids), "context")


def as_messages(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of text as a row of messages."""
    out = dict(row)
    for name, role in _ROLE_OF_COLUMN.items():
        if isinstance(out.get(name), str):
            message: Message = {"role": role, "content": out.pop(name)}
            out["messages" if name == "text" else name] = [message]
    return out


def identity() -> RowTemplate:
    """Return the template that renders messages as their contents."""
    return RowTemplate(template_sources.find_family("identity"))
