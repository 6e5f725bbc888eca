"""Functions of EBFT's converters: which reply of a conversation becomes the reference.

A target is an assistant turn with a user or tool turn somewhere before it.
"""

from functools import partial

import numpy as np
import polars as pl
import pyarrow as pa
from polars import Expr

from fmtkit.columns import ABSENT, thinking
from fmtkit.columns.conversations import must_end_with_prompt
from fmtkit.columns.expansion import MESSAGES, TEXT_BYTES, several, too_large
from fmtkit.columns.message_rules import NARROW, WIDE, last, role_of
from fmtkit.columns.problems import Column, Problem
from fmtkit.columns.turn_sources import PROMPT_END_ROLES
from fmtkit.core import buffers
from fmtkit.core.tables import Reference


def conversation_of(*columns: Column) -> Column:
    """Take the first of these columns that holds messages; at least one message must be a target."""
    messages = _first("conversations", "messages", *columns)
    value, turn = messages.value, pl.element().struct
    asked = turn.field("role").is_in(list(PROMPT_END_ROLES))
    return (
        messages.with_value(
            value,
            Problem(
                "no_assistant_turn",
                None,
                _targets(value).list.len() == 0,
                "no assistant turn follows a user turn",
            ),
        )
        .warn("trailing_user_turn", role_of(last(value)) == "user")
        .warn(
            "role_order",
            role_of(
                value.list.eval(
                    pl.element().filter(asked | (turn.field("role") == "assistant"))
                ).list.first()
            )
            == "assistant",
        )
    )


def prompt_of(*columns: Column) -> Column:
    """Take the first of these columns that holds messages; the last message must ask for a reply."""
    return must_end_with_prompt(plain(_first("input", "prompt", *columns)), "prompt")


def _first(column: str, name: str, *columns: Column) -> Column:
    """Take the first of these columns that holds messages; null is a problem of `column`, empty of `name`."""
    # A column that the source lacks is a null string, which cannot be coalesced with messages.
    held = [column for column in columns if column is not ABSENT]
    value = pl.coalesce([column.value for column in held])
    called = pl.element().struct.field("tool_calls").is_not_null()
    return (
        Column(value)
        .depending_on(*held)
        .with_value(
            value,
            Problem("null_field", column, value.is_null(), "the row has no messages"),
            Problem("empty_field", name, value.list.len() == 0, f"{name} has no messages"),
            Problem(
                "unsupported",
                f"{name}[].tool_calls",
                _any(value, called),
                "a reference is text: a turn has tool_calls",
            ),
        )
    )


def plain(messages: Column) -> Column:
    """Keep the role and the content of each message; rows with reasoning_content are refused."""
    turn = pl.element().struct
    thought = _any(messages.value, turn.field("reasoning_content").is_not_null())
    message = pl.struct(role=turn.field("role"), content=turn.field("content"))
    return messages.with_value(
        messages.value.list.eval(message),
        Problem(
            "unsupported",
            "messages[].reasoning_content",
            thought,
            "the type cannot carry reasoning_content; use ebft_reasoning.transform_split_thinking",
        ),
    )


def first_reply(messages: Column) -> Reference:
    """Make the first target the reference, with the turns after it up to the last assistant turn."""
    spoken = plain(messages)
    place = _targets(spoken.value).list.first()
    end = _places(spoken.value, pl.element().struct.field("role") == "assistant").list.last()
    after = spoken.value.list.slice(place + 1, end - place)
    return Reference(
        prompt=spoken.with_value(spoken.value.list.head(place)),
        ground_truth=Column(_content(spoken.value, place)),
        remaining_turns=Column(after),
    )


def last_reply(messages: Column) -> Reference:
    """Make the last target the reference."""
    spoken = plain(messages)
    place = _targets(spoken.value).list.last()
    return Reference(
        spoken.with_value(spoken.value.list.head(place)), Column(_content(spoken.value, place))
    )


def every_reply(messages: Column) -> Reference:
    """Make a row for each target, whose prompt is all the turns before it."""
    spoken = plain(messages)
    is_large = _repeats_too_much(spoken.value)
    spoken = spoken.with_value(
        pl.when(~is_large).then(spoken.value), too_large("conversation", "messages", is_large)
    ).once("__spoken")
    heads = spoken.value.map_batches(
        partial(_heads, dtype=NARROW), return_dtype=pl.List(pl.List(NARROW))
    )
    turn = pl.element().struct
    texts = spoken.value.list.eval(turn.field("content").filter(_is_target()))
    return Reference(several(spoken.with_value(heads)), several(Column(texts)))


