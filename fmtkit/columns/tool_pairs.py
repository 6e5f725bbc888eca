"""Pairs of conversations that may call tools: cut where they begin to differ, not before the last turn.

A reply may then be several messages: a tool call, its result, and the answer.
"""

from dataclasses import dataclass
from functools import partial

import polars as pl
from polars import Expr

from fmtkit.columns.dialog_pairs import begins_with, joined, same_dialog, shared_turns
from fmtkit.columns.dialogs import (
    all_but_last,
    has_role,
    last,
    must_end_with_prompt,
    must_end_with_reply,
    role_of,
)
from fmtkit.columns.messages import WIDE, same_message
from fmtkit.columns.problems import Column, Problem
from fmtkit.columns.turn_sources import (
    AfterContext,
    AfterShared,
    AllButLast,
    Foreign,
    HasRole,
    PromptTurns,
    Same,
    Several,
    Shared,
    WithoutAnswer,
    known,
)
from fmtkit.core.messages import SYSTEM
from fmtkit.core.tables import Preference


@dataclass(frozen=True)
class Whole:
    """A wide conversation with its reply at the end, and how the source gave it."""

    name: str
    messages: Column
    before: Column
    """The turns before the reply; the last one must ask for a reply."""
    several: Expr
    """Whether the source gave only a reply, whose messages are not a single answer."""
    problems: tuple[Problem, ...] = ()
    """What is wrong with a reply that the source gave without its context."""


def without_answer(messages: Column, chosen: Column) -> Column:
    """Remove the chosen answer from a context that ends with it, so that it does not leak."""
    ending = last(messages.value)
    leaks = (role_of(ending) == "assistant") & same_message(ending, last(chosen.value), WIDE)
    shorter = pl.when(leaks).then(all_but_last(messages.value)).otherwise(messages.value)
    context = messages.with_value(shorter).with_turns(
        known(WithoutAnswer, messages.turns, chosen.turns)
    )
    return context.once("__context")


def whole(messages: Column, name: str) -> Whole:
    """Take messages as a whole conversation."""
    before = Column(all_but_last(messages.value), turns=known(AllButLast, messages.turns))
    return Whole(name, messages, before, pl.lit(value=False))


def whole_with(context: Column, reply: Column, name: str) -> Whole:
    """Put a reply after its context, unless it includes the same context."""
    given = Column((role_of(reply.value.list.first()) == "assistant").fill_null(value=True))
    given = given.depending_on(context, reply).once(f"__alone_{name}")
    alone = given.value
    other = Problem(
        "context_mismatch",
        name,
        ~begins_with(reply.value, context.value, ~alone),
        f"{name} does not begin with the turns of the prompt",
        known(Foreign, context.turns, reply.turns),
    )
    several = given.with_value(alone & ~_is_one_answer(reply.value)).once(f"__several_{name}")
    before = pl.when(alone).then(context.value).otherwise(all_but_last(reply.value))
    put = several.with_value(joined(context.value, reply.value, alone), other)
    full = put.with_turns(known(AfterContext, context.turns, reply.turns)).once(f"__whole_{name}")
    asked = Column(before, turns=known(PromptTurns, context.turns, reply.turns))
    wrong = Problem(
        "multi_message_answer",
        name,
        several.value,
        f"{name} is an answer of several messages",
        known(partial(Several, calls=True), reply.turns),
    )
    return Whole(name, full, asked, several.value, (wrong,))


def _is_one_answer(messages: Expr) -> Expr:
    """Return whether messages are one answer: one message, possibly after tool calls."""
    turn = pl.element().struct
    called = (turn.field("role") == "tool") | turn.field("tool_calls").is_not_null()
    return all_but_last(messages).list.eval(called).list.all()


def cut_pair(chosen: Whole, rejected: Whole, tools: Column | None = None) -> Preference:
    """Cut two whole wide conversations where they begin to differ, after a turn that asks for a reply."""
    one, other = chosen.messages.value, rejected.messages.value
    size = Column(shared_turns(one, other)).depending_on(chosen.messages, rejected.messages)
    size = size.once("__shared")
    sides = chosen.messages.turns, rejected.messages.turns
    better = (
        size.with_value(one.list.slice(size.value))
        .with_turns(known(AfterShared, *sides))
        .once("__better")
    )
    worse = (
        size.with_value(other.list.slice(size.value))
        .with_turns(known(AfterShared, *sides[::-1]))
        .once("__worse")
    )
    # An answer of several messages is another problem, and as data that is another rule.
    apart = [
        Problem(
            "context_mismatch",
            "rejected",
            has_role(side.value, "user", *SYSTEM) & ~chosen.several & ~rejected.several,
            "chosen and rejected do not answer the same turns",
            known(partial(HasRole, roles=("user", *SYSTEM)), side.turns),
        )
        for side in (better, worse)
    ]
    same = Problem(
        "no_preference",
        None,
        same_dialog(better.value, worse.value),
        "chosen equals rejected",
        known(Same, better.turns, worse.turns),
    )
    return Preference(
        prompt=size.with_value(one.list.head(size.value)).with_turns(known(Shared, *sides)),
        chosen=_side(chosen).with_value(better.value).with_turns(better.turns).depending_on(better),
        rejected=_side(rejected)
        .with_value(worse.value, *apart, same)
        .with_turns(worse.turns)
        .depending_on(worse),
        tools=tools,
    )


def _side(side: Whole) -> Column:
    name = side.name
    found = must_end_with_reply(side.messages, name)
    return found.with_value(
        found.value, *must_end_with_prompt(side.before, name).problems, *side.problems
    )
