"""The canonical tables: what every converter makes and every runner takes.

They are TRL's dataset types (https://huggingface.co/docs/trl/dataset_formats), as Arrow schemas:

  Conversation  messages [, tools]                          sft
  Completion    prompt, completion [, tools]                sft
  Prompt        prompt [, tools] + the source's columns     grpo, gdpo, rloo, online_dpo, nash_md, xpo
  Preference    prompt, chosen, rejected [, margin, tools]  dpo, ipo, orpo, cpo, simpo, reward
  Unpaired      prompt, completion, label [, tools]         kto, bco
  Ranking       prompt, replies, scores                     becomes Preference by a pair policy
  Segments      segments, ends                              sft, by text without a template
  Stepwise      prompt, completions, labels                 prm
  Reference     prompt, ground_truth, remaining_turns       ebft, structured
  Tokens        input_ids, attention_mask, labels, ...      ebft, strided

Rows of conversations that may have images have a column `images` too (`fmtkit.core.image_columns`).
A conversation (prompt, chosen, messages, ...) is a list of messages, or its text once rendered. Whether a
message is narrow ({role, content}) or wide is fixed by the converter, never by the data; canonical rows
that are read again have the width of their schema, if they have one.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from fmtkit import former_names
from fmtkit.core.data_classes import dataclass
from fmtkit.core.image_columns import (
    IMAGES,
    IMAGES_FIELD,
    images_array,
    type_with_parts,
    with_parts,
)
from fmtkit.core.message_keys import MESSAGE_KEYS

if TYPE_CHECKING:
    # Training processes read this module, and have no use for polars (0.2 s).
    from fmtkit.columns.problems import Column

MESSAGE = pa.struct([("role", pa.string()), ("content", pa.string())])
WIDE_MESSAGE = pa.struct(
    [
        *MESSAGE,
        *((key.name, pa.bool_() if key.form == "flag" else pa.string()) for key in MESSAGE_KEYS),
    ]
)
"""`tool_calls` is canonical JSON text: inferred structs would rewrite the arguments."""

STORED_MESSAGE = pa.struct(
    [
        *MESSAGE,
        *(
            WIDE_MESSAGE.field(key.name).with_type(pa.json_())
            if key.form == "calls"
            else WIDE_MESSAGE.field(key.name)
            for key in MESSAGE_KEYS
        ),
    ]
)
"""A wide message in a file: its calls are typed arrow.json, which readers give back as values."""

SEGMENT = pa.struct([("text", pa.string()), ("label", pa.bool_())])
"""A part of a string, and whether it is trained on."""

CONVERSATION_COLUMNS = frozenset({"messages", "prompt", "completion", "chosen", "rejected"})
"""Columns that hold messages, or their text once rendered."""

GYM_COLUMNS = ("nemo_gym_row", "nemo_gym_server", "nemo_gym_agent")
"""A row for a NeMo Gym: its JSON text as the servers want it back, and the server and agent for it."""

TEXT_NAMES = {"messages": "text"}
"""The name of a conversation column once it holds text, where the name changes."""

UNRENDERED = frozenset({"Segments", "Stepwise", "Tokens"})
"""Tables whose rows are neither conversations nor their text: no template renders them."""
STEP_SEPARATOR = "\n"
"""What is behind each step of a solution, unless the type's `step_separator` says otherwise."""

CARRIED = "carried: "
"""Prefix of the source's own columns that are carried through, until rows are written or handed out.

A carried column may have any name (`tools`, `label`, the empty one): what fmtkit made itself is known by
its lack of this prefix, never by whether a name is there.
"""
SPLIT_KEY = "split key"
"""Column with the prompt of each row, where what is written no longer shows it; it is never written."""


IMAGE_TABLES = ("Conversation", "Completion", "Prompt", "Preference", "Unpaired", "Ranking")
"""Tables whose rows may have images: those of conversations."""


def has_images(schema: pa.Schema) -> bool:
    """Return whether rows have images of fmtkit's own type."""
    index = schema.get_field_index(IMAGES)
    return index >= 0 and bool(schema.field(index).type == IMAGES_FIELD.type)


def carried(name: str) -> str:
    """Return the name of a carried column until it is written."""
    return CARRIED + name


def is_carried(name: str) -> bool:
    """Return whether a column is one of the source's own, not one that fmtkit made."""
    return name.startswith(CARRIED)


def written_name(name: str) -> str:
    """Return the name under which a column is written."""
    return name.removeprefix(CARRIED)


