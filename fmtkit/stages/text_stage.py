"""The text stage: canonical messages become text or tokens, and overlong rows are dropped or truncated."""

import sys
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import field, fields, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fmtkit.core import buffers, runner
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OptionError
from fmtkit.core.forks import refuse_lost_threads
from fmtkit.core.image_columns import IMAGES
from fmtkit.core.tables import (
    CONVERSATION_COLUMNS,
    STEP_SEPARATOR,
    TEXT_NAMES,
    Completion,
    Conversation,
    Ranking,
    Segments,
    Stepwise,
    Table,
    Tokens,
    has_images,
    is_carried,
)
from fmtkit.formats.registry import Converter
from fmtkit.formats.type_options import is_true
from fmtkit.formats.typenames import TypeName
from fmtkit.options.convert_options import AS_MADE, RowOptions
from fmtkit.rendering import chat, template_sources
from fmtkit.rendering.chat import ChatTemplate, Rendering, ReplyRendering
from fmtkit.rendering.content_parts import Cuts
from fmtkit.rendering.render_plan import Plan

if TYPE_CHECKING:
    from fmtkit.counting.length_limit import LengthLimit
    from fmtkit.rendering.spans import TokenRow

REPLIES = ("chosen", "rejected", "completion")
SIDES = ("chosen", "rejected")
"""Texts of a pair, which may not be equal."""
_UNCUT = {
    "Ranking": "a ranking is cut once it is pairs",
    "Segments": "segments stay whole until they are trained on",
    "Stepwise": "steps stay whole",
    "Tokens": "a type that makes tokens has its own length",
}
"""Tables whose rows cannot be cut, and why."""


@dataclass(frozen=True)
class RowFailure:
    """A row of the table that has no text, and the reason."""

    row: int
    code: str
    column: str | None
    message: str


@dataclass(frozen=True)
class Done:
    """The output of the stage for a table; `kept` are the rows of the input that are still there."""

    table: pa.Table
    kept: np.ndarray
    failures: tuple[RowFailure, ...] = ()
    overlong: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Rows of the input that were dropped for their length."""
    warnings: Counter[str] = field(default_factory=Counter)
    losses: Counter[str] = field(default_factory=Counter)
    """What a target does not hold -> rows that were written without it."""
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
    limit: "LengthLimit | None" = None
    tokenizer_name: str | None = None
    """The tokenizer of `--as tokens`."""
    table: type[Table] = Conversation
    """What the rows are."""
    eos: str | None = None
    """The text that ends each reply of prerendered text."""

    @classmethod
    def of(
        cls, name: TypeName, converter: Converter, table: type[Table], options: RowOptions
    ) -> "TextStage":
        """Decide on form, template and limit from the type's name and the flags.

        Raises OptionError where they contradict each other, TemplateError where there is no template.
        """
        _check_eos(options, converter, table)
        template = _template(name, options)
        template = template.at(options.now) if template is not None else None
        limit = _limit(options)
        if limit is not None and (converter.text or table is Stepwise):
            limit = _with_added(limit, options, options.method or name.method, table)
        if limit is not None and limit.truncates and limit.cuts:
            _check_cut(limit.action, table)
        if converter.text or table in (Stepwise, Tokens):
            if options.form == "messages" and converter.text:
                raise OptionError(f"--as messages: type {name.type} makes text; use --as text")
            form = "text" if converter.text else "messages"
            text_source = converter.text or table is Stepwise
            return cls(form, None, converter.wide, text_source, limit, table=table, eos=options.eos)
        form = options.form or ("text" if template is not None else "messages")
        # Types that make text were handled above; for the others a template may only serve to count tokens.
        form = "messages" if form == AS_MADE else form
        if template is None and (form != "messages" or limit is not None):
            wanted = f"--as {form}" if form != "messages" else "--max-length"
            raise OptionError(
                f"{wanted} needs a template: name one in the type (chatml.{name.source}), "
                "or by --chat-template"
            )
        if form == "tokens" and (
            table not in (Conversation, Completion) or options.tokenizer is None
        ):
            wanted = (
                "--tokenizer" if options.tokenizer is None else "a Conversation or a Completion"
            )
            raise OptionError(
                f"--as tokens needs {wanted}; other trainers tokenise text themselves"
            )
        if form != "messages" and table is Ranking:
            raise OptionError(
                f"--as {form}: a ranking stays messages; choose a pair policy, --option pairs=all"
            )
        if form == "messages" and limit is not None and limit.truncates and limit.cuts:
            raise OptionError(
                f"--on-overlong {limit.action} cuts text or tokens; it goes with --as text and "
                "--as tokens"
            )
        tokenizer = options.tokenizer if form == "tokens" else None
        return cls(
            form,
            template,
            converter.wide,
            text_source=False,
            limit=limit,
            tokenizer_name=tokenizer,
            table=table,
        )

    @property
    def is_text(self) -> bool:
        """Return whether conversations are text in the rows that come out."""
        return self.form == "text"

    def schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema of what comes out for that of canonical messages going in."""
        if self.form == "tokens":
            kept = [f for f in schema if is_carried(f.name)]
            return pa.schema([*Tokens.schema(frozenset(), wide=False, text=False), *kept])
        if self.text_source or not self.is_text:
            return schema
        return pa.schema(_text_schema(schema, dict.fromkeys(CONVERSATION_COLUMNS)))

    def apply(self, table: pa.Table, cuts: Mapping[int, Cuts] | None = None) -> Done:
        """Render a table of messages and apply the length limit; rows are identified by their index.

        `cuts` says by row which contents came in parts.
        """
        if not table.num_rows:
            return Done(buffers.empty_table(self.schema(table.schema)), np.arange(0))
        cuts = cuts or {}
        if self.eos:
            table = _ended(table, self.eos, self.table)
        done = Done(table, np.arange(table.num_rows))
        if (
            self.template is not None
            and not self.text_source
            and (self.is_text or self.limit is not None)
        ):
            done = render_table(table, self.template, cuts)
        if self.limit is not None and done.table.num_rows:
            done = _limited(done, self.limit, self, table)
        if self.form == "tokens":
            return _tokens(done, table, self, cuts)
        if self.is_text or self.template is None:
            return done
        return replace(
            done,
            table=table.take(buffers.int64s(done.kept))
            if len(done.kept) < table.num_rows
            else table,
        )


