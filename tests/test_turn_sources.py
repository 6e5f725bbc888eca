"""The expressions of sources and rules are what they mean on one row, whatever they are made of."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import singledispatch
from itertools import product
from typing import Any

import polars as pl
import pytest

from fmtkit.columns import ABSENT
from fmtkit.columns import turn_sources as told
from fmtkit.columns.conversations import (
    context_of,
    has_role,
    messages_of,
    with_question,
    with_system,
)
from fmtkit.columns.exports import must_be_one_answer
from fmtkit.columns.message_rules import NARROW, WIDE
from fmtkit.columns.problems import Column
from fmtkit.columns.source_expressions import Steps, condition, expression
from fmtkit.columns.text_layout import Layout
from fmtkit.columns.turn_sources import Messages, Rule, Source, Texts, TurnFlaw, is_alone, turns
from fmtkit.core.message_keys import MAY_BE_EMPTY, SYSTEM, is_same
from fmtkit.reading import clean_lines

SOURCES = {
    kind for kind in vars(told).values() if isinstance(kind, type) and issubclass(kind, Source)
}
RULES = {kind for kind in vars(told).values() if isinstance(kind, type) and issubclass(kind, Rule)}
SOURCES.remove(Source)
RULES.remove(Rule)

ROLES = ("system", "developer", "user", "assistant", "tool")
TEXTS = (None, "", " ", "a", " a\n", "b")
CALLS = (None, None, '[{"name":"f"}]')
COLUMNS = ("text", "more")


def drawn_rows(draw: random.Random, *, wide: bool) -> list[dict[str, Any]]:
    """Return rows of texts and conversations, which often have turns in common."""

    def turn() -> dict[str, Any]:
        said = {"role": draw.choice(ROLES), "content": draw.choice(TEXTS)}
        more = {"tool_calls": draw.choice(CALLS), "train": draw.choice((None, True, False))}
        more["reasoning_content"] = draw.choice((None, None, "", " \n", "hm"))
        return said | more if wide else said

    def messages_of() -> list[dict[str, Any]]:
        return [turn() for _ in range(draw.randrange(5))]

    found = []
    for _ in range(100):
        one, shared = messages_of(), draw.choice((0, 1, 2, 5))
        texts = {name: draw.choice(TEXTS) for name in COLUMNS}
        found.append({"one": one, "other": [*one[:shared], *messages_of()], **texts})
    return found


def drawn_source(draw: random.Random, kind: type[Source], *, wide: bool, depth: int = 2) -> Source:
    """Return a source of this kind, of columns of such rows and of other sources."""
    if kind is Messages:
        return Messages(draw.choice(("one", "other")))
    if kind is Texts:
        said = tuple((draw.choice(ROLES), draw.choice(COLUMNS)) for _ in range(draw.randrange(4)))
        return Texts(said, wide=wide)
    inner = sorted(SOURCES if depth else {Texts, Messages}, key=str)

    def field(of: object) -> object:
        if of is str:
            return draw.choice(COLUMNS)
        return drawn_source(draw, draw.choice(inner), wide=wide, depth=depth - 1)

    return kind(*(field(entry.type) for entry in fields(kind)))


def drawn_rule(draw: random.Random, kind: type[Rule], *, wide: bool) -> Rule:
    """Return a rule of this kind; only wide messages have calls that it could be about."""
    if kind is told.Flawed:
        keys = ("reasoning_content", "tool_calls") if wide else ()
        return told.Flawed(draw.choice(("one", "other")), draw.choice([*TurnFlaw]), keys)

    def another() -> Rule:
        return drawn_rule(draw, draw.choice(sorted(RULES - {told.Except}, key=str)), wide=wide)

    drawn: dict[object, Callable[[], object]] = {
        str: lambda: draw.choice(COLUMNS),
        bool: lambda: wide and draw.random() < 0.5,
        Source: lambda: drawn_source(draw, draw.choice(sorted(SOURCES, key=str)), wide=wide),
        Rule: another,
        tuple[str, ...]: lambda: tuple(draw.sample(ROLES, 2)),
        tuple[Rule, ...]: lambda: (another(), another())[: draw.randrange(3)],
    }
    return kind(*(drawn[entry.type]() for entry in fields(kind)))


def frame_of(values: Sequence[Mapping[str, Any]], *, wide: bool) -> pl.DataFrame:
    spoken = pl.List(WIDE if wide else NARROW)
    schema = {"one": spoken, "other": spoken, "text": pl.String, "more": pl.String}
    return pl.DataFrame(values, schema=schema)


def held(turn: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in turn.items() if value is not None}


def compare(seed: str, each: int, *, wide: bool) -> None:
    """Compare sources and rules of every kind with what they mean on each row."""
    draw = random.Random(f"{seed} {wide}")
    rows = drawn_rows(draw, wide=wide)
    kinds = [kind for kind in sorted(SOURCES, key=str) for _ in range(each)]
    sources = {drawn_source(draw, kind, wide=wide) for kind in kinds}
    kinds = [kind for kind in sorted(RULES, key=str) for _ in range(each)]
    rules = {drawn_rule(draw, kind, wide=wide) for kind in kinds}
    steps = Steps()
    values = [steps.turns(source).alias(repr(source)) for source in sources]
    whens = [steps.when(rule).fill_null(value=False).alias(repr(rule)) for rule in rules]
    made = steps.computed(frame_of(rows, wide=wide)).select(*values, *whens)
    for source in sources:
        said = [
            [held(turn) for turn in messages_of] for messages_of in made[repr(source)].to_list()
        ]
        assert said == [[held(turn) for turn in turns(source, row)] for row in rows], source
    for rule in rules:
        assert made[repr(rule)].to_list() == [holds(rule, row) for row in rows], rule


@pytest.mark.parametrize("wide", [True, False])
def test_a_source_or_a_rule_is_made_as_it_says(wide):
    compare("few", 4, wide=wide)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("wide", [True, False])
def test_many_sources_and_rules_are_made_as_they_say(wide, seed):
    compare(str(seed), 12, wide=wide)


def test_a_reply_that_a_target_takes_for_one_answer_is_read_as_one():
    roles = ("assistant", "tool", "user", "system")
    kinds = [(role, calls) for role in roles for calls in (None, CALLS[2])]
    replies = [reply for size in range(1, 5) for reply in product(kinds, repeat=size)]
    rows = [
        {"one": [{"role": role, "content": "a", "tool_calls": calls} for role, calls in reply]}
        for reply in replies
    ]
    (refused,) = must_be_one_answer(Column(pl.col("one"))).problems
    steps = Steps()
    several = steps.when(told.Several(Messages("one"), calls=True)).alias("several")
    made = steps.computed(pl.DataFrame(rows, schema={"one": pl.List(WIDE)}))
    made = made.select(several, refused.when.alias("refused"))
    written = [
        reply for reply, bad in zip(replies, made["refused"].to_list(), strict=True) if not bad
    ]
    assert written == [reply for reply in replies if is_one_answer(reply)]
    assert not made.filter(~pl.col("refused"))["several"].any()


def is_one_answer(reply: Sequence[tuple[str, str | None]]) -> bool:
    """Return whether a reply is the assistant's, and all before its last turn calls and their results."""
    *before, (last, _) = reply
    spoken = [role for role, _ in reply]
    works = all(role == "tool" or calls for role, calls in before)
    answers = spoken[0] == last == "assistant" and {*spoken} <= {"assistant", "tool"}
    return answers and works and (not before or before[-1][0] == "tool")


