"""The text stage: canonical messages become text or tokens, and rows that are too long are dealt with."""

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from fmtkit import chat, template_sources
from fmtkit.errors import OptionError
from fmtkit.registry import Converter
from fmtkit.tables import DIALOG_COLUMNS, MESSAGE, TEXT_NAMES, WIDE_MESSAGE, Ranking, Stepwise, Table, Tokens
from fmtkit.chat import ChatTemplate
from fmtkit.typenames import TypeName

if TYPE_CHECKING:
    from fmtkit.pipeline import Request

REPLIES = ("chosen", "rejected", "completion")
OVERLONG = ("keep", "drop", "truncate-start", "truncate-end", "fail")


@dataclass(frozen=True)
class RowFailure:
    """A row of the table that has no text, and why."""

    row: int
    code: str
    column: str | None
    message: str


@dataclass(frozen=True)
class Done:
    """What the stage made of a table; `kept` are the rows of the input that are still there."""

    table: pa.Table
    kept: np.ndarray
    failures: tuple[RowFailure, ...] = ()
    overlong: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Rows of the input that were dropped for their length."""
    warnings: Counter[str] = field(default_factory=Counter)
    traced_rows: int = 0
    plain_rows: int = 0


@dataclass(frozen=True)
class TextStage:
    """How rows are written out: as messages, as text through a template, or as tokens."""

    form: str
    template: ChatTemplate | None
    wide: bool
    text_source: bool
    """The converter makes text itself (user_defined); there is nothing to render."""

    @classmethod
    def of(cls, name: TypeName, converter: Converter, table: type[Table], request: "Request") -> "TextStage":
        """Decide on form and template from the type's name and the flags.

        Raises OptionError where they contradict each other, TemplateError where there is no template.
        """
        template = _template(name, request)
        if converter.text or table in (Stepwise, Tokens):
            if request.form == "messages" and converter.text:
                raise OptionError(f"--as messages: type {name.type} makes text; use --as text")
            return cls("text" if converter.text else "messages", template, converter.wide, converter.text)
        form = request.form or ("text" if template is not None else "messages")
        if form != "messages" and template is None:
            raise OptionError(
                f"--as {form} needs a template: name one in the type (chatml.{name.source}) or by --chat-template"
            )
        if form != "messages" and table is Ranking:
            raise OptionError(f"--as {form}: a ranking stays messages; choose a pair policy with --option pairs=all")
        return cls(form, template, converter.wide, text_source=False)

    @property
    def is_text(self) -> bool:
        """Tell whether dialogs are text in the rows that come out."""
        return self.form == "text"

    def schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema of what comes out."""
        return schema

    def messages_schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema of what goes in: that of the output with dialogs as messages."""
        if self.text_source or not self.is_text:
            return schema
        dialog = pa.list_(WIDE_MESSAGE if self.wide else MESSAGE)
        names = {text: name for name, text in TEXT_NAMES.items()}
        return pa.schema(
            [
                pa.field(names.get(f.name, f.name), dialog) if self._is_dialog(f) else f
                for f in schema
            ]
        )

    def _is_dialog(self, entry: pa.Field) -> bool:
        return entry.name in DIALOG_COLUMNS or entry.name in TEXT_NAMES.values()

    def apply(self, table: pa.Table) -> Done:
        """Render a table of messages; rows are named by their place in it."""
        everything = np.arange(table.num_rows)
        if self.text_source or not self.is_text or self.template is None or not table.num_rows:
            return Done(self._renamed(table), everything)
        return _render(table, self.template)

    def _renamed(self, table: pa.Table) -> pa.Table:
        if not self.is_text or self.text_source or table.num_rows:
            return table
        fields = [
            pa.field(TEXT_NAMES.get(f.name, f.name), pa.string()) if self._is_dialog(f) else f
            for f in table.schema
        ]
        return pa.schema(fields).empty_table()


def _template(name: TypeName, request: "Request") -> ChatTemplate | None:
    if request.chat_template is not None:
        return template_sources.find_model_template(request.chat_template, tokenizer=request.tokenizer)
    if name.template is not None:
        return template_sources.find_family(name.template)
    if name.model_template and request.form != "messages":
        if request.tokenizer is None:
            if request.form is None:
                return None
            raise OptionError(f"type {name.type} renders with the model's template: give --chat-template or --tokenizer")
        return template_sources.find_model_template("tokenizer_default", tokenizer=request.tokenizer)
    if request.form in ("text", "tokens") and request.tokenizer is not None:
        return template_sources.find_model_template("tokenizer_default", tokenizer=request.tokenizer)
    return None


def _render(table: pa.Table, template: ChatTemplate) -> Done:
    columns = {name: table.column(name) for name in table.schema.names}
    tools = columns.get("tools")
    replies = {name: columns[name] for name in REPLIES if name in columns}
    warnings: Counter[str] = Counter()
    if replies:
        made = chat.render_reply(template, columns["prompt"], replies, tools=tools)
        texts = {"prompt": made.prompt, **made.replies}
    elif "messages" in columns:
        made = chat.render(template, columns["messages"], tools=tools)
        texts = {"messages": made.text}
    else:
        made = chat.render(template, columns["prompt"], add_generation_prompt=True, tools=tools)
        texts = {"prompt": made.text}
    for code, rows in made.warnings.items():
        warnings[code] += len(rows)
    failures = tuple(RowFailure(f.row, f.code, None, f.message) for f in made.failures)
    kept = np.delete(np.arange(table.num_rows), sorted({failure.row for failure in failures}))
    arrays, names = [], []
    for name, column in columns.items():
        arrays.append(texts.get(name, column))
        names.append(TEXT_NAMES.get(name, name) if name in texts else name)
    out = pa.table(arrays, names=names)
    out = out.cast(pa.schema([f if f.name not in names else f for f in _text_schema(table.schema, texts)]))
    if failures:
        out = out.take(pa.array(kept))
    return Done(out, kept, failures, np.zeros(0, dtype=np.int64), warnings, made.traced_rows, made.plain_rows)


def _text_schema(schema: pa.Schema, texts: dict[str, pa.Array]) -> list[pa.Field]:
    return [
        pa.field(TEXT_NAMES.get(f.name, f.name), pa.string()) if f.name in texts else f for f in schema
    ]