def _check_eos(options: RowOptions, converter: Converter, table: type[Table]) -> None:
    """Raise OptionError for an end of replies if the rows have no replies of prerendered text."""
    has_replies = {*REPLIES, "messages"} & set(table.column_names())
    if options.eos is not None and not (converter.text and has_replies):
        why = "its template ends them" if has_replies else "its rows have no reply of text"
        raise OptionError(
            f"--eos {options.eos}: ends replies of prerendered text; type {options.type} makes a "
            f"{table.name()}: {why}"
        )


def _ended(table: pa.Table, eos: str, of: type[Table]) -> pa.Table:
    """Return rows of text each of whose replies ends with a token, once."""
    own = {TEXT_NAMES.get(name, name) for name in of.column_names()}
    for name in ("text", *REPLIES):
        if (
            name in own
            and name in table.schema.names
            and pa.types.is_string(table.schema.field(name).type)
        ):
            column = table.column(name)
            ended = pc.binary_join_element_wise(column, eos, "")
            column = pc.if_else(pc.ends_with(column, eos), column, ended)
            table = table.set_column(table.schema.get_field_index(name), table.field(name), column)
    return table


def _check_cut(action: str, table: type[Table]) -> None:
    """Raise OptionError for a way of truncating that this table does not support."""
    why = _UNCUT.get(table.name())
    columns = {column.name for column in fields(table)}
    if (
        action == "truncate-end"
        and "prompt" in columns
        and not columns & {*REPLIES, "completions", "replies"}
    ):
        why = "a prompt ends with what is to be answered; truncate-start cuts what came before"
    if why is not None:
        raise OptionError(f"--on-overlong {action}: {why}; use drop or fail")


