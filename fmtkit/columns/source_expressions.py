"""The expressions of sources and rules: how polars makes what `fmtkit.columns.turn_sources` describes.

A kind of source registers its `expression`, a kind of rule its `condition`; everything else follows. What
one of them needs of others it asks of `Steps`, so that each conversation is made once for all that use it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import singledispatch

import polars as pl
from polars import Expr

from fmtkit.columns import blank, filled
from fmtkit.columns.message_rules import (
    NARROW,
    WIDE,
    all_but_last,
    has_role,
    is_one_answer,
    last,
    message_of,
    role_of,
    turn_flaws,
)
from fmtkit.columns.problems import Column
from fmtkit.columns.shared_turns import begins_with, joined, same_conversation, shared_turns
from fmtkit.columns.turn_sources import (
    AfterContext,
    AfterShared,
    AllButLast,
    Blank,
    Empty,
    Ends,
    Equal,
    Except,
    Flawed,
    Foreign,
    HasRole,
    Last,
    Messages,
    Null,
    OtherSystem,
    PromptTurns,
    QuestionMissing,
    Rule,
    Same,
    Several,
    Shared,
    Source,
    Texts,
    TurnFlaw,
    WithoutAnswer,
    WithoutSystem,
    WithQuestion,
    WithSystem,
)
from fmtkit.core.codes import PRECEDENCE
from fmtkit.core.message_keys import SYSTEM


class Steps:
    """What is computed before the columns of a table and their problems, each once, in order."""

    def __init__(self, columns: Iterable[Column] = ()) -> None:
        self.made: dict[str, Expr] = {}
        for column in columns:
            for step in column.steps:
                if isinstance(step, Source):
                    self.turns(step)
                else:
                    name, value = step
                    self.made[name] = value

    def once(self, name: str, make: Callable[[], Expr]) -> Expr:
        """Return the column of this name, which is made unless it is there already."""
        if name not in self.made:
            value = make()
            self.made[name] = value
        return pl.col(name)

    def turns(self, source: Source) -> Expr:
        """Return the conversation that a source makes."""
        if isinstance(source, Messages):
            return pl.col(source.column)
        return self.once(source.name, lambda: expression(source, self))

    def when(self, found: Expr | Rule) -> Expr:
        """Return the condition that a rule is; an expression is one."""
        if isinstance(found, Expr):
            return found
        return self.once(repr(found), lambda: condition(found, self))

    def passes(self) -> Iterator[dict[str, Expr]]:
        """Yield the steps that can be made together, in as few passes as there are dependent ones."""
        waiting: dict[str, Expr] = {}
        for name, value in self.made.items():
            if not waiting.keys().isdisjoint((name, *value.meta.root_names())):
                yield waiting
                waiting = {}
            waiting[name] = value
        if waiting:
            yield waiting

    def computed(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the frame with all steps."""
        for computed in self.passes():
            frame = frame.with_columns(**computed)
        return frame


# Conversations.


@singledispatch
def expression(source: Source, steps: Steps) -> Expr:
    """Return the expression of a source, a list of messages; of others it is made by `steps.turns`."""
    raise TypeError(f"{type(source).__name__} has no expression beside {len(steps.made)} others")


@expression.register
def _(source: Texts, steps: Steps) -> Expr:  # noqa: ARG001
    layout = WIDE if source.wide else NARROW
    messages = [message_of(layout, pl.lit(role), pl.col(name)) for role, name in source.said]
    if not messages:
        return pl.lit([], dtype=pl.List(layout))
    if source.complete:
        return pl.concat_list(messages)
    # concat_arr and a filter, not concat_list and drop_nulls: 20 times as fast (polars 2.1).
    spoken = pl.element().struct.field("content").str.len_bytes() > 0
    return pl.concat_arr(messages).arr.to_list().list.eval(pl.element().filter(spoken))


@expression.register
def _(source: WithSystem, steps: Steps) -> Expr:
    messages, system = steps.turns(source.of), pl.col(source.system)
    wanted = filled(system) & ~_begins_with_system(messages)
    return pl.map_batches([messages, system, wanted], _led, is_elementwise=True)


