"""The target stage: canonical rows become those of a target, and what has no place there is reported.

Whatever a target does not hold makes a row `no_place`, or is dropped and counted where --allow-loss names
it. Content that a reader of the layout would not return is `no_place` as well: a text that equals a marker of
the layout, an empty system prompt that the layout cannot hold.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, fields, replace
from functools import cached_property

import numpy as np
import polars as pl
import pyarrow as pa

from fmtkit.columns import exports
from fmtkit.columns.message_rules import is_empty
from fmtkit.columns.problems import Column, Problem
from fmtkit.columns.shared_turns import same_conversation
from fmtkit.columns.source_expressions import Steps
from fmtkit.columns.strict_kinds import json_value
from fmtkit.core import buffers
from fmtkit.core.buffers import Bools
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OptionError, near_match
from fmtkit.core.image_columns import IMAGES
from fmtkit.core.message_keys import MESSAGE_KEYS, SYSTEM
from fmtkit.core.pickling import PickledByFields
from fmtkit.core.tables import (
    CONVERSATION_COLUMNS,
    SPLIT_KEY,
    TEXT_NAMES,
    Completion,
    Conversation,
    Table,
    is_carried,
    written_name,
)
from fmtkit.formats import target_registry
from fmtkit.formats.target_registry import LOSSES, Target, WrittenColumns
from fmtkit.rendering.chat import ChatTemplate
from fmtkit.rendering.content_parts import Cuts
from fmtkit.sources.canonical_json import canonical
from fmtkit.stages import target_images
from fmtkit.stages.text_stage import Done, RowFailure, TextStage
from fmtkit.stages.turn_table import TurnTable
from fmtkit.writing.splitting import frame_of, prompt_texts

OPTIONAL = {b"fmtkit:optional": b"1"}
"""Metadata of a column whose nulls are left out in JSON lines."""
JSON_COLUMN = b"fmtkit:json"
"""Metadata of a kept column whose text is JSON."""
CODE = "no_place"
_Change = Callable[[str | None], str | None]
_UNTEXTUAL_ARGUMENTS = r'"arguments":[^"]'


@dataclass(frozen=True)
class TargetStage(PickledByFields):
    """How rows are written for `--to`: the output of the stage before, in the target's layout."""

    before: TextStage
    target: Target
    table: type[Table]
    canonical: pa.Schema
    allowed: frozenset[str]
    keyed: bool = False
    """Whether the prompt of each row comes with it, to split rows by it."""

    @classmethod
    def of(
        cls,
        before: TextStage,
        to: str,
        table: type[Table],
        canonical: pa.Schema,
        allowed: Sequence[str],
    ) -> "TargetStage":
        """Find the target that takes a table.

        Raises OptionError if the target cannot write it, or `allowed` names an unknown field.
        """
        if before.is_text and not before.text_source:
            raise OptionError(
                f"--to {to} writes messages, which no template has rendered: leave the template out"
            )
        found = target_registry.find(to, table, text=_is_text(canonical))
        named = frozenset(map(target_registry.loss_named, allowed))
        kept = [written_name(f.name) for f in canonical if is_carried(f.name)]
        for name, given in zip(map(target_registry.loss_named, allowed), allowed, strict=True):
            if name not in LOSSES and name not in kept:
                known = [*LOSSES, *kept]
                near = near_match(given, known)
                hint = f"did you mean {near!r}?" if near else f"choose one of {', '.join(known)}"
                raise OptionError(f"--allow-loss {given}: no such field; {hint}")
        return cls(before, found, table, canonical, named)

    @property
    def form(self) -> str:
        """Return what the columns hold, as in reports: never rendered text."""
        return "messages"

    @property
    def template(self) -> ChatTemplate | None:
        """Return the template that lengths are counted by."""
        return self.before.template

    @cached_property
    def is_wide(self) -> bool:
        """Return whether messages may hold more than a role and a content."""
        conversations = [f.type for f in self._own_fields if f.name in CONVERSATION_COLUMNS]
        lists = [t.value_type for t in conversations if pa.types.is_list(t)]
        return any(pa.types.is_struct(t) and "tool_calls" in t.names for t in lists)

    @cached_property
    def has_text(self) -> bool:
        """Return whether the conversations are text."""
        return _is_text(self.canonical)

    @property
    def _own_fields(self) -> list[pa.Field]:
        return [f for f in self.canonical if not is_carried(f.name)]

    @property
    def _kept_fields(self) -> list[pa.Field]:
        return [_as_json(f) for f in self.canonical if is_carried(f.name)]

    @cached_property
    def rows(self) -> WrittenColumns:
        """Return what the target makes of its table's columns."""
        taken = self.target.takes
        present = {f.name for f in self._own_fields}
        present = {n for n in present - {IMAGES} if n not in LOSSES or n in self.target.holds}
        if taken is not self.table:
            present = (present - {*CONVERSATION_COLUMNS}) | {
                f.name for f in fields(taken) if f.name in CONVERSATION_COLUMNS
            }
        names = {
            name: TEXT_NAMES.get(name, name) if self.has_text else name
            for name in taken.column_names()
        }
        made = {
            name: Column(pl.col(on_disk)) if on_disk in present else None
            for name, on_disk in names.items()
        }
        found = self.target.make(taken(**made), wide=self.is_wide)
        return {name: column for name, column in found.items() if column is not None}

    @cached_property
    def _written(self) -> pa.Schema:
        return self._schema_of(self._applied(buffers.empty_table(self.canonical)).made)

    def schema(self, schema: pa.Schema) -> pa.Schema:  # noqa: ARG002
        """Return the schema of what comes out."""
        kept = self._kept_fields if self.target.keeps else ()
        return pa.schema([*self._written, *self._image_fields, *kept])

    @cached_property
    def has_images(self) -> bool:
        """Return whether the target writes images."""
        return IMAGES in self.canonical.names and IMAGES in self.target.holds

    @property
    def _image_fields(self) -> list[pa.Field]:
        field = target_images.field_of(self.target) if self.has_images else None
        return [] if field is None else [field]

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns that the target makes, without those that are kept."""
        return (*self.rows, *(field.name for field in self._image_fields))

    def apply(self, table: pa.Table, cuts: Mapping[int, Cuts] | None = None) -> Done:
        """Make the target's rows; those that have no place in it are failures."""
        done = self.before.apply(table, cuts)
        applied = self._applied(done.table)
        out = _typed(applied.made, self._written)
        places = buffers.int64s(applied.kept)
        for entry in self._image_fields:
            images = target_images.column(self.target, done.table.column(IMAGES).take(places))
            out = out.append_column(entry, images)
        if self.target.keeps:
            for entry in self._kept_fields:
                column = done.table.column(entry.name)
                whole = len(places) == len(column)
                kept = column if whole else column.take(places)
                out = out.append_column(entry, kept.cast(entry.type))
        failures = [
            RowFailure(int(done.kept[row]), code, name, message)
            for row, code, name, message in applied.failures
        ]
        return replace(
            done,
            table=out,
            kept=done.kept[applied.kept],
            failures=(*done.failures, *failures),
            losses=applied.losses,
        )

    def _applied(self, table: pa.Table) -> "_Applied":
        rows = _Rows(self.target, self.allowed, table.num_rows)
        others = self._without_lost_columns(table, rows)
        conversations = {} if self.has_text else _conversations(table, self._own_fields)
        if conversations:
            conversations = rows.adapt(conversations, self.table)
            conversations = self._with_images(conversations, table, rows)
        frame = pl.DataFrame(
            {
                **{name: pl.from_arrow(column) for name, column in others.items()},
                **{name: turns.column() for name, turns in conversations.items()},
                "__row": np.arange(table.num_rows),
            }
        )
        if rows.lost and {"chosen", "rejected"} <= conversations.keys():
            same = frame.select(same_conversation(pl.col("chosen"), pl.col("rejected"))).to_series()
            rows.refuse("content", same.to_numpy(), "a pair that is equal without what is lost")
        if rows.problems:
            frame = frame.filter(pl.Series(rows.sound))
        made, bad = self.target.computed(lambda: _select(frame, self.rows))
        found = [(row, CODE, *problem) for row, problem in rows.problems.items()]
        found += [(row, p.code, p.column or "", p.message) for row, p in bad]
        places = made.get_column("__row").to_numpy()
        made = made.drop("__row")
        if self.keyed:
            made = made.with_columns(_taken(prompt_texts(frame_of(table)), places).alias(SPLIT_KEY))
        losses = Counter(
            {n: int(np.isin(np.flatnonzero(m), places).sum()) for n, m in rows.lost.items()}
        )
        return _Applied(made, places, sorted(found), +losses)

    def _with_images(
        self, conversations: Mapping[str, TurnTable], table: pa.Table, rows: "_Rows"
    ) -> dict[str, TurnTable]:
        """Return conversations with their images as the target has them, or without."""
        if IMAGES not in self.canonical.names:
            return dict(conversations)
        images = table.column(IMAGES)
        if not self.has_images:
            rows.lose(IMAGES, target_images.has_some(images))
            found = {name: target_images.without(turns) for name, turns in conversations.items()}
            for turns in found.values():
                rows.refuse_blank(turns)
            return found
        if self.target.images == "paths":
            why = "images that are no files; --images paths writes them as such"
            rows.refuse(IMAGES, target_images.without_files(images), why)
        return {
            name: target_images.with_images_shown(self.target, turns, images, rows.refuse)
            for name, turns in conversations.items()
        }

    def _without_lost_columns(self, table: pa.Table, rows: "_Rows") -> dict[str, pa.ChunkedArray]:
        """Return the columns that are not conversations; those without a place are dropped or reported."""
        out = {}
        for entry in self._own_fields:
            column = table.column(entry.name)
            if entry.name == IMAGES:
                continue
            if entry.name in LOSSES and entry.name not in self.target.holds:
                rows.lose(entry.name, _there(column), LOSSES[entry.name])
            elif self.has_text or not _is_conversation(entry):
                out[entry.name] = column
        for entry in [] if self.target.keeps else self._kept_fields:
            name = written_name(entry.name)
            rows.lose(name, _there(table.column(entry.name)), f"the kept column {name}")
        return out

    @property
    def _json(self) -> frozenset[str]:
        """Return the paths of JSON text: contents too, where they may be parts."""
        if not self.has_images or self.target.images != "parts":
            return self.target.json
        return self.target.json | {f"{name}.content" for name in self.rows}

    def _schema_of(self, made: pl.DataFrame) -> pa.Schema:
        empty = made.clear().to_arrow(compat_level=pl.CompatLevel.oldest())
        marked = OPTIONAL if "jsonl" in self.target.formats else None
        return pa.schema(
            [
                pa.field(f.name, _disk_type(f.type, f.name, self._json), metadata=marked)
                for f in empty.schema
            ]
        )