def _template(name: TypeName, options: RowOptions) -> ChatTemplate | None:
    if options.chat_template is not None:
        return template_sources.find_model_template(
            options.chat_template, tokenizer=options.tokenizer
        )
    if name.template is not None:
        return template_sources.find_family(name.template)
    if name.model_template and options.form not in ("messages", AS_MADE):
        if options.tokenizer is None:
            if options.form is None:
                return None
            raise OptionError(
                f"type {name.type} renders with the model's template: give --chat-template or --tokenizer"
            )
        return template_sources.find_model_template(
            "tokenizer_default", tokenizer=options.tokenizer
        )
    if options.form in ("text", "tokens") and options.tokenizer is not None:
        return template_sources.find_model_template(
            "tokenizer_default", tokenizer=options.tokenizer
        )
    return None


def _limit(options: RowOptions) -> "LengthLimit | None":
    if options.max_length is None:
        if options.on_overlong != "keep":
            raise OptionError(f"--on-overlong {options.on_overlong} needs --max-length")
        if options.min_length is None:
            return None
    if options.tokenizer is None:
        flag = "--max-length" if options.max_length is not None else "--min-length"
        raise OptionError(f"{flag} counts tokens: give --tokenizer")
    # Imported only if needed: counting tokens makes pyarrow import pandas (0.9 s).
    from fmtkit.counting.length_limit import LengthLimit

    limit = LengthLimit(
        sys.maxsize if options.max_length is None else options.max_length,
        options.on_overlong,
        options.tokenizer,
        not options.cut_in_training,
        options.min_length or 0,
    )
    _ = limit.tokenizer
    return limit


def _with_added(
    limit: "LengthLimit", options: RowOptions, method: str | None, table: type[Table]
) -> "LengthLimit":
    """Return the limit for rows that no template renders; it counts the tokens that their trainer adds."""
    if table is Stepwise:
        given = options.options
        return replace(
            limit,
            step_separator=str(given.get("step_separator", STEP_SEPARATOR)),
            last_step_only=is_true(given, "train_on_last_step_only"),
        )
    return replace(limit, ends=runner.text_ends_of(method, table.name()))


def with_images(stage: TextStage, folder: str | None) -> "TextStage | str":
    """Return the stage with lengths that include images, or why they cannot be counted.

    `folder` is the folder of the tokenizer's model.
    """
    if stage.limit is None:
        return stage
    from fmtkit.counting.visual_counts import visual_counter

    image = stage.template.compiled.image if stage.template is not None else None
    counter = visual_counter(folder or "", stage.limit.tokenizer, image)
    if isinstance(counter, str):
        return counter
    return replace(stage, limit=replace(stage.limit, visual=counter))


def _limited(done: Done, limit: "LengthLimit", stage: TextStage, table: pa.Table) -> Done:
    """Keep, drop or truncate overlong rows as the limit says, and refuse those that are too short.

    `table` is what `done` was rendered from.
    """
    short = _too_short(done, limit, stage.table)
    if len(short):
        message = f"fewer than {limit.fewest} tokens"
        failed = [RowFailure(int(p), "too_short", None, message) for p in done.kept[short]]
        rest = np.isin(np.arange(done.table.num_rows), short, invert=True)
        long = replace(
            done,
            table=done.table.filter(buffers.booleans(rest)),
            kept=done.kept[rest],
            failures=(*done.failures, *failed),
        )
        return _limited(long, replace(limit, fewest=0), stage, table)
    rows = _overlong(done, limit, stage.table)
    if not len(rows):
        return done
    if limit.truncates and not limit.cuts:
        return _judged(done, limit, rows, stage, table)
    if limit.truncates and stage.form == "tokens":
        # The tokens themselves are truncated later, not the texts.
        return done
    if limit.action == "keep":
        return replace(done, warnings=done.warnings + Counter({"overlong": len(rows)}))
    places = done.kept[rows]
    kept = np.delete(done.kept, rows)
    table = done.table.filter(buffers.booleans(~np.isin(np.arange(done.table.num_rows), rows)))
    if limit.action == "drop":
        return replace(done, table=table, kept=kept, overlong=places)
    if limit.action == "fail":
        failures = [
            RowFailure(int(p), "too_long", None, f"more than {limit.tokens} tokens") for p in places
        ]
        return replace(done, table=table, kept=kept, failures=(*done.failures, *failures))
    return _cut(done, limit, rows)


def _too_short(done: Done, limit: "LengthLimit", table: type[Table]) -> np.ndarray:
    """Return the rows (indices, ascending) that have too few tokens."""
    if table is Segments:
        return limit.too_short_segments(done.table)
    if table is Tokens:
        return np.flatnonzero(_attended(done.table) < limit.fewest)
    return limit.too_short(_texts_of(done))