def _begins_with_system(messages: Expr) -> Expr:
    return role_of(messages.list.first()).is_in(list(SYSTEM)).fill_null(value=False)


def _led(columns: Sequence[pl.Series]) -> pl.Series:
    """Put a system turn before the messages of the rows that want one."""
    messages, system, wanted = columns
    # Making messages takes longer than all else: it runs only for sources that have system prompts.
    if not wanted.any():
        return messages
    both = pl.DataFrame({"messages": messages, "system": system, "wanted": wanted})
    lead = pl.concat_list([_turn_like(messages, "system", pl.col("system"))])
    put = joined(lead, pl.col("messages"), pl.col("wanted"))
    return both.select(put.alias(messages.name)).to_series()


def _turn_like(messages: pl.Series, role: str, content: Expr) -> Expr:
    """Make a message of the layout that these messages have."""
    return message_of(WIDE if messages.dtype == pl.List(WIDE) else NARROW, pl.lit(role), content)


@expression.register
def _(source: WithQuestion, steps: Steps) -> Expr:
    messages, question = steps.turns(source.of), pl.col(source.question)
    wanted = filled(question) & ~steps.when(HasRole(source.of, ("user",)))
    return pl.map_batches([messages, question, wanted], _asked, is_elementwise=True)


def _asked(columns: Sequence[pl.Series]) -> pl.Series:
    """Put a question before the last message of the rows that want one."""
    messages, question, wanted = columns
    if not wanted.any():
        return messages
    both = pl.DataFrame({"messages": messages, "question": question, "wanted": wanted})
    said = pl.col("messages")
    asked = pl.concat_list([_turn_like(messages, "user", pl.col("question"))])
    put = pl.concat_list([all_but_last(said), asked, said.list.tail(1)])
    made = pl.when("wanted").then(put).otherwise(said)
    return both.select(made.alias(messages.name)).to_series()


@expression.register
def _(source: WithoutSystem, steps: Steps) -> Expr:
    messages = steps.turns(source.of)
    led = role_of(messages.list.first()) == "system"
    return messages.list.slice(pl.when(led).then(1).otherwise(0))


@expression.register
def _(source: AllButLast, steps: Steps) -> Expr:
    return all_but_last(steps.turns(source.of))


@expression.register
def _(source: Last, steps: Steps) -> Expr:
    return steps.turns(source.of).list.tail(1)


@expression.register
def _(source: WithoutAnswer, steps: Steps) -> Expr:
    messages = steps.turns(source.of)
    leaks = steps.when(Ends(source.of, ("assistant",))) & steps.when(
        Same(Last(source.of), Last(source.other))
    )
    return pl.when(leaks).then(all_but_last(messages)).otherwise(messages)


@expression.register
def _(source: AfterContext, steps: Steps) -> Expr:
    context, reply = steps.turns(source.context), steps.turns(source.reply)
    return joined(context, reply, _is_alone(source.reply, steps))


@expression.register
def _(source: PromptTurns, steps: Steps) -> Expr:
    context, reply = steps.turns(source.context), steps.turns(source.reply)
    return pl.when(_is_alone(source.reply, steps)).then(context).otherwise(all_but_last(reply))


@expression.register
def _(source: Shared, steps: Steps) -> Expr:
    return steps.turns(source.one).list.head(_shared(source.one, source.other, steps))


@expression.register
def _(source: AfterShared, steps: Steps) -> Expr:
    return steps.turns(source.one).list.slice(_shared(source.one, source.other, steps))


def _is_alone(reply: Source, steps: Steps) -> Expr:
    """Return whether a reply includes no earlier turns."""

    def alone() -> Expr:
        first = role_of(steps.turns(reply).list.first())
        return (first == "assistant").fill_null(value=True)

    return steps.once(f"{reply} is alone", alone)