def written_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema under which rows are written."""
    if has_images(schema):
        schema = _shown_schema(schema)
    return pa.schema([f.with_name(written_name(f.name)) for f in schema if f.name != SPLIT_KEY])


def with_images(schema: pa.Schema) -> pa.Schema:
    """Return the schema of such rows, as they are written, where they have images."""
    if has_images(schema):
        return schema
    return _shown_schema(schema).append(IMAGES_FIELD)


def without_any_image(table: pa.Table) -> pa.Table:
    """Return written rows of text as rows with images are written: none in each."""
    table = _shown(table)
    return table.append_column(IMAGES_FIELD, images_array([()] * table.num_rows))


def _shown_schema(schema: pa.Schema) -> pa.Schema:
    shown = (
        f.with_type(type_with_parts(f.type)) if _is_conversation(f.name) else f for f in schema
    )
    return pa.schema(shown)


def _is_conversation(name: str) -> bool:
    return name in CONVERSATION_COLUMNS or name == "replies"


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of a file of rows: tool calls and tools are values, as chat templates render them.

    Columns of the source stay as they are.
    """
    return written_schema(pa.schema([_stored(field) for field in schema]))


def _stored(field: pa.Field) -> pa.Field:
    if is_carried(field.name):
        return field
    if field.name == "tools" and pa.types.is_string(field.type):
        return field.with_type(pa.json_())
    return field.with_type(_stored_type(field.type))


def _stored_type(dtype: pa.DataType) -> pa.DataType:
    if pa.types.is_list(dtype):
        return pa.list_(_stored_type(dtype.value_type))
    return STORED_MESSAGE if dtype == WIDE_MESSAGE else dtype


def final_rows(table: pa.Table) -> pa.Table:
    """Return rows as they are written or handed out."""
    if has_images(table.schema):
        table = _shown(table)
    if SPLIT_KEY in table.schema.names:
        table = table.drop_columns([SPLIT_KEY])
    return table.rename_columns([written_name(name) for name in table.schema.names])


def _shown(table: pa.Table) -> pa.Table:
    """Return rows with images, the contents of their messages in parts."""
    for place, field in enumerate(table.schema):
        if _is_conversation(field.name):
            dtype = type_with_parts(field.type)
            chunks = map(with_parts, table.column(place).chunks)
            column = pa.chunked_array(list(chunks), dtype)
            table = table.set_column(place, field.with_type(dtype), column)
    return table


@dataclass(frozen=True)
class Table:
    """One column for each canonical column; one that is None is not in this table."""

    optional: ClassVar[frozenset[str]] = frozenset()
    others: ClassVar[dict[str, pa.DataType]] = {}

    @classmethod
    def name(cls) -> str:
        """Return the table's name as it is in reports."""
        return cls.__name__

    @classmethod
    def column_names(cls) -> tuple[str, ...]:
        """Return every column that such a table may have, in order."""
        return tuple(f.name for f in fields(cls))

    @classmethod
    def schema(cls, columns: frozenset[str] | None = None, *, wide: bool, text: bool) -> pa.Schema:
        """Return the Arrow schema on disk; `columns` says which optional ones are there."""
        present = cls.column_names() if columns is None else columns
        conversation = pa.string() if text else pa.list_(WIDE_MESSAGE if wide else MESSAGE)
        names = (n for n in cls.column_names() if n in present or n not in cls.optional)
        return pa.schema([cls._field(name, conversation, text=text) for name in names])

    @classmethod
    def _field(cls, name: str, conversation: pa.DataType, *, text: bool) -> pa.Field:
        if name in cls.others:
            dtype = cls.others[name]
            if isinstance(dtype, _ListOfConversations):
                dtype = pa.list_(conversation)
            return pa.field(name, dtype)
        return pa.field(TEXT_NAMES.get(name, name) if text else name, conversation)


class _ListOfConversations:
    """Mark of a column whose items are conversations."""


@dataclass(frozen=True)
class Conversation(Table):
    """A whole chat to train on."""

    messages: Column
    tools: Column | None = None
    optional = frozenset({"tools"})
    others: ClassVar[dict[str, pa.DataType]] = {"tools": pa.string()}


@dataclass(frozen=True)
class Completion(Table):
    """A prompt with one reply to train on."""

    prompt: Column
    completion: Column
    tools: Column | None = None
    optional = frozenset({"tools"})
    others: ClassVar[dict[str, pa.DataType]] = {"tools": pa.string()}


