"""Pairs of conversations that may call tools: cut where they begin to differ, not before the last turn.

A reply may then be several messages: a tool call, its result, and the answer.
"""

from dataclasses import replace

import polars as pl

from fmtkit.columns.conversations import must_end_with_prompt, must_end_with_reply
from fmtkit.columns.problems import Column, Problem
from fmtkit.columns.turn_sources import (
    AfterContext,
    AfterShared,
    AllButLast,
    Except,
    Foreign,
    HasRole,
    PromptTurns,
    Rule,
    Same,
    Several,
    Shared,
    Source,
    WithoutAnswer,
)
from fmtkit.core.data_classes import dataclass
from fmtkit.core.message_keys import SYSTEM
from fmtkit.core.tables import Preference


@dataclass(frozen=True)
class Whole:
    """A wide conversation with its reply at the end, and how the source gave it."""

    name: str
    messages: Column
    source: Source
    """What makes the messages."""
    before: Source
    """The turns before the reply; the last one must ask for a reply."""
    several: tuple[Rule, ...] = ()
    """Whether the source gave only a reply, whose messages are not a single answer."""
    problems: tuple[Problem, ...] = ()
    """What is wrong with a reply that the source gave without its context."""


def without_answer(messages: Column, chosen: Column) -> Column:
    """Remove the chosen answer from a context that ends with it, so that it does not leak.

    Args:
        messages: The context.
        chosen: The messages of the chosen answer.
    """
    source, context = messages.described()
    other, answer = chosen.described()
    # The problems of the answer are not those of the context.
    context = replace(context, steps=(*context.steps, *answer.steps))
    return context.with_turns(WithoutAnswer(source, other))


def whole(messages: Column, name: str) -> Whole:
    """Take messages as a whole conversation.

    Args:
        messages: The conversation, with its reply at the end.
        name: The source column, for errors.
    """
    source, given = messages.described()
    return Whole(name, given, source, AllButLast(source))


def whole_with(context: Column, reply: Column, name: str) -> Whole:
    """Put a reply after its context, unless it includes the same context.

    Args:
        context: The messages before the reply.
        reply: The messages of the reply, which may begin with those of the context.
        name: The source column of the reply, for errors.
    """
    before, led = context.described()
    said, given = reply.described()
    source, several = AfterContext(before, said), Several(said, calls=True)
    other = Problem(
        "context_mismatch",
        name,
        Foreign(before, said),
        f"{name} does not begin with the turns of the prompt",
    )
    wrong = Problem(
        "multi_message_answer", name, several, f"{name} is an answer of several messages"
    )
    both = led.depending_on(given).with_turns(source)
    full = both.with_value(both.value, other)
    return Whole(name, full, source, PromptTurns(before, said), (several,), (wrong,))


def cut_pair(
    chosen: Whole, rejected: Whole, tools: Column | None = None, *, is_judged_whole: bool = False
) -> Preference:
    """Cut two whole wide conversations where they begin to differ, after a turn that asks for a reply.

    Where they were judged as a whole, both go on with the same questions, and each side has all of its turns.

    Args:
        chosen: The better conversation, made by `whole` or `whole_with`.
        rejected: The worse one.
        tools: JSON text with the definitions of the tools; None where the layout has none.
        is_judged_whole: Whether a judge compared the conversations, not two replies to one question.
    """
    one, other = chosen.source, rejected.source
    better, worse = AfterShared(one, other), AfterShared(other, one)
    # An answer of several messages is another problem.
    several = (*chosen.several, *rejected.several)
    wrong = [
        Problem(
            "context_mismatch",
            "rejected",
            Except(HasRole(side, ("user", *SYSTEM)), several),
            "chosen and rejected do not answer the same turns",
        )
        for side in (better, worse)
        if not is_judged_whole
    ]
    wrong.append(Problem("no_preference", None, Same(better, worse), "chosen equals rejected"))
    both = chosen.messages.depending_on(rejected.messages)
    return Preference(
        prompt=both.with_turns(Shared(one, other)),
        chosen=_side(chosen, both, better),
        rejected=_side(rejected, both, worse, *wrong),
        tools=tools,
    )


def _side(side: Whole, both: Column, reply: Source, *problems: Problem) -> Column:
    """Make the reply of a side, with what may be wrong with the whole of it."""
    asked = must_end_with_prompt(Column(pl.lit(None)).with_turns(side.before), side.name)
    whole = must_end_with_reply(side.messages, side.name)
    found = whole.with_value(whole.value, *asked.problems, *side.problems, *problems)
    return found.depending_on(both).with_turns(reply)