@dataclass(frozen=True)
class _Applied:
    made: pl.DataFrame
    kept: np.ndarray
    failures: list[tuple[int, str, str, str]]
    """The row, the code, the field and the message of each."""
    losses: Counter[str]


@dataclass
class _Rows:
    """The rows of a table on their way to a target: the problem of each, and what was dropped of it."""

    target: Target
    allowed: frozenset[str]
    count: int
    problems: dict[int, tuple[str, str]] = field(default_factory=dict)
    lost: dict[str, Bools] = field(default_factory=dict)

    @property
    def sound(self) -> Bools:
        """Return for each row whether it has no problem."""
        kept = np.ones(self.count, np.bool_)
        kept[list(self.problems)] = False
        return kept

    def refuse(self, name: str, rows: Bools, message: str) -> None:
        """Refuse rows that the target cannot represent, because of a field."""
        why = f"the layout has no place for {message}"
        for row in np.flatnonzero(rows).tolist():
            self.problems.setdefault(row, (name, why))

    def lose(self, name: str, rows: Bools, message: str = "") -> bool:
        """Count a loss in these rows, or refuse them; return whether the field is to be dropped."""
        if not rows.any():
            return False
        if name not in self.allowed:
            what = message or LOSSES[name]
            self.refuse(name, rows, f"{what}; --allow-loss {name} writes the row without")
            return False
        self.lost[name] = self.lost.get(name, np.zeros(self.count, np.bool_)) | rows
        return True

    def adapt(
        self, conversations: Mapping[str, TurnTable], table: type[Table]
    ) -> dict[str, TurnTable]:
        """Return the conversations as the target's table has them, without what it does not hold."""
        found = dict(conversations)
        if table is Completion and self.target.takes is Conversation:
            found = {"messages": _whole(found["prompt"], found["completion"])}
        found = {name: self._without_calls(turns) for name, turns in found.items()}
        found = {name: self._without_keys(turns) for name, turns in found.items()}
        found = {name: self._without_systems(turns, name) for name, turns in found.items()}
        if "turns" not in self.target.holds:
            found = {name: self._last_exchange(turns, name) for name, turns in found.items()}
        if table is Conversation and self.target.takes is Completion:
            found = self._cut(found["messages"])
        for turns in found.values():
            self.refuse_blank(turns)
        return found

    def _without_keys(self, turns: TurnTable) -> TurnTable:
        """Drop keys of messages that the target does not hold."""
        # What becomes of calls depends on their turns: _without_calls.
        for name in (key.name for key in MESSAGE_KEYS if key.form != "calls"):
            if name in self.target.holds or not turns.has(name):
                continue
            there = turns.rows_with(turns.where(pl.col(name).is_not_null()))
            if self.lose(name, there):
                turns = turns.replaced(**{name: pl.lit(None, dtype=turns.messages.schema[name])})
        return turns

    def _without_calls(self, turns: TurnTable) -> TurnTable:
        """Drop tool calls and tool results, or convert calls to the form that is held."""
        calls = pl.col("tool_calls")
        if "tool_calls" in self.target.holds:
            return self._formed(turns) if turns.has("tool_calls") else turns
        acts = calls.is_not_null() | (pl.col("role") == "tool")
        if not self.lose("tool_calls", turns.rows_with(turns.where(acts))):
            return turns
        said = pl.col("content").str.contains(r"\S").fill_null(value=False)
        left = turns.only(turns.where(~acts | (calls.is_not_null() & said)))
        return left.replaced(tool_calls=pl.lit(None, dtype=pl.String))

    def _formed(self, turns: TurnTable) -> TurnTable:
        if self.target.calls == "text":
            return self._with_written_arguments(turns)
        return self._bare(turns) if self.target.calls == "bare" else turns

    def _with_written_arguments(self, turns: TurnTable) -> TurnTable:
        odd = turns.where(pl.col("tool_calls").str.contains(_UNTEXTUAL_ARGUMENTS))
        why = "arguments of a call as an object, not as JSON text"
        if not self.lose("arguments", turns.rows_with(odd), why):
            return turns
        return _mapped(turns, odd, _arguments_as_text)

    def _bare(self, turns: TurnTable) -> TurnTable:
        calls = turns.messages.get_column("tool_calls").to_list()
        odd = np.array([c is not None and exports.functions(c) is None for c in calls], np.bool_)
        if self.lose("tool_call_id", turns.rows_with(odd), "ids and types of calls"):
            turns = _mapped(turns, odd, _bared)
            calls = turns.messages.get_column("tool_calls").to_list()
            still = [c is not None and exports.functions(c) is None for c in calls]
            self.refuse("tool_calls", turns.rows_with(np.array(still, np.bool_)), "such calls")
        acts = pl.col("tool_calls").is_not_null()
        both = turns.where(acts & pl.col("content").str.contains(r"(?s)."))
        self.refuse("content", turns.rows_with(both), "text beside tool calls")
        silent = turns.where(acts & pl.col("content").is_null())
        if self.lose("content", turns.rows_with(silent), "null content beside tool calls"):
            filled = pl.when(acts).then(pl.lit("")).otherwise(pl.col("content"))
            turns = turns.replaced(content=pl.col("content").fill_null(filled))
        return turns

    def _without_systems(self, turns: TurnTable, name: str) -> TurnTable:
        """Drop the system turns that the target does not hold."""
        system, developer = (pl.col("role") == role for role in ("system", "developer"))
        if "system" not in self.target.holds:
            odd, why = turns.where(system | developer), "a system turn"
        elif self.target.system == "first":
            odd = turns.where(developer) | (
                turns.where(system)
                & ~(turns.is_first & turns.where(pl.col("content").str.len_bytes() > 0))
            )
            if name not in ("prompt", "messages"):
                odd = turns.where(system | developer)
            why = "a system turn that is empty, not the first, or the developer's"
        elif "developer" not in self.target.holds:
            odd, why = turns.where(developer), "a developer turn"
        else:
            return turns
        if self.lose("system", turns.rows_with(odd), why):
            turns = turns.only(~odd)
        return turns

    def _last_exchange(self, turns: TurnTable, name: str) -> TurnTable:
        """Drop all turns but the last of each side, or report which rows have more."""
        user, reply = (turns.where(pl.col("role") == role) for role in ("user", "assistant"))
        system = turns.where(pl.col("role").is_in(list(SYSTEM)))
        place = np.arange(len(turns.rows))
        asked, said = turns.last(user), turns.last(reply)
        if name == "messages":
            asked = turns.last(user & (place < said[turns.rows]))
        wanted = system.copy()
        needed = np.ones(len(turns.sizes), np.bool_)
        if name in ("messages", "prompt"):
            wanted |= place == asked[turns.rows]
            needed &= asked >= 0
        if name != "prompt":
            wanted |= place == said[turns.rows]
            needed &= said >= 0
        self.refuse("turns", ~needed, f"a {name} without a question and its answer")
        more = turns.rows_with(~wanted)
        if self.lose("turns", more & needed, "turns beside one exchange"):
            turns = turns.only(wanted)
        return turns

    def _cut(self, messages: TurnTable) -> dict[str, TurnTable]:
        """Cut conversations before their one reply, the last turn."""
        reply = messages.where(pl.col("role") == "assistant")
        trained = np.bincount(messages.rows[reply], minlength=len(messages.sizes))
        is_last = messages.rows_with(reply & messages.is_last)
        self.refuse(
            "turns", (trained != 1) | ~is_last, "a conversation of several replies, or none"
        )
        return {
            "prompt": messages.only(~messages.is_last),
            "completion": messages.only(messages.is_last),
        }

    def refuse_blank(self, turns: TurnTable) -> None:
        """Refuse rows with an empty turn."""
        empty = turns.where(is_empty(pl.col, turns.messages.columns))
        self.refuse("content", turns.rows_with(empty), "an empty turn")