@dataclass(frozen=True)
class Prompt(Table):
    """A prompt to answer while training; the source's other columns go to the reward functions."""

    prompt: Column
    tools: Column | None = None
    answer: Column | None = None
    nemo_gym_row: Column | None = None
    nemo_gym_server: Column | None = None
    nemo_gym_agent: Column | None = None
    optional = frozenset({"tools", "answer", *GYM_COLUMNS})
    others: ClassVar[dict[str, pa.DataType]] = {
        name: pa.string() for name in ("tools", "answer", *GYM_COLUMNS)
    }


@dataclass(frozen=True)
class Preference(Table):
    """A prompt with a better and a worse reply."""

    prompt: Column
    chosen: Column
    rejected: Column
    margin: Column | None = None
    tools: Column | None = None
    optional = frozenset({"margin", "tools"})
    others: ClassVar[dict[str, pa.DataType]] = {"margin": pa.float64(), "tools": pa.string()}


@dataclass(frozen=True)
class Unpaired(Table):
    """A prompt with one reply, labelled desirable or not."""

    prompt: Column
    completion: Column
    label: Column
    tools: Column | None = None
    optional = frozenset({"tools"})
    others: ClassVar[dict[str, pa.DataType]] = {"label": pa.bool_(), "tools": pa.string()}


@dataclass(frozen=True)
class Ranking(Table):
    """A prompt with several replies and a score for each, higher is better."""

    prompt: Column
    replies: Column
    scores: Column
    others: ClassVar[dict[str, pa.DataType]] = {
        "replies": _ListOfConversations(),
        "scores": pa.list_(pa.float64()),
    }


@dataclass(frozen=True)
class Segments(Table):
    """Segments of text that no template renders, with labels for those that are trained on.

    `ends` is "none" where the text holds its special tokens itself, "closed" where the tokenizer's BOS
    and EOS go around it, "document" where a text that is too long becomes several rows as well.
    """

    segments: Column
    ends: Column
    others: ClassVar[dict[str, pa.DataType]] = {
        "segments": pa.list_(SEGMENT),
        "ends": pa.string(),
    }


@dataclass(frozen=True)
class Stepwise(Table):
    """A problem, the steps of one solution, and whether each step is right (or how likely)."""

    prompt: Column
    completions: Column
    labels: Column
    others: ClassVar[dict[str, pa.DataType]] = {
        "prompt": pa.string(),
        "completions": pa.list_(pa.string()),
        "labels": pa.list_(pa.bool_()),
    }


@dataclass(frozen=True)
class Reference(Table):
    """A prompt with the text that a good answer resembles, and the turns that follow."""

    prompt: Column
    ground_truth: Column
    remaining_turns: Column | None = None
    optional = frozenset({"remaining_turns"})
    others: ClassVar[dict[str, pa.DataType]] = {
        "ground_truth": pa.string(),
        "remaining_turns": pa.list_(MESSAGE),
    }


@dataclass(frozen=True)
class Tokens(Table):
    """Token ids, their labels (-100 where nothing is trained on) and where the prompt ends."""

    input_ids: Column
    attention_mask: Column
    labels: Column
    prompt_length: Column
    anchor_mask: Column | None = None
    optional = frozenset({"anchor_mask"})
    others: ClassVar[dict[str, pa.DataType]] = {
        "input_ids": pa.list_(pa.int32()),
        "attention_mask": pa.list_(pa.int8()),
        "labels": pa.list_(pa.int32()),
        "prompt_length": pa.int32(),
        "anchor_mask": pa.list_(pa.int8()),
    }


TABLES: dict[str, type[Table]] = {
    table.__name__: table
    for table in (
        Conversation,
        Completion,
        Prompt,
        Preference,
        Unpaired,
        Ranking,
        Segments,
        Stepwise,
        Reference,
        Tokens,
    )
}

BECOMES: dict[str, str] = {"Ranking": "Preference", "Preference": "Unpaired"}
"""Table -> the table that is made of it for a method that does not take it.

A ranking is paired by a policy; a pair is taken apart, as TRL's `unpair_preference_dataset` does.
"""


@cache
def table_for(made: str, taken: tuple[str, ...]) -> str | None:
    """Return the table that `made` is or becomes among those that are taken; None if it is none.

    >>> table_for("Ranking", ("Unpaired",))
    'Unpaired'
    """
    table: str | None = made
    while table is not None and table not in taken:
        table = BECOMES.get(table)
    return table


def steps_to(made: str, taken: Collection[str]) -> int:
    """Count the tables between `made` and the first accepted one; 0 if it is accepted itself."""
    steps, table = 0, made
    while table not in taken and table in BECOMES:
        steps, table = steps + 1, BECOMES[table]
    return steps


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        return former_names.attribute(sys.modules[__name__], __name__, name)
