"""What can be wrong with the messages of a column of conversations, checked all at once."""

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from operator import or_

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from fmtkit.columns import thinking
from fmtkit.columns.flat_messages import FlatMessages, flatten
from fmtkit.core.data_classes import dataclass
from fmtkit.core.message_keys import MAY_BE_EMPTY, REASONING_KEYS, SAYING, SYSTEM

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Conversations(FlatMessages[pa.StructArray]):
    """The messages of a column of a table, and the column's name."""

    name: str

    @classmethod
    def of(cls, name: str, column: pa.Array | pa.ChunkedArray) -> "Conversations":
        """Flatten a column of lists of messages."""
        return cls(**vars(flatten(column)), name=name)

    def field(self, key: str) -> pa.Array:
        """Return one key of every message; nulls where messages have no such key."""
        if self.messages.type.get_field_index(key) < 0:
            return pa.nulls(len(self.messages), pa.string())
        return self.messages.field(key)

    def filled(self, key: str) -> Bools:
        """Return which messages have more than white space under a key."""
        return _bools(pc.match_substring_regex(self.field(key), r"\S"))

    def is_role(self, *roles: str) -> Bools:
        """Return which messages have one of these roles."""
        return _bools(pc.is_in(self.field("role"), pa.array(roles)))


def _bools(array: pa.Array) -> Bools:
    found: Bools = pc.fill_null(array, pa.scalar(value=False)).to_numpy(zero_copy_only=False)
    return found


def empty_turn(conversations: Conversations) -> Bools:
    """Find rows with a message without text, reasoning or tool call; system prompts may be empty."""
    full = reduce(or_, map(conversations.filled, ("content", *SAYING)))
    return conversations.rows_with(~full & ~conversations.is_role(*MAY_BE_EMPTY))


def role_order(conversations: Conversations) -> Bools:
    """Find rows whose turns do not alternate, or do not begin as they should."""
    system, user = conversations.is_role(*SYSTEM), conversations.is_role("user")
    bot, tool = conversations.is_role("assistant"), conversations.is_role("tool")
    first = conversations.is_first
    after_system, after_user, after_bot, after_tool = (
        np.append(False, kind[:-1])[: len(kind)] & ~first for kind in (system, user, bot, tool)
    )
    calls = np.append(False, conversations.filled("tool_calls")[:-1])[: len(first)]
    wrong = system & ~first & ~after_system
    wrong |= (user & after_user) | (bot & after_bot & ~calls)
    wrong |= tool & ~(after_bot | after_tool) & ~first
    if conversations.name in ("prompt", "messages"):
        wrong |= bot & (first | after_system)
    else:
        wrong |= first & ~bot
    if conversations.name == "prompt":
        wrong |= conversations.is_last & bot
    return conversations.rows_with(wrong)


def trailing_user_turn(conversations: Conversations) -> Bools:
    """Find conversations, and replies, that end with the user's turn."""
    if conversations.name == "prompt":
        return np.zeros(len(conversations.sizes), dtype=np.bool_)
    return conversations.rows_with(conversations.is_last & conversations.is_role("user"))


def unclosed_think(conversations: Conversations) -> Bools:
    """Find rows with a reply that opens more thoughts than it closes."""
    content = conversations.field("content")
    # Most texts have no such tag: the cheaper question first.
    candidates = np.flatnonzero(
        matching(content, ("<think>",)) & conversations.is_role("assistant")
    )
    wrong = np.zeros(len(content), dtype=np.bool_)
    if len(candidates):
        texts = content.take(pa.array(candidates))
        opened, closed = (
            pc.count_substring(texts, tag).to_numpy(zero_copy_only=False)
            for tag in ("<think>", "</think>")
        )
        wrong[candidates] = opened > closed
    return conversations.rows_with(wrong)


_OPENS = tuple(start for start, _ in thinking.TAGS)
_THOUGHT = f"(?:{thinking.OPEN})" + r"\s*(?:[^<\s]|<[^/|])"
"""The beginning of a block of thinking that is not empty."""


def with_reasoning(conversations: Conversations) -> Bools:
    """Return which messages are replies with reasoning, beside their content or in it."""
    content, reply = conversations.field("content"), conversations.is_role("assistant")
    thinks = conversations.filled(REASONING_KEYS[0]) & reply
    candidates = np.flatnonzero(matching(content, _OPENS) & reply & ~thinks)
    if len(candidates):
        texts = content.take(pa.array(candidates))
        closed = _bools(pc.match_substring_regex(texts, thinking.CLOSE))
        thinks[candidates] = closed & _bools(pc.match_substring_regex(texts, _THOUGHT))
    return thinks


CONVERSATION_CHECKS: dict[str, Callable[[Conversations], Bools]] = {
    "empty_turn": empty_turn,
    "role_order": role_order,
    "trailing_user_turn": trailing_user_turn,
    "unclosed_think": unclosed_think,
}
"""Code of a finding -> the function that finds its rows."""


def searched(tokens: Iterable[str]) -> tuple[str, ...]:
    """Return the control tokens that content should not have."""
    return tuple(sorted(set(tokens) - thinking.TAG_TOKENS))


def matching(texts: pa.Array, words: Sequence[str]) -> Bools:
    """Return which texts any of these words is found in; a null has none."""
    series = pl.from_arrow(texts)
    assert isinstance(series, pl.Series)
    # One pass whatever the number of words; polars' search is ten times pyarrow's.
    found = series.str.contains_any(list(words)).fill_null(value=False)
    return found.to_numpy()