def _shared(one: Source, other: Source, steps: Steps) -> Expr:
    """Count the turns that both conversations begin with, which is the same for either."""
    first, second = sorted((one, other), key=repr)
    name = f"{first} and {second} share"
    return steps.once(name, lambda: shared_turns(steps.turns(first), steps.turns(second)))


# Rules. A null is no fault: what is null has a problem of its own.


@singledispatch
def condition(rule: Rule, steps: Steps) -> Expr:
    """Return the expression of a rule; of conversations it is made by `steps.turns`."""
    raise TypeError(f"{type(rule).__name__} has no condition beside {len(steps.made)} others")


@condition.register
def _(rule: Null, steps: Steps) -> Expr:  # noqa: ARG001
    value = pl.col(rule.column)
    return value.is_null() if rule.holds else value.is_not_null()


@condition.register
def _(rule: Blank, steps: Steps) -> Expr:  # noqa: ARG001
    return blank(pl.col(rule.column))


@condition.register
def _(rule: Empty, steps: Steps) -> Expr:  # noqa: ARG001
    empty = (pl.col(rule.column) == "").fill_null(value=False)
    return empty if rule.holds else ~empty


@condition.register
def _(rule: Equal, steps: Steps) -> Expr:  # noqa: ARG001
    return pl.col(rule.one) == pl.col(rule.other)


@condition.register
def _(rule: Flawed, steps: Steps) -> Expr:
    messages = pl.col(rule.column)
    if rule.flaw is TurnFlaw.NO_MESSAGES:
        return messages.list.len() == 0
    flaws = turn_flaws(rule.keys)
    order = sorted(flaws, key=lambda flaw: PRECEDENCE[flaw.code])

    def worst() -> Expr:
        numbers = (
            pl.when(flaws[flaw]).then(pl.lit(i, dtype=pl.UInt8)) for i, flaw in enumerate(order)
        )
        return messages.list.eval(pl.coalesce(numbers)).list.min()

    # Each message is examined once: only the first code in precedence is the row's.
    seen = steps.once(f"worst flaw of {rule.column}", worst)
    return seen == order.index(rule.flaw)


@condition.register
def _(rule: Ends, steps: Steps) -> Expr:
    messages = steps.turns(rule.of)
    ends = role_of(last(messages)).is_in(list(rule.roles))
    return ends if rule.holds else (messages.list.len() == 0) | ~ends


@condition.register
def _(rule: HasRole, steps: Steps) -> Expr:
    if not rule.holds:
        return ~steps.when(replace(rule, holds=True))
    return has_role(steps.turns(rule.of), *rule.roles)


@condition.register
def _(rule: Same, steps: Steps) -> Expr:
    same = same_conversation(steps.turns(rule.one), steps.turns(rule.other))
    return same if rule.holds else ~same


@condition.register
def _(rule: Foreign, steps: Steps) -> Expr:
    reply, context = steps.turns(rule.reply), steps.turns(rule.context)
    return ~begins_with(reply, context, ~_is_alone(rule.reply, steps))


@condition.register
def _(rule: Several, steps: Steps) -> Expr:
    reply = steps.turns(rule.reply)
    if not rule.calls:
        return reply.list.len() > 1
    return _is_alone(rule.reply, steps) & ~is_one_answer(reply)


@condition.register
def _(rule: OtherSystem, steps: Steps) -> Expr:
    messages, system = steps.turns(rule.of), pl.col(rule.system)
    said = messages.list.first().struct.field("content")
    return filled(system) & _begins_with_system(messages) & (said != system)


@condition.register
def _(rule: QuestionMissing, steps: Steps) -> Expr:
    turn, question = pl.element().struct, pl.col(rule.question)
    of_user = turn.field("content").filter(turn.field("role") == "user").str.strip_chars()
    asked = steps.turns(rule.of).list.eval(of_user)
    is_asked = asked.list.contains(question.str.strip_chars())
    return filled(question) & (asked.list.len() > 0) & ~is_asked


@condition.register
def _(rule: Except, steps: Steps) -> Expr:
    held = steps.when(rule.rule)
    for other in rule.others:
        held &= ~steps.when(other).fill_null(value=False)
    return held