def _repeats_too_much(messages: Expr) -> Expr:
    """Return whether all turns before each target, written one by one, are too many."""
    sizes = pl.element().struct.field("content").str.len_bytes().fill_null(0).cast(pl.Int64)
    before = sizes.cum_sum() - sizes
    count = _targets(messages).list.sum()
    text_bytes = messages.list.eval(before.filter(_is_target())).list.sum()
    return ((count > MESSAGES) | (text_bytes > TEXT_BYTES)).fill_null(value=False)


def last_answer(messages: Column) -> Reference:
    """Make the last target the reference, without its thinking."""
    row = last_reply(messages)
    text = thinking.answer(row.ground_truth.value)
    nothing = Problem(
        "empty_answer_after_think",
        None,
        text.is_null() | (text == ""),
        "nothing follows the thinking of the last assistant turn",
    )
    return Reference(row.prompt, Column(text, (nothing,)))


def last_thought(messages: Column) -> Reference:
    """Make the last target the reference; the thinking of every turn becomes reasoning_content."""
    split = messages.value.list.eval(_split_message())
    place = _targets(messages.value).list.last()
    target = split.list.get(place, null_on_oob=True).struct
    thought, said = target.field("reasoning_content"), target.field("content")
    nothing = Problem(
        "empty_answer_after_think",
        None,
        (thought != "") & (said == ""),
        "nothing follows the thinking of the last assistant turn",
    )
    prompt = messages.with_value(split.list.head(place), nothing)
    inside = _any(
        messages.value, _is_assistant() & thinking.is_inside(pl.element().struct.field("content"))
    )
    return Reference(prompt.warn("control_tokens", inside), Column(thinking.joined(thought, said)))


def _split_message() -> Expr:
    turn = pl.element().struct
    content, given = turn.field("content"), turn.field("reasoning_content")
    thought, said = thinking.leading(content)
    splits = _is_assistant() & given.is_null()
    fields = {entry.name: turn.field(entry.name) for entry in WIDE.fields}
    fields["content"] = pl.when(splits).then(said).otherwise(content)
    fields["reasoning_content"] = pl.when(splits).then(thought).otherwise(given.fill_null(""))
    return pl.struct([value.alias(name) for name, value in fields.items()])


def _is_assistant() -> Expr:
    return pl.element().struct.field("role") == "assistant"


def _is_target() -> Expr:
    """Return which messages of a list are of the assistant, with one that asks somewhere before."""
    role = pl.element().struct.field("role")
    return (role == "assistant") & (
        role.is_in(list(PROMPT_END_ROLES)).cast(pl.UInt32).cum_sum() > 0
    )


def _targets(messages: Expr) -> Expr:
    return _places(messages, _is_target())


def _places(messages: Expr, when: Expr) -> Expr:
    """Return the positions of the messages for which `when` is true, as a list of int64."""
    return messages.list.eval(when.arg_true().cast(pl.Int64))


def _content(messages: Expr, place: Expr) -> Expr:
    return messages.list.get(place, null_on_oob=True).struct.field("content")


def _any(messages: Expr, when: Expr) -> Expr:
    return messages.list.eval(when).list.any().fill_null(value=False)


def _heads(messages: pl.Series, dtype: pl.Struct) -> pl.Series:
    """Return the turns before each target, as lists of lists, with one gather over all messages."""
    frame = messages.to_frame("m").select("m", t=_targets(pl.col("m")))
    flat = frame["m"].explode(empty_as_null=False, keep_nulls=False)
    sizes = frame["m"].list.len().fill_null(0).to_numpy().astype(np.int64)
    counts = frame["t"].list.len().fill_null(0).to_numpy().astype(np.int64)
    lengths = frame["t"].explode(empty_as_null=False, keep_nulls=False).to_numpy().astype(np.int64)
    begins = np.repeat(np.cumsum(sizes) - sizes, counts)
    inner = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    within = np.arange(inner[-1]) - np.repeat(inner[:-1], lengths)
    gathered = flat.gather(np.repeat(begins, lengths) + within).to_arrow()
    outer = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    lists = pa.LargeListArray.from_arrays(buffers.int64s(inner), gathered)
    nested = pa.LargeListArray.from_arrays(buffers.int64s(outer), lists)
    return pl.Series(messages.name, nested, dtype=pl.List(pl.List(dtype)))
