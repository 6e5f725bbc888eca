"""Rows of prerendered text, as `fmtkit train` gives them to a trainer: messages that print as they are.

TRL by itself would let the tokenizer add a second BOS and append a second EOS to such text.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fmtkit.inspection.masked import Masked
from fmtkit.rendering import template_sources
from fmtkit.rendering.row_templates import Message, RowTemplate
from fmtkit.tokenizers.tokens import Tokenizer

WORDED = {"prompt": "user", "chosen": "assistant", "rejected": "assistant",
          "completion": "assistant", "text": "assistant"}  # fmt: skip
"""Column of text -> the role that its text is given."""

NOT_WORDED = frozenset({"Segments", "Stepwise", "Tokens"})
"""Tables whose texts are not conversations."""


def is_finished_text(row: Mapping[str, Any], table: str) -> bool:
    """Return whether a row's conversations are text already."""
    return isinstance(row.get("prompt", row.get("text")), str) and table not in NOT_WORDED


def mask_plain_prompt(text: str, tokenizer: Tokenizer) -> Masked:
    """Return a prompt that is sampled from as text: the tokenizer adds its special tokens."""
    encoding = tokenizer.encode(text, add_special_tokens=True)
    ids = np.array(encoding.ids, dtype=np.int64)
    nothing = np.zeros(len(ids), dtype=np.bool_)
    return Masked("", text, ids, nothing, tuple(encoding.offsets), len(ids), "context")


def worded(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of text as a row of messages."""
    out = dict(row)
    for name, role in WORDED.items():
        if isinstance(out.get(name), str):
            message: Message = {"role": role, "content": out.pop(name)}
            out["messages" if name == "text" else name] = [message]
    return out


def identity() -> RowTemplate:
    """Return the template that prints messages as they are."""
    return RowTemplate(template_sources.find_family("identity"))