def _whole(prompt: TurnTable, completion: TurnTable) -> TurnTable:
    """Append completions to their prompts, in which no reply is trained on."""
    earlier = (pl.col("role") == "assistant") & pl.col("train").is_null()
    if prompt.where(earlier).any():
        untrained = pl.when(earlier).then(pl.lit(value=False)).otherwise(pl.col("train"))
        prompt = prompt.replaced(train=untrained)
    return completion.after(prompt)


def _mapped(turns: TurnTable, mask: Bools, change: _Change) -> TurnTable:
    texts = turns.messages.get_column("tool_calls").to_list()
    made = [change(t) if odd else t for t, odd in zip(texts, mask.tolist(), strict=True)]
    return turns.replaced(tool_calls=pl.lit(pl.Series("tool_calls", made, dtype=pl.String)))


def _arguments_as_text(calls: str | None) -> str | None:
    """Write the arguments of calls as the JSON text of them, as OpenAI has them."""
    found = json_value(calls or "")
    for call in found:
        function = call.get("function")
        if isinstance(function, dict) and not isinstance(function.get("arguments", ""), str):
            function["arguments"] = canonical(function["arguments"])
    return canonical(found)


def _bared(calls: str | None) -> str | None:
    """Keep only the functions of calls."""
    found = json_value(calls or "")
    return canonical(
        [
            {"type": "function", "function": call["function"]} if "function" in call else call
            for call in found
        ]
    )