def _overlong(done: Done, limit: "LengthLimit", table: type[Table]) -> np.ndarray:
    """Return the rows (indices, ascending) that have more tokens than the limit."""
    if table is Segments:
        return limit.overlong_segments(done.table)
    if table is Tokens:
        return np.flatnonzero(_attended(done.table) > limit.tokens)
    return limit.overlong(_texts_of(done))


def _attended(table: pa.Table) -> np.ndarray:
    """Count the tokens of rows of tokens, without their padding."""
    masks = buffers.whole(table.column("attention_mask")).to_pylist()
    return np.fromiter((sum(map(bool, mask)) for mask in masks), np.int64, len(masks))


def _texts_of(done: Done) -> dict[str, pa.Array]:
    """Return the texts of rows, and their images, by name."""
    names = [
        n
        for n in done.table.schema.names
        if n in (*CONVERSATION_COLUMNS, *TEXT_NAMES.values(), "completions")
    ]
    names += [IMAGES] if has_images(done.table.schema) else []
    return {name: buffers.whole(done.table.column(name)) for name in names}


def _judged(
    done: Done, limit: "LengthLimit", rows: np.ndarray, stage: TextStage, table: pa.Table
) -> Done:
    """Leave rows whole that a trainer truncates, except rows without a trained token after it."""
    texts = done.table.take(buffers.int64s(rows))
    left = _survivors(texts, limit, table.take(buffers.int64s(done.kept[rows])), stage)
    lost = rows[~left]
    message = f"cut to {limit.tokens} tokens, nothing is left to train on"
    failures = [RowFailure(int(place), "too_long", None, message) for place in done.kept[lost]]
    return replace(
        done,
        table=done.table.filter(buffers.booleans(~np.isin(np.arange(done.table.num_rows), lost))),
        kept=np.delete(done.kept, lost),
        failures=(*done.failures, *failures),
        warnings=+(done.warnings + Counter({"truncated": int(left.sum())})),
    )


def _survivors(
    texts: pa.Table, limit: "LengthLimit", rows: pa.Table, stage: TextStage
) -> np.ndarray:
    """Return which overlong rows still have a trained token after the cut."""
    if stage.table is Segments:
        return limit.survives_segments(texts)
    if stage.table is Tokens:
        part = limit.part
        labels = texts.column("labels").to_pylist()
        return np.array([any(label != -100 for label in row[part]) for row in labels], dtype=bool)
    names = [
        name for name in texts.schema.names if name in (*CONVERSATION_COLUMNS, *TEXT_NAMES.values())
    ]
    if "messages" in rows.schema.names and stage.template is not None:
        return _replies_left(texts.column("text"), limit, rows, stage.template)
    if "completions" in texts.schema.names:
        # The label of a step is on the separator after it: one step must be left.
        firsts = [steps[0] if steps else "" for steps in texts.column("completions").to_pylist()]
        pairs = zip(texts.column("prompt").to_pylist(), firsts, strict=True)
        return np.array([limit.has_step(*pair) for pair in pairs], dtype=bool)
    values = texts.select(names).to_pylist()
    return np.array([limit.cut(row) is not None for row in values], dtype=bool)


def _replies_left(
    whole: pa.ChunkedArray, limit: "LengthLimit", rows: pa.Table, template: ChatTemplate
) -> np.ndarray:
    """Return for which conversations a reply that is trained on begins before the cut, or ends after it."""
    conversations = buffers.whole(rows.column("messages"))
    trained = [
        [i for i, m in enumerate(d) if m["role"] == "assistant" and m.get("train") is not False]
        for d in conversations.to_pylist()
    ]
    at_end = limit.action == "truncate-end"
    parts = buffers.values_of(
        [
            d[: places[0] if at_end else places[-1] + 1] if places else []
            for d, places in zip(conversations.to_pylist(), trained, strict=True)
        ],
        conversations.type,
    )
    tools = rows.column("tools") if "tools" in rows.schema.names else None
    made = chat.render(template, parts, add_generation_prompt=at_end, tools=tools)
    counts = np.array([limit.count(text or "") for text in made.text.to_pylist()], dtype=np.int64)
    if not at_end:
        lengths = [limit.count(text) for text in whole.to_pylist()]
        counts = np.array(lengths, dtype=np.int64) - counts
    has_reply = np.array([bool(places) for places in trained], dtype=bool)
    return has_reply & (counts < limit.tokens)