def test_every_kind_has_all_that_is_asked_of_it():
    assert expression.registry.keys() >= SOURCES - {Messages}
    assert turns.registry.keys() >= SOURCES
    assert condition.registry.keys() == RULES | {object}
    assert holds.registry.keys() == RULES | {object}


# What a rule means on one row.


@singledispatch
def holds(rule: Rule, row: Mapping[str, Any]) -> bool:
    raise TypeError(type(rule).__name__, row)


@holds.register
def _(rule: told.Null, row: Mapping[str, Any]) -> bool:
    return (row[rule.column] is None) is rule.holds


@holds.register
def _(rule: told.Blank, row: Mapping[str, Any]) -> bool:
    return row[rule.column] is not None and not row[rule.column].strip()


@holds.register
def _(rule: told.Empty, row: Mapping[str, Any]) -> bool:
    return (row[rule.column] == "") is rule.holds


@holds.register
def _(rule: told.Equal, row: Mapping[str, Any]) -> bool:
    return row[rule.one] is not None and row[rule.one] == row[rule.other]


@holds.register
def _(rule: told.Flawed, row: Mapping[str, Any]) -> bool:
    messages = row[rule.column]
    if rule.flaw is TurnFlaw.NO_MESSAGES:
        return not messages
    mute = [one for one in messages if not any((one[key] or "").strip() for key in rule.keys)]
    null = any(one["content"] is None for one in mute)
    blank = any(
        one["content"] is not None
        and not one["content"].strip()
        and one["role"] not in MAY_BE_EMPTY
        for one in mute
    )
    found = {TurnFlaw.NULL: null, TurnFlaw.ROLE: False, TurnFlaw.BLANK: blank and not null}
    return found[rule.flaw]


@holds.register
def _(rule: told.Ends, row: Mapping[str, Any]) -> bool:
    said = turns(rule.of, row)
    return (bool(said) and said[-1]["role"] in rule.roles) is rule.holds