def _is_text(schema: pa.Schema) -> bool:
    """Return whether the conversations of a table are text already."""
    names = {*CONVERSATION_COLUMNS, *TEXT_NAMES.values()}
    return any(f.name in names and pa.types.is_string(f.type) for f in schema)


def _as_json(entry: pa.Field) -> pa.Field:
    """Return the field of a kept column as the layout has it: JSON is written as the value that it is."""
    is_json = JSON_COLUMN in (entry.metadata or {})
    return pa.field(entry.name, pa.json_() if is_json else entry.type)


def _conversations(table: pa.Table, own: Sequence[pa.Field]) -> dict[str, TurnTable]:
    return {f.name: TurnTable.of(table.column(f.name)) for f in own if _is_conversation(f)}


def _is_conversation(entry: pa.Field) -> bool:
    return (
        entry.name in CONVERSATION_COLUMNS
        and pa.types.is_list(entry.type)
        and pa.types.is_struct(entry.type.value_type)
    )


def _there(column: pa.ChunkedArray) -> Bools:
    """Return for each row whether a column holds something."""
    return buffers.validity(buffers.whole(column))


def _select(
    frame: pl.DataFrame, rows: WrittenColumns
) -> tuple[pl.DataFrame, list[tuple[int, Problem]]]:
    """Compute the columns of the target and the problems of rows, which are left out."""
    columns = [column for column in rows.values() if column]
    problems = list({id(p): p for column in columns for p in column.problems}.values())
    steps = Steps(columns)
    wrong = [steps.when(problem.when) for problem in problems]
    frame = steps.computed(frame)
    values = [column.value.alias(name) for name, column in rows.items() if column]
    if not problems:
        return frame.select(*values, "__row"), []
    number = pl.coalesce(
        pl.when(when).then(pl.lit(i, dtype=pl.UInt16)) for i, when in enumerate(wrong)
    )
    out = frame.select(*values, "__row", number.alias("__problem"))
    bad: list[tuple[int, Problem]] = []
    if out.get_column("__problem").null_count() < out.height:
        faulty = out.filter(pl.col("__problem").is_not_null()).select("__row", "__problem")
        bad = [(row, problems[i]) for row, i in faulty.iter_rows()]
        out = out.filter(pl.col("__problem").is_null())
    return out.drop("__problem"), bad


