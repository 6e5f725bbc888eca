"""Conversations that TRL cannot mask: rows tokenized here, with labels on the replies that are learnt.

A message with `train: false` (or `weight: 0`) is read by the model and not learnt. A template that
marks no replies leaves TRL without a mask: the replies are found by writing turn after turn.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # Other methods than sft render nothing here: their processes start without polars.
    from fmtkit.rendering.chat import ChatTemplate

COLUMN = "trained_messages"
"""For each message of a row whether it is learnt."""


def has_untrained(files: Iterable[str]) -> bool:
    """Tell whether a message of these Parquet files says that it is not to be learnt."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    path = "messages.list.element.train"
    for file in files:
        parquet = pq.ParquetFile(file)
        if path not in {parquet.schema.column(i).path for i in range(len(parquet.schema))}:
            continue
        messages = parquet.read(columns=[path]).column("messages")
        flags = pc.struct_field(pc.list_flatten(messages), "train")
        if pc.any(pc.invert(flags)).as_py():
            return True
    return False


def with_flags(rows: Any) -> Any:
    """Add the column that says which messages are learnt; a message that says nothing is."""

    def flags(batch: Mapping[str, list[list[dict[str, Any]]]]) -> dict[str, list[list[bool]]]:
        return {COLUMN: [[m.get("train") is not False for m in d] for d in batch["messages"]]}

    return rows.map(flags, batched=True)


def needs_marks(rows: Any, tokenizer: Any, *, everything: bool) -> bool:
    """Tell whether rows must be tokenized here: TRL masks by a template's marks, and knows no flags."""
    if COLUMN in rows.column_names:
        return True
    return not everything and "messages" in rows.column_names and not is_marked(tokenizer)


def is_marked(tokenizer: Any) -> bool:
    """Tell whether the chat template of a tokenizer, or TRL's variant of it, marks replies."""
    from fmtkit.rendering.row_templates import RowTemplate

    return RowTemplate(_template(tokenizer)).has_generation


def tokenized(rows: Any, tokenizer: Any, *, everything: bool) -> Any:
    """Return `input_ids` and `labels`: -100 outside of the replies that are learnt.

    `everything` learns the prompts as well (`train_on_inputs`). Raises TemplateError where the
    replies cannot be found in what the template writes.
    """
    from fmtkit.rendering.reply_spans import reply_spans
    from fmtkit.rendering.row_templates import RowTemplate
    from fmtkit.surveying.dialog_masks import learnt_replies

    variables = rows[0].get("chat_template_kwargs") or {}
    template = RowTemplate(_template(tokenizer).with_kwargs(variables))

    def encode(row: Mapping[str, Any]) -> dict[str, list[int]]:
        tools = row.get("tools")
        given = tools if tools is None or isinstance(tools, str) else json.dumps(tools)
        text, spans = reply_spans(template, row["messages"], given)
        flags = row.get(COLUMN) or [True] * len(row["messages"])
        chosen = learnt_replies(row["messages"], flags, spans)
        encoding = tokenizer(text, add_special_tokens=False)
        ids = encoding["input_ids"]
        labels = list(ids) if everything else [-100] * len(ids)
        for (start, end), is_learnt in zip(spans, chosen, strict=True):
            first, last = encoding.char_to_token(start), encoding.char_to_token(end - 1)
            if first is None or last is None:
                continue
            for place in range(first, last + 1):
                labels[place] = ids[place] if is_learnt else -100
        return {"input_ids": ids, "labels": labels}

    return rows.map(encode, remove_columns=rows.column_names)


def _template(tokenizer: Any) -> ChatTemplate:
    from fmtkit.rendering import template_sources

    special = {name: str(text) for name, text in tokenizer.special_tokens_map.items()}
    return template_sources.recognised("template", tokenizer.chat_template, special)