@holds.register
def _(rule: told.HasRole, row: Mapping[str, Any]) -> bool:
    return any(turn["role"] in rule.roles for turn in turns(rule.of, row)) is rule.holds


@holds.register
def _(rule: told.Same, row: Mapping[str, Any]) -> bool:
    one, other = turns(rule.one, row), turns(rule.other, row)
    return (len(one) == len(other) and all(map(is_same, one, other))) is rule.holds


@holds.register
def _(rule: told.Foreign, row: Mapping[str, Any]) -> bool:
    context, reply = turns(rule.context, row), turns(rule.reply, row)
    if is_alone(reply):
        return False
    return len(reply) < len(context) or not all(map(is_same, context, reply))


@holds.register
def _(rule: told.Several, row: Mapping[str, Any]) -> bool:
    reply = turns(rule.reply, row)
    if not rule.calls:
        return len(reply) > 1
    works = [turn["role"] == "tool" or turn.get("tool_calls") is not None for turn in reply[:-1]]
    return is_alone(reply) and not all(works)


@holds.register
def _(rule: told.OtherSystem, row: Mapping[str, Any]) -> bool:
    said, system = turns(rule.of, row), row[rule.system]
    if not system or not said or said[0]["role"] not in SYSTEM:
        return False
    return said[0]["content"] not in (None, system)


@holds.register
def _(rule: told.QuestionMissing, row: Mapping[str, Any]) -> bool:
    question = row[rule.question]
    asked = [turn["content"] for turn in turns(rule.of, row) if turn["role"] == "user"]
    if not question or not asked:
        return False
    return question.strip() not in [text.strip() for text in asked if text is not None]


@holds.register
def _(rule: told.Except, row: Mapping[str, Any]) -> bool:
    return holds(rule.rule, row) and not any(holds(other, row) for other in rule.others)


# What a new kind needs.


@dataclass(frozen=True)
class Reversed(Source):
    """A conversation from its end."""

    of: Source


@expression.register
def _(source: Reversed, steps: Steps) -> pl.Expr:
    return steps.turns(source.of).list.reverse()


def test_a_new_source_has_its_expression_by_one_registration():
    said = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    frame = frame_of([{"one": said, "other": [], "text": "s", "more": None}], wide=False)
    given_messages = Column(pl.col("one"), turns=Messages("one"))
    turned = given_messages.with_turns(Reversed(Messages("one")))
    column = context_of(with_system(Column(pl.col("text")), turned), "one")
    steps = Steps([column])
    wrong = [steps.when(problem.when) for problem in column.problems]
    made = steps.computed(frame).select(column.value, *wrong).row(0)
    system, reply = {"role": "system", "content": "s"}, {"role": "assistant", "content": "a"}
    assert made == ([system, reply], False, True)
    assert column.problems[-1].code == "role_order"
    # The kernel does not know it: rows of it are made in a frame.
    assert not clean_lines.can_make(Layout(conversations=(told.Last(Reversed(Messages("one"))),)))
    assert clean_lines.can_make(Layout(conversations=(told.Last(Messages("one")),)))


def test_what_no_source_made_is_one_for_those_that_use_it():
    frame = frame_of(
        [{"one": [{"role": "user", "content": "q"}], "other": [], "text": "A", "more": None}],
        wide=False,
    )
    text = Column(pl.col("text").str.to_lowercase())
    messages = Column(pl.col("one").list.reverse())
    column = with_system(text, messages)
    assert [step for step in column.steps if isinstance(step, tuple)]
    made = Steps([column]).computed(frame).select(column.value).item().to_list()
    assert made == [{"role": "system", "content": "a"}, {"role": "user", "content": "q"}]


def test_a_conversation_of_absent_texts_has_no_turns():
    frame = frame_of([{"one": [], "other": [], "text": None, "more": None}] * 2, wide=False)
    for wide in (True, False):
        column = messages_of(system=ABSENT, user=ABSENT, wide=wide)
        made = Steps([column]).computed(frame).select(column.value).to_series()
        assert made.dtype == pl.List(WIDE if wide else NARROW)
        assert made.to_list() == [[], []]


def test_an_absent_question_is_missing_where_no_user_speaks():
    user, reply = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}
    cells = {"other": [], "text": None, "more": None}
    frame = frame_of([{"one": [user, reply], **cells}, {"one": [reply], **cells}], wide=False)
    column = with_question(ABSENT, Column(pl.col("one")), "chosen")
    steps = Steps([column])
    wrong = [steps.when(problem.when) for problem in column.problems]
    found = steps.computed(frame).select(*(w.alias(str(i)) for i, w in enumerate(wrong)))
    assert found.rows() == [(False, False), (True, False)]
    assert [problem.code for problem in column.problems] == ["null_field", "empty_field"]
    assert has_role(pl.col("one"), "user") is not None