def _cut(done: Done, limit: "LengthLimit", rows: np.ndarray) -> Done:
    table, failures, lost = done.table, list(done.failures), []
    names = [
        name for name in table.schema.names if name in (*CONVERSATION_COLUMNS, *TEXT_NAMES.values())
    ]
    values = {name: table.column(name).to_pylist() for name in names}
    for row in rows.tolist():
        cut = limit.cut({name: values[name][row] for name in names})
        if cut is None:
            lost.append(row)
            message = f"cut to {limit.tokens} tokens, nothing is left to train on"
            failures.append(RowFailure(int(done.kept[row]), "too_long", None, message))
            continue
        for name, text in cut.items():
            values[name][row] = text
    for name in names:
        index = table.schema.get_field_index(name)
        table = table.set_column(index, table.schema.field(index), buffers.texts(values[name]))
    warnings = done.warnings + Counter({"truncated": len(rows) - len(lost)})
    keep = np.delete(np.arange(table.num_rows), lost)
    return replace(
        done,
        table=table.take(buffers.int64s(keep)),
        kept=done.kept[keep],
        failures=tuple(failures),
        warnings=+warnings,
    )


def _tokens(done: Done, table: pa.Table, stage: TextStage, cuts: Mapping[int, Cuts]) -> Done:
    """Tokenise the rows that are left; the assistant's turns (of a completion, the reply) are trained on."""
    from fmtkit.rendering.spans import find_spans, token_rows
    from fmtkit.tokenizers import tokens

    assert stage.template is not None
    assert stage.tokenizer_name is not None
    left = table.take(buffers.int64s(done.kept))
    is_reply = "completion" in left.schema.names
    conversations = _joined(left) if is_reply else buffers.whole(left.column("messages"))
    kept = {place: cuts[row] for place, row in enumerate(done.kept.tolist()) if row in cuts}
    spanned, failed = find_spans(stage.template, conversations, kept)
    found = [(i, one) for i, one in enumerate(spanned) if one is not None and one.spans]
    trained = "last" if is_reply else "every"
    rows = token_rows(
        [one for _, one in found], [trained] * len(found), tokens.load(stage.tokenizer_name)
    )
    failures = [RowFailure(int(done.kept[f.row]), f.code, None, f.message) for f in failed]
    silent = set(range(len(spanned))) - {i for i, _ in found} - {f.row for f in failed}
    failures += [
        RowFailure(int(done.kept[i]), "no_assistant_turn", None, "no assistant turn to train on")
        for i in sorted(silent)
    ]
    places, cut = [i for i, _ in found], 0
    if stage.limit is not None and stage.limit.truncates:
        rows, places, cut, emptied = _cut_tokens(rows, places, stage.limit)
        message = f"cut to {stage.limit.tokens} tokens, nothing is left to train on"
        failures += [RowFailure(int(done.kept[i]), "too_long", None, message) for i in emptied]
    index = np.array(places, dtype=np.int64)
    columns = {
        "input_ids": [row.input_ids for row in rows],
        "attention_mask": [[1] * len(row.input_ids) for row in rows],
        "labels": [row.labels for row in rows],
        "prompt_length": [row.prompt_length for row in rows],
    }
    made = pa.table(columns, schema=Tokens.schema(frozenset(), wide=False, text=False))
    for entry in left.schema:
        if is_carried(entry.name):
            made = made.append_column(entry, left.column(entry.name).take(buffers.int64s(index)))
    return replace(
        done,
        table=made,
        kept=done.kept[index],
        failures=(*done.failures, *failures),
        warnings=+(done.warnings + Counter({"truncated": cut})),
    )


