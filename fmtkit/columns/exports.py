"""Functions of targets: expressions that make the columns of a layout from canonical conversations.

The conversations are lists of wide messages, without the fields that the target does not hold.
"""

import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import polars as pl
from polars import Expr

from fmtkit import former_names
from fmtkit.columns.message_rules import is_one_answer, role_of
from fmtkit.columns.problems import Column, Problem
from fmtkit.columns.shared_turns import joined
from fmtkit.columns.turn_sources import PROMPT_END_ROLES
from fmtkit.core.message_keys import CALL_ROLE, SEEN, SYSTEM

SHAREGPT_NAMES = {"system": "system", "user": "human", "assistant": "gpt", "tool": "observation"}
CALLS_BEGIN = '{"type":"function","function":'
KEYS = SEEN[2:]
"""Fields of a message besides its role and content, in the order in which they are written."""


def key(name: str) -> Expr:
    """Return a field of each message, inside `each`."""
    return pl.element().struct.field(name)


def each(conversation: Column, fields: Mapping[str, Expr]) -> Column:
    """Make an object of each message of a conversation.

    Args:
        conversation: The conversations.
        fields: Name of a field -> its value for one message, made of `key`.
    """
    made = pl.struct(value.alias(name) for name, value in fields.items())
    return conversation.with_value(conversation.value.list.eval(made))


def no_place(field: str, when: Expr, message: str) -> Problem:
    """Return a problem: the layout has no place for something that rows have.

    Args:
        field: The canonical column, or part of a message, that the layout cannot hold.
        when: True for the rows that have it.
        message: What has no place, for the error: `the layout has no place for ...`.
    """
    return Problem("no_place", field, when, f"the layout has no place for {message}")


def any_turn(conversation: Column, wrong: Expr) -> Expr:
    """Return whether something is true of any message.

    Args:
        conversation: The conversations.
        wrong: The condition on one message, made of `key`; null counts as false.
    """
    return conversation.value.list.eval(wrong.fill_null(value=False)).list.any()


def must_have_reply(conversation: Column) -> Column:
    """Refuse conversations without an assistant turn: types that read one have none."""
    silent = ~any_turn(conversation, key("role") == "assistant")
    return conversation.with_value(
        conversation.value, no_place("turns", silent, "a conversation without a reply")
    )


def must_have_names(conversation: Column, names: Mapping[str, str]) -> Column:
    """Refuse conversations with a turn whose role the layout has no name for.

    Args:
        conversation: The conversations, which are returned.
        names: Role -> what the layout calls it.
    """
    nameless = any_turn(conversation, ~key("role").is_in(list(names)))
    why = f"a turn of another role than {', '.join(names)}"
    return conversation.with_value(conversation.value, no_place("turns", nameless, why))


def role_name(names: Mapping[str, str]) -> Expr:
    """Return what the layout calls the role of each message, inside `each`; see `must_have_names`."""
    return key("role").replace_strict(names, default=None, return_dtype=pl.String)


def messages(conversation: Column, *keys: str) -> Column:
    """Make `{role, content}` of each message, with further keys of it.

    Args:
        conversation: The conversations.
        *keys: Fields besides role and content, of `KEYS`.
    """
    return each(conversation, {name: key(name) for name in ("role", "content", *keys)})


def weighed(conversation: Column, *keys: str) -> Column:
    """Make messages with a `weight` of 1 or 0 if they are marked as trained on or not.

    Args:
        conversation: The conversations.
        *keys: Fields besides role and content, of `KEYS`.
    """
    others = key("train").is_not_null() & (key("role") != "assistant")
    fields = {name: key(name) for name in ("role", "content", *keys)}
    marked = no_place(
        "train", any_turn(conversation, others), "a train mark on a turn that is not a reply"
    )
    made = each(conversation, {**fields, "weight": key("train").cast(pl.Int64)})
    return made.with_value(made.value, marked)


def sharegpt(conversation: Column) -> Column:
    """Make `{from, value}` of each message; a turn that calls tools becomes a `function_call`."""
    calls = key("tool_calls")
    called = calls.map_batches(_written, return_dtype=pl.String, is_elementwise=True)
    speaker = pl.when(calls.is_null()).then(role_name(SHAREGPT_NAMES)).otherwise(pl.lit(CALL_ROLE))
    value = pl.when(calls.is_null()).then(key("content")).otherwise(called)
    named = must_have_names(conversation, SHAREGPT_NAMES)
    return each(named, {"from": speaker, "value": value})


def only_item(made: Column) -> Column:
    """Return the only object of a list."""
    return made.with_value(made.value.list.first())


def text_of_reply(conversation: Column) -> Column:
    """Return the content of the one message of a reply."""
    return conversation.with_value(conversation.value.list.first().struct.field("content"))


