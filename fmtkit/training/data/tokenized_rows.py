"""Rows that TRL cannot mask: tokenized here, with labels on what is trained on, for its SFTTrainer.

These are segments of text, conversations of which not exactly the replies are trained on, and those whose
template marks no replies. The ids and marks are those that `fmtkit inspect` shows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fmtkit.core.errors import TokenizerError
from fmtkit.core.runner import Runner
from fmtkit.tokenizers.turn_rule import AS_MASKED, USUAL_TURNS, TurnRule

if TYPE_CHECKING:
    # Methods other than sft render nothing here: their processes start without polars.
    from fmtkit.masks.masking import Masking
    from fmtkit.rendering.chat import ChatTemplate
    from fmtkit.rendering.row_templates import RowTemplate
    from fmtkit.tokenizers.tokens import Tokenizer
    from fmtkit.training.data.loss_rules import LossRule

COLUMN = "trained_messages"
"""For each message of a row whether it says that it is trained on: true, false or null."""
DETAIL_COLUMN = "train_details"
"""For each message of a row the parts of its content that are trained on, as JSON text, or null."""
VARIABLES = "chat_template_kwargs"
"""The column in which TRL's trainers look for a row's arguments of apply_chat_template."""
RULE_COLUMN = "turn_rule"
"""The rule of a row's dataset as JSON text, where it is not the usual one."""

STRINGS = frozenset({"string", "large_string"})
"""The types of columns of text."""
TOKENIZED = ("input_ids", "labels")
"""The columns of rows that are tokenized here."""


def has_flags(files: Iterable[str]) -> bool:
    """Return whether the flags in these Parquet files train on anything but exactly the replies."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    paths = [f"messages.list.element.{name}" for name in ("train", "train_detail", "role")]
    for file in files:
        parquet = pq.ParquetFile(file)
        if not {*paths} <= {parquet.schema.column(i).path for i in range(len(parquet.schema))}:
            continue
        for batch in parquet.iter_batches(columns=paths, batch_size=4096):
            messages = pc.list_flatten(batch.column("messages"))
            if pc.struct_field(messages, "train_detail").null_count < len(messages):
                return True
            flags = pc.struct_field(messages, "train")
            is_reply = pc.equal(pc.struct_field(messages, "role"), "assistant")
            if pc.any(pc.xor(flags, is_reply)).as_py():
                return True
    return False


def with_flags(rows: Any) -> Any:
    """Add the column that says which messages are trained on."""

    def flags(
        batch: Mapping[str, list[list[dict[str, Any]]]],
    ) -> dict[str, list[list[Any]]]:
        return {
            COLUMN: [[m.get("train") for m in d] for d in batch["messages"]],
            DETAIL_COLUMN: [[m.get("train_detail") for m in d] for d in batch["messages"]],
        }

    return rows.map(flags, batched=True) if "messages" in rows.column_names else rows


def with_rule(rows: Any, rule: Mapping[str, Any] | None) -> Any:
    """Add the column of a dataset's own rule."""
    return rows if rule is None else rows.add_column(RULE_COLUMN, [json.dumps(rule)] * len(rows))


def needs_marks(rows: Any, tokenizer: Any, loss: LossRule) -> bool:
    """Return whether rows must be tokenized here: TRL masks only by marks in the template."""
    columns = {*rows.column_names}
    if {COLUMN, RULE_COLUMN, "segments"} & columns or len(
        {"messages", "prompt", "text"} & columns
    ) > 1:
        return True
    if has_text_rows(rows) or loss.by_origin != AS_MASKED:
        return True
    if "messages" in columns:
        return not loss.learns_all("Conversation") and not is_marked(tokenizer)
    return loss.assistant_only and "completion" in columns and not is_marked(tokenizer)


def identity_source() -> str:
    """Return the template that renders messages as their contents."""
    from fmtkit.rendering import template_sources

    return template_sources.find_family("identity").source


def has_text_rows(rows: Any) -> bool:
    """Return whether some of the rows are prerendered text, in the shape of messages."""
    return "chat_template" in (rows.features.get(VARIABLES) or {})


def is_text_row(row: Mapping[str, Any]) -> bool:
    """Return whether a row is prerendered text, in the shape of messages."""
    return bool((row.get(VARIABLES) or {}).get("chat_template"))


def check_end(rows: Any, runner: Runner, tokenizer: Any) -> None:
    """Raise TokenizerError for strings whose end the trainer writes with an EOS that the tokenizer lacks."""
    replies = {"text", "completion", "chosen"} & {*rows.column_names}
    is_text = any(getattr(rows.features[name], "dtype", "") in STRINGS for name in replies)
    if runner.text_ends and is_text and tokenizer.eos_token is None:
        raise TokenizerError(
            f"{tokenizer.name_or_path}: the tokenizer has no eos_token, and text must end; set "
            "special_tokens.eos_token"
        )