def _disk_type(dtype: pa.DataType, path: str, json: frozenset[str]) -> pa.DataType:
    """Return the type on disk: plain texts and lists, JSON where the target says that a string is."""
    if pa.types.is_struct(dtype):
        return pa.struct(
            [pa.field(f.name, _disk_type(f.type, f"{path}.{f.name}", json)) for f in dtype]
        )
    if pa.types.is_list(dtype) or pa.types.is_large_list(dtype):
        return pa.list_(_disk_type(dtype.value_type, path, json))
    if pa.types.is_large_string(dtype) or pa.types.is_string(dtype):
        return pa.json_() if path in json else pa.string()
    return dtype


def _taken(values: pl.Series, places: np.ndarray) -> pl.Series:
    return values if len(places) == len(values) else values.gather(pl.Series(places))


def _typed(made: pl.DataFrame, schema: pa.Schema) -> pa.Table:
    """Return a frame as a table of these types."""
    table = made.select(schema.names).to_arrow(compat_level=pl.CompatLevel.newest())
    plain = pa.schema([f.with_type(buffers.with_leaves(f.type, _storage)) for f in schema])
    return table.cast(plain).cast(schema).combine_chunks()


def _storage(dtype: pa.DataType) -> pa.DataType:
    return dtype.storage_type if isinstance(dtype, pa.BaseExtensionType) else dtype