def question(prompt: Column) -> Column:
    """Return the content of the last message of a prompt."""
    return prompt.with_value(prompt.value.list.last().struct.field("content"))


def system_text(conversation: Column) -> Column:
    """Return the text of the system turn that a conversation begins with; null without one."""
    first = conversation.value.list.first()
    return Column(pl.when(role_of(first) == "system").then(first.struct.field("content")))


def without_first_system(conversation: Column) -> Column:
    """Return a conversation without the system turn at its start."""
    led = role_of(conversation.value.list.first()) == "system"
    skipped = pl.when(led).then(1).otherwise(0)
    return conversation.with_value(conversation.value.list.slice(skipped))


def whole(prompt: Column, reply: Column) -> Column:
    """Append a reply to its prompt.

    Args:
        prompt: The messages before the reply.
        reply: The messages of the reply; where it is null, the prompt stays alone.
    """
    both = joined(prompt.value, reply.value, reply.value.is_not_null())
    return prompt.with_value(both).depending_on(reply)


def must_end_with_prompt(prompt: Column) -> Column:
    """Refuse prompts that do not end with a user or tool turn."""
    asks = role_of(prompt.value.list.last()).is_in(list(PROMPT_END_ROLES)).fill_null(value=False)
    why = "a prompt that does not end with a user or tool turn"
    return prompt.with_value(prompt.value, no_place("turns", ~asks, why))


def must_be_one_message(reply: Column) -> Column:
    """Refuse replies that are not one message of the assistant."""
    is_one = (reply.value.list.len() == 1) & (role_of(reply.value.list.last()) == "assistant")
    why = "a reply that is not one message of the assistant"
    return reply.with_value(reply.value, no_place("turns", ~is_one.fill_null(value=False), why))


def must_be_one_answer(reply: Column) -> Column:
    """Refuse replies that are not an answer, with tool calls and their results before it."""
    turns = reply.value
    sound = (
        (role_of(turns.list.first()) == "assistant")
        & (role_of(turns.list.last()) == "assistant")
        & is_one_answer(turns)
        & ((turns.list.len() == 1) | (role_of(turns.list.get(-2, null_on_oob=True)) == "tool"))
        & ~any_turn(reply, key("role").is_in(["user", *SYSTEM]))
    )
    why = "a reply of more than tool calls, their results and the answer"
    return reply.with_value(turns, no_place("turns", ~sound.fill_null(value=False), why))


def must_start_apart(chosen: Column, rejected: Column) -> Column:
    """Refuse pairs whose replies begin with the same call: a reader would assign it to the prompt.

    Args:
        chosen: The messages of the better reply.
        rejected: The messages of the worse reply, which are returned.
    """
    several = (chosen.value.list.len() > 1) & (rejected.value.list.len() > 1)
    alike = chosen.value.list.first().eq_missing(rejected.value.list.first())
    why = "two replies that begin with the same message"
    return rejected.with_value(rejected.value, no_place("turns", several & alike, why))


def alternating(conversation: Column, *, ends_with_reply: bool) -> Column:
    """Refuse conversations in which user and assistant do not alternate after a system turn.

    Args:
        conversation: The conversations, which are returned.
        ends_with_reply: Whether the last turn is the assistant's, not the user's.
    """
    rest = without_first_system(conversation).value
    asks = key("role").is_in(list(PROMPT_END_ROLES))
    wrong = rest.list.eval(asks != (pl.int_range(pl.len()) % 2 == 0)).list.any()
    odd = rest.list.len() % 2 == (1 if ends_with_reply else 0)
    why = "turns that do not alternate between user and assistant: LLaMA-Factory skips such rows"
    return conversation.with_value(conversation.value, no_place("turns", wrong | odd, why))


def functions(calls: str) -> list[str] | None:
    """Return the JSON text of each function of bare calls; None if a call has any other key.

    `calls` is canonical JSON text, such as `[{"type":"function","function":{"name":"f"}}]`.
    """
    found: list[str] = []
    at = 1
    while calls.startswith(CALLS_BEGIN + "{", at):
        begin = at + len(CALLS_BEGIN)
        value, end = _DECODER.raw_decode(calls, begin)
        # Readers take an object with `function` as a complete call.
        if "function" in value or calls[end : end + 1] != "}":
            return None
        found.append(calls[begin:end])
        if calls[end + 1 :] == "]":
            return found
        at = end + 2
    return None


_DECODER = json.JSONDecoder()


def _written(calls: pl.Series) -> pl.Series:
    return pl.Series(calls.name, [_value(text) for text in calls], dtype=pl.String)


def _value(text: Any) -> str | None:
    found = functions(text) if text is not None else None
    if found is None:
        return None
    return found[0] if len(found) == 1 else f"[{','.join(found)}]"


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        return former_names.attribute(sys.modules[__name__], __name__, name)