def is_marked(tokenizer: Any) -> bool:
    """Return whether the chat template of a tokenizer, or TRL's variant of it, marks replies."""
    from fmtkit.rendering.row_templates import RowTemplate

    return RowTemplate(_template(tokenizer)).has_generation


def tokenized(rows: Any, tokenizer: Any, usual: Masking) -> Any:
    """Return `input_ids` and `labels`: -100 outside of what is trained on.

    A document longer than the masking's `max_length` becomes several rows. Raises TemplateError where the
    replies cannot be found in what the template writes.
    """
    from fmtkit.masks.masks import mask_row

    own = adapted(tokenizer)
    templates = RowTemplates(tokenizer.chat_template, own.special_tokens)

    def encode(batch: Mapping[str, list[Any]]) -> dict[str, list[list[int]]]:
        out: dict[str, list[list[int]]] = {"input_ids": [], "labels": []}
        names = list(batch)
        for values in zip(*batch.values(), strict=True):
            row, masking = masking_of_row(dict(zip(names, values, strict=True)), usual)
            for one in mask_row(row, table_of(row), own, templates.of(row), masking):
                ids = one.ids.tolist()
                marks = zip(ids, one.trained.tolist(), strict=True)
                out["input_ids"].append(ids)
                out["labels"].append([i if is_trained else -100 for i, is_trained in marks])
        return out

    return rows.map(encode, batched=True, batch_size=64, remove_columns=rows.column_names)


def adapted(tokenizer: Any) -> Tokenizer:
    """Return a tokenizer of transformers as one of fmtkit."""
    from fmtkit.tokenizers.tokens import Tokenizer

    special = {name: str(text) for name, text in tokenizer.special_tokens_map.items()}
    return Tokenizer(tokenizer.name_or_path, tokenizer.backend_tokenizer, special)


class RowTemplates:
    """The template of each row: the run's, or the identity template for prerendered text."""

    def __init__(self, source: str | None, special_tokens: Mapping[str, str]) -> None:
        self._source, self._special = source, dict(special_tokens)
        self._made: dict[str, RowTemplate | None] = {}

    def of(self, row: Mapping[str, Any]) -> RowTemplate | None:
        """Return the template of a row with its variables; None where the run has none."""
        variables = row.get(VARIABLES) or {}
        key = json.dumps(variables, sort_keys=True, default=str)
        if key not in self._made:
            self._made[key] = self._make(variables)
        return self._made[key]

    def _make(self, variables: Mapping[str, Any]) -> RowTemplate | None:
        from fmtkit.masks.text_masks import identity
        from fmtkit.rendering import template_sources
        from fmtkit.rendering.row_templates import RowTemplate

        if variables.get("chat_template"):
            return identity()
        if self._source is None:
            return None
        given = {name: value for name, value in variables.items() if name != "chat_template"}
        template = template_sources.recognised("template", self._source, self._special)
        return RowTemplate(template.with_kwargs(given))


def masking_of_row(row: Mapping[str, Any], usual: Masking) -> tuple[dict[str, Any], Masking]:
    """Return a row with its flags on its messages, and the masking by the rule of its dataset.

    A row of text that has the shape of messages is one of text again, unless the method takes only messages.
    """
    from fmtkit.masks.text_masks import as_text

    if is_text_row(row) and usual.text_ends(table_of(row)):
        return as_text(row), replace(usual, turns=_rule(row))
    return _canonical(row), replace(usual, turns=_rule(row))


def _rule(row: Mapping[str, Any]) -> TurnRule:
    written = row.get(RULE_COLUMN)
    return USUAL_TURNS if written is None else TurnRule.from_dict(json.loads(written))


_TABLES = {
    "chosen": "Preference",
    "segments": "Segments",
    "messages": "Conversation",
    "text": "Conversation",
    "completions": "Stepwise",
    "input_ids": "Tokens",
}
"""A column that a row of a table has -> the table."""


def table_of(row: Mapping[str, Any]) -> str:
    """Return the table of a row: mixed datasets have each other's columns as nulls."""
    for column, table in _TABLES.items():
        if row.get(column) is not None:
            return table
    return "Unpaired" if row.get("label") is not None else "Completion"


def _canonical(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with its flags on its messages, and its tools as text, as inspect has them."""
    out = dict(row)
    tools, flags = row.get("tools"), row.get(COLUMN)
    if tools is not None and not isinstance(tools, str):
        out["tools"] = json.dumps(tools)
    if flags is not None:
        marked = zip(row["messages"], flags, row[DETAIL_COLUMN], strict=True)
        out["messages"] = [
            {**message, "train": flag, "train_detail": detail} for message, flag, detail in marked
        ]
    return out


def _template(tokenizer: Any) -> ChatTemplate:
    from fmtkit.rendering import template_sources

    special = {name: str(text) for name, text in tokenizer.special_tokens_map.items()}
    return template_sources.recognised("template", tokenizer.chat_template, special)
