"""LLaMA-Factory v1: messages whose contents are lists of {type, value}, with a weight for the loss."""

from collections.abc import Sequence
from typing import Annotated, TypeAlias

import polars as pl
from polars import Expr

from fmtkit.columns import ABSENT, Tools
from fmtkit.columns.conversations import conversation
from fmtkit.columns.kinds import ListKind, NumberKind, RecordKind, TextKind
from fmtkit.columns.preference_cut import cut_pair, whole
from fmtkit.columns.problems import Column, Problem
from fmtkit.columns.record_turns import joined_texts, speaker, turn, turns
from fmtkit.columns.strict_kinds import written_calls
from fmtkit.core.message_keys import ROLES
from fmtkit.core.tables import Conversation, Preference
from fmtkit.formats.registry import converter

CALLS = ("tool_call", "tool_calls")
KNOWN = ("text", "reasoning", *CALLS)
PART = RecordKind({"type": TextKind(), "value": TextKind()}, frozenset({"value"}))
MESSAGE = RecordKind(
    {"role": TextKind(), "content": ListKind(PART), "loss_weight": NumberKind()},
    frozenset({"loss_weight"}),
)
Spoken: TypeAlias = Annotated[Column, ListKind(MESSAGE)]


@converter(wide=True)
def chat(messages: Spoken, tools: Tools = ABSENT) -> Conversation:
    """https://github.com/hiyouga/LLaMA-Factory/blob/main/src/llamafactory/v1/utils/types.py."""
    return conversation(_turns(messages, "messages"), tools)


@converter(wide=True)
def preference(
    chosen_messages: Spoken, rejected_messages: Spoken, tools: Tools = ABSENT
) -> Preference:
    """https://github.com/hiyouga/LLaMA-Factory/blob/main/src/llamafactory/v1/utils/types.py."""
    better = _turns(chosen_messages, "chosen_messages")
    worse = _turns(rejected_messages, "rejected_messages")
    return cut_pair(whole(better, "chosen_messages"), whole(worse, "rejected_messages"), tools)


def _turns(messages: Column, name: str) -> Column:
    field = pl.element().struct.field
    parts = field("content")
    calls = _values(parts, *CALLS)
    written = calls.map_batches(_written, return_dtype=pl.String, is_elementwise=True)
    known = parts.list.eval(field("type").is_in(list(KNOWN))).list.all()
    message = turn(
        speaker(field("role"), ROLES),
        joined_texts(_values(parts, "text"), pl.element()),
        reasoning_content=_filled(joined_texts(_values(parts, "reasoning"), pl.element())),
        tool_calls=written,
        train=field("loss_weight") != 0,
    )
    return turns(
        messages,
        message,
        name,
        Problem(
            "unsupported",
            f"{name}[].content",
            ~messages.value.list.eval(known).list.all(),
            f"{name} has parts of another type than {', '.join(KNOWN)}; this type reads text only",
        ),
        Problem(
            "value_error",
            f"{name}[].content",
            messages.value.list.eval((calls.list.len() > 0) & written.is_null()).list.any(),
            f"a tool call in {name} is not a JSON object",
        ),
    )


def _values(parts: Expr, *kinds: str) -> Expr:
    """Return the values of the parts of these types."""
    part = pl.element().struct.field
    return parts.list.eval(part("value").filter(part("type").is_in(list(kinds))))


def _filled(text: Expr) -> Expr:
    return pl.when(text.str.len_bytes() > 0).then(text)


def _written(calls: pl.Series) -> pl.Series:
    """Write each message's calls as canonical JSON; null where it has none, or one that is not an object."""
    if not calls.list.len().max():
        return pl.Series(calls.name, [None] * len(calls), dtype=pl.String)
    lists: Sequence[Sequence[str | None] | None] = calls.to_list()
    texts = [written_calls([text or "" for text in found]) if found else None for found in lists]
    return pl.Series(calls.name, texts, dtype=pl.String)
