"""The text stage: canonical messages become text or tokens, and rows that are too long are dealt with."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from fmtkit import chat, template_sources
from fmtkit.errors import OptionError
from fmtkit.length_limit import LengthLimit
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
    limit: LengthLimit | None = None

    @classmethod
    def of(cls, name: TypeName, converter: Converter, table: type[Table], request: "Request") -> "TextStage":
        """Decide on form, template and limit from the type's name and the flags.

        Raises OptionError where they contradict each other, TemplateError where there is no template.
        """
        template = _template(name, request)
        limit = _limit(request)
        if converter.text or table in (Stepwise, Tokens):
            if request.form == "messages" and converter.text:
                raise OptionError(f"--as messages: type {name.type} makes text; use --as text")
            form = "text" if converter.text else "messages"
            return cls(form, None, converter.wide, converter.text or table is Stepwise, limit)
        form = request.form or ("text" if template is not None else "messages")
        if template is None and (form != "messages" or limit is not None):
            wanted = f"--as {form}" if form != "messages" else "--max-length"
            raise OptionError(
                f"{wanted} needs a template: name one in the type (chatml.{name.source}) or by --chat-template"
            )
        if form != "messages" and table is Ranking:
            raise OptionError(f"--as {form}: a ranking stays messages; choose a pair policy, --option pairs=all")
        if form == "messages" and limit is not None and limit.action.startswith("truncate"):
            raise OptionError(f"--on-overlong {limit.action} cuts text; it goes with --as text")
        return cls(form, template, converter.wide, text_source=False, limit=limit)

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
        """Render a table of messages and mind its length; rows are named by their place in it."""
        if not table.num_rows:
            return Done(self._renamed(table), np.arange(0))
        done = Done(table, np.arange(table.num_rows))
        if self.template is not None and not self.text_source and (self.is_text or self.limit is not None):
            done = _render(table, self.template)
        if self.limit is not None and done.table.num_rows:
            done = _limited(done, self.limit)
        if self.is_text or self.template is None:
            return done
        return replace(done, table=table.take(pa.array(done.kept)) if len(done.kept) < table.num_rows else table)

    def _renamed(self, table: pa.Table) -> pa.Table:
        if not self.is_text or self.text_source or table.num_rows:
            return table
        return pa.schema(_text_schema(table.schema, {n: None for n in DIALOG_COLUMNS})).empty_table()


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


def _limit(request: "Request") -> LengthLimit | None:
    if request.max_length is None:
        if request.on_overlong != "keep":
            raise OptionError(f"--on-overlong {request.on_overlong} needs --max-length")
        return None
    if request.tokenizer is None:
        raise OptionError("--max-length counts tokens: give --tokenizer")
    limit = LengthLimit(request.max_length, request.on_overlong, request.tokenizer)
    _ = limit.tokenizer
    return limit


def _limited(done: Done, limit: LengthLimit) -> Done:
    """Do with overlong rows what the limit says."""
    names = [n for n in done.table.schema.names if n in (*DIALOG_COLUMNS, *TEXT_NAMES.values(), "completions")]
    texts = {name: done.table.column(name).combine_chunks() for name in names}
    rows = limit.overlong(texts)
    if not len(rows):
        return done
    if limit.action == "keep":
        return replace(done, warnings=done.warnings + Counter({"overlong": len(rows)}))
    places = done.kept[rows]
    kept = np.delete(done.kept, rows)
    table = done.table.filter(pa.array(~np.isin(np.arange(done.table.num_rows), rows)))
    if limit.action == "drop":
        return replace(done, table=table, kept=kept, overlong=places)
    if limit.action == "fail":
        failures = [RowFailure(int(p), "too_long", None, f"more than {limit.tokens} tokens") for p in places]
        return replace(done, table=table, kept=kept, failures=(*done.failures, *failures))
    return _cut(done, limit, rows)


def _cut(done: Done, limit: LengthLimit, rows: np.ndarray) -> Done:
    table, failures, lost = done.table, list(done.failures), []
    names = [name for name in table.schema.names if name in (*DIALOG_COLUMNS, *TEXT_NAMES.values())]
    values = {name: table.column(name).to_pylist() for name in names}
    for row in rows.tolist():
        cut = limit.cut({name: values[name][row] for name in names})
        if cut is None:
            lost.append(row)
            message = f"cut to {limit.tokens} tokens, nothing is left to learn from"
            failures.append(RowFailure(int(done.kept[row]), "too_long", None, message))
            continue
        for name, text in cut.items():
            values[name][row] = text
    for name in names:
        index = table.schema.get_field_index(name)
        table = table.set_column(index, table.schema.field(index), pa.array(values[name], pa.string()))
    warnings = done.warnings + Counter({"truncated": len(rows) - len(lost)})
    keep = np.delete(np.arange(table.num_rows), lost)
    return replace(
        done, table=table.take(pa.array(keep)), kept=done.kept[keep], failures=tuple(failures), warnings=+warnings
    )


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


def _text_schema(schema: pa.Schema, texts: Mapping[str, object]) -> list[pa.Field]:
    return [
        pa.field(TEXT_NAMES.get(f.name, f.name), pa.string()) if f.name in texts else f for f in schema
    ]