def _cut_tokens(
    rows: "list[TokenRow]", places: list[int], limit: "LengthLimit"
) -> "tuple[list[TokenRow], list[int], int, list[int]]":
    """Cut rows of tokens; return them with their places, how many were cut, and those left empty."""
    kept: list[TokenRow] = []
    left: list[int] = []
    emptied: list[int] = []
    cut = 0
    at_start = limit.action == "truncate-start"
    for row, place in zip(rows, places, strict=True):
        short = row.cut(limit.tokens, at_start=at_start)
        if all(label == -100 for label in short.labels):
            emptied.append(place)
            continue
        cut += len(short.input_ids) < len(row.input_ids)
        kept.append(short)
        left.append(place)
    return kept, left, cut, emptied


def _joined(table: pa.Table) -> pa.Array:
    """Return prompt and completion as one conversation."""
    sides = [table.column(name).to_pylist() for name in ("prompt", "completion")]
    both = [prompt + reply for prompt, reply in zip(*sides, strict=True)]
    return buffers.values_of(both, table.schema.field("prompt").type)


def render_table(
    table: pa.Table, template: ChatTemplate, cuts: Mapping[int, Cuts] | None = None
) -> Done:
    """Render the conversations of a canonical table: a prompt up to its reply, a reply as what it adds.

    `cuts` says by row which contents came in parts.
    """
    refuse_lost_threads()
    columns = {name: table.column(name) for name in table.schema.names}
    texts, made = _texts(columns, template, cuts)
    warnings = Counter({code: len(rows) for code, rows in made.warnings.items()})
    failures = [RowFailure(f.row, f.code, None, f.message) for f in made.failures]
    failures += _equal_sides(texts, {failure.row for failure in failures})
    kept = np.delete(np.arange(table.num_rows), sorted({failure.row for failure in failures}))
    schema = pa.schema(_text_schema(table.schema, texts))
    arrays = [texts.get(name, column) for name, column in columns.items()]
    out = pa.table(arrays, names=schema.names).cast(schema)
    if failures:
        out = out.take(buffers.int64s(kept))
    nothing = np.zeros(0, dtype=np.int64)
    return Done(
        out,
        kept,
        tuple(failures),
        nothing,
        warnings,
        traced_rows=made.traced_rows,
        plain_rows=made.plain_rows,
    )


def _equal_sides(texts: Mapping[str, pa.Array], lost: set[int]) -> list[RowFailure]:
    """Return the pairs that a template makes equal, since it leaves out their difference."""
    if not texts.keys() >= {*SIDES}:
        return []
    # Null for the rows that have failed already.
    equal = pc.equal(*(texts[name] for name in SIDES))
    rows = set(
        np.flatnonzero(np.unpackbits(_bits(equal), bitorder="little")[: len(equal)]).tolist()
    )
    message = "chosen equals rejected once they are rendered"
    return [RowFailure(row, "no_preference", None, message) for row in sorted(rows - lost)]


def _bits(flags: pa.BooleanArray) -> np.ndarray:
    return np.frombuffer(pa.concat_arrays([flags]).buffers()[1], dtype=np.uint8)


def _texts(
    columns: Mapping[str, pa.ChunkedArray],
    template: ChatTemplate,
    cuts: Mapping[int, Cuts] | None,
) -> tuple[dict[str, pa.Array], Rendering | ReplyRendering]:
    tools = columns.get("tools")
    plan, (first, *others) = rendered_of(columns)
    if others:
        replies = {name: columns[name] for name in others}
        both = chat.render_reply(template, columns[first], replies, tools=tools, cuts=cuts)
        return {first: both.prompt, **both.replies}, both
    asks = plan.generation_prompt
    made = chat.render(template, columns[first], add_generation_prompt=asks, tools=tools, cuts=cuts)
    return {first: made.text}, made


def rendered_of(names: Collection[str]) -> tuple[Plan, tuple[str, ...]]:
    """Return, in order, what is rendered for rows with these columns, and from which conversations."""
    replies = tuple(name for name in REPLIES if name in names)
    if replies:
        return Plan(replies=len(replies)), ("prompt", *replies)
    name = "messages" if "messages" in names else "prompt"
    return Plan(generation_prompt=name == "prompt"), (name,)


def _text_schema(schema: pa.Schema, texts: Mapping[str, object]) -> list[pa.Field]:
    return [
        pa.field(TEXT_NAMES.get(f.name, f.name), pa.string()) if f.name in texts else f
        for f in schema
    ]
