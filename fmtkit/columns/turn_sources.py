"""How the conversations of a row are made, and which rows are bad, as data: the one statement of each.

A source makes the turns of a conversation, a rule says of which rows something is true. Both name columns of
the frame: bound ones, or such as are computed first. What follows from them is elsewhere: the expressions
(`fmtkit.columns.source_expressions`), and what the kernel makes without a frame where all columns are bound
(`fmtkit.columns.text_layout`). `turns` is what a source means, on the values of one row; tests compare the
other two with it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from enum import Enum
from functools import singledispatch
from typing import Any, TypeAlias

from fmtkit.core.data_classes import dataclass
from fmtkit.core.message_keys import SYSTEM, is_same

Turn: TypeAlias = Mapping[str, Any]
"""A message: role, content and, if it is wide, the other keys."""

PROMPT_END_ROLES = ("user", "tool")
"""Roles whose turn may end a prompt."""


@dataclass(frozen=True)
class Source:
    """How a conversation is made; a kind of source also has `turns` and `source_expressions.expression`."""

    @property
    def name(self) -> str:
        """Return the name of the column that holds the conversation, the same for equal sources."""
        return repr(self)


@dataclass(frozen=True)
class Rule:
    """When something is true of a row; a kind of rule also has `source_expressions.condition`."""


@dataclass(frozen=True)
class Texts(Source):
    """Texts, each a turn of a role; a row's null or empty ones are left out."""

    said: tuple[tuple[str, str], ...]
    """The role and the column of each."""
    wide: bool = False
    """Whether the turns may have more than role and content."""
    complete: bool = False
    """Whether every row that is not bad has all of them."""


@dataclass(frozen=True)
class Messages(Source):
    """The messages of a column."""

    column: str

    @property
    def name(self) -> str:
        return self.column


@dataclass(frozen=True)
class WithSystem(Source):
    """A conversation after a system prompt, unless that is empty or the conversation has one."""

    system: str
    of: Source


@dataclass(frozen=True)
class WithQuestion(Source):
    """A conversation with a question before its last turn, unless that is empty or a user has spoken."""

    question: str
    of: Source


@dataclass(frozen=True)
class WithoutSystem(Source):
    """A conversation without its first turn where that is the system's."""

    of: Source


@dataclass(frozen=True)
class AllButLast(Source):
    """All turns of a conversation but the last."""

    of: Source


@dataclass(frozen=True)
class Last(Source):
    """The last turn of a conversation."""

    of: Source


@dataclass(frozen=True)
class WithoutAnswer(Source):
    """A conversation without its last turn, if that is the assistant's and the last one of `other` too."""

    of: Source
    other: Source


@dataclass(frozen=True)
class AfterContext(Source):
    """A reply after its context; a reply that includes earlier turns stays as it is."""

    context: Source
    reply: Source


@dataclass(frozen=True)
class PromptTurns(Source):
    """The turns before the reply: the context, or all but the last of a reply that includes earlier turns."""

    context: Source
    reply: Source


@dataclass(frozen=True)
class Shared(Source):
    """The turns with which both conversations begin, up to the last of them that asks for a reply."""

    one: Source
    other: Source


@dataclass(frozen=True)
class AfterShared(Source):
    """What the first conversation has after the turns that both share."""

    one: Source
    other: Source


@dataclass(frozen=True)
class Null(Rule):
    """A column is null; without `holds` it is not."""

    column: str
    holds: bool = True


@dataclass(frozen=True)
class Blank(Rule):
    """A text is not null, and has nothing but white space."""

    column: str


@dataclass(frozen=True)
class Empty(Rule):
    """A text is not null, and has no characters; without `holds` it is null or has some."""

    column: str
    holds: bool = True


@dataclass(frozen=True)
class Equal(Rule):
    """Two texts are equal."""

    one: str
    other: str


class TurnFlaw(Enum):
    """What may be wrong with the messages of a column: its code, where in the column it is, and its words."""

    NO_MESSAGES = ("empty_field", "", "has no messages")
    NULL = ("null_field", "[].content", "is null")
    ROLE = ("unknown_role", "[].role", "is not a known role")
    BLANK = ("empty_field", "[].content", "is empty or blank")

    def __init__(self, code: str, path: str, words: str) -> None:
        self.code, self.path, self.words = code, path, words


@dataclass(frozen=True)
class Flawed(Rule):
    """The messages of a bound column have this flaw, and none whose code comes before in precedence."""

    column: str
    flaw: TurnFlaw
    keys: tuple[str, ...] = ()
    """What its messages may have besides role and content."""


@dataclass(frozen=True)
class Ends(Rule):
    """The last turn has one of these roles; without `holds` it has none of them, or there is no turn."""

    of: Source
    roles: tuple[str, ...]
    holds: bool = True


@dataclass(frozen=True)
class HasRole(Rule):
    """A turn of a conversation has one of these roles; without `holds` none has."""

    of: Source
    roles: tuple[str, ...]
    holds: bool = True


@dataclass(frozen=True)
class Same(Rule):
    """Two conversations hold the same messages; without `holds` they do not."""

    one: Source
    other: Source
    holds: bool = True


@dataclass(frozen=True)
class Foreign(Rule):
    """A reply includes earlier turns that are not those of its context."""

    context: Source
    reply: Source


@dataclass(frozen=True)
class Several(Rule):
    """A reply without its context is more than one answer, which may follow tool calls and their results.

    Without `calls`: a reply is more than one message.
    """

    reply: Source
    calls: bool


@dataclass(frozen=True)
class OtherSystem(Rule):
    """A conversation begins with another system prompt than this one, which is not empty."""

    system: str
    of: Source


@dataclass(frozen=True)
class QuestionMissing(Rule):
    """There are user turns, and none of them is the question; white space around it does not count."""

    question: str
    of: Source


@dataclass(frozen=True)
class Except(Rule):
    """The first rule holds, and none of `others` does."""

    rule: Rule
    others: tuple[Rule, ...]


def names_of(found: Iterable[Source | Rule]) -> tuple[str, ...]:
    """Return the columns that sources and rules name, each once."""
    return tuple(dict.fromkeys(name for one in found for name in _names(one)))


def _names(found: Source | Rule) -> Iterator[str]:
    if isinstance(found, Texts):
        yield from (name for _, name in found.said)
        return
    yield from (name for name in _values(found) if isinstance(name, str))
    for part in parts_of(found):
        yield from _names(part)


def parts_of(found: Source | Rule) -> list[Source | Rule]:
    """Return the sources and rules that a source or a rule is made of."""
    held = (value if isinstance(value, tuple) else (value,) for value in _values(found))
    return [part for values in held for part in values if isinstance(part, Source | Rule)]


def sources_of(found: Source | Rule) -> list[Source]:
    """Return the conversations that a source or a rule is about."""
    return [part for part in parts_of(found) if isinstance(part, Source)]


def _values(found: Source | Rule) -> list[Any]:
    return [getattr(found, entry.name) for entry in fields(found)]


# What a source means.


@singledispatch
def turns(source: Source, row: Mapping[str, Any]) -> list[Turn]:
    """Return the turns of a row's conversation; `row` has the values of the bound columns."""
    raise TypeError(f"{type(source).__name__} makes no turns of {', '.join(row)}")


@turns.register
def _(source: Texts, row: Mapping[str, Any]) -> list[Turn]:
    return [{"role": role, "content": row[name]} for role, name in source.said if row[name]]


@turns.register
def _(source: Messages, row: Mapping[str, Any]) -> list[Turn]:
    return list(row[source.column])


@turns.register
def _(source: WithSystem, row: Mapping[str, Any]) -> list[Turn]:
    led = turns(source.of, row)
    if not row[source.system] or (led and led[0]["role"] in SYSTEM):
        return led
    return [{"role": "system", "content": row[source.system]}, *led]


@turns.register
def _(source: WithQuestion, row: Mapping[str, Any]) -> list[Turn]:
    said = turns(source.of, row)
    if not row[source.question] or any(turn["role"] == "user" for turn in said):
        return said
    return [*said[:-1], {"role": "user", "content": row[source.question]}, *said[-1:]]


@turns.register
def _(source: WithoutSystem, row: Mapping[str, Any]) -> list[Turn]:
    led = turns(source.of, row)
    return led[1:] if led and led[0]["role"] == "system" else led


@turns.register
def _(source: AllButLast, row: Mapping[str, Any]) -> list[Turn]:
    return turns(source.of, row)[:-1]


@turns.register
def _(source: Last, row: Mapping[str, Any]) -> list[Turn]:
    return turns(source.of, row)[-1:]


@turns.register
def _(source: WithoutAnswer, row: Mapping[str, Any]) -> list[Turn]:
    said, other = turns(source.of, row), turns(source.other, row)
    leaks = bool(said and other) and said[-1]["role"] == "assistant"
    return said[:-1] if leaks and is_same(said[-1], other[-1]) else said


@turns.register
def _(source: AfterContext, row: Mapping[str, Any]) -> list[Turn]:
    reply = turns(source.reply, row)
    return [*turns(source.context, row), *reply] if is_alone(reply) else reply


@turns.register
def _(source: PromptTurns, row: Mapping[str, Any]) -> list[Turn]:
    reply = turns(source.reply, row)
    return turns(source.context, row) if is_alone(reply) else reply[:-1]


@turns.register
def _(source: Shared, row: Mapping[str, Any]) -> list[Turn]:
    one = turns(source.one, row)
    return one[: _shared(one, turns(source.other, row))]


@turns.register
def _(source: AfterShared, row: Mapping[str, Any]) -> list[Turn]:
    one = turns(source.one, row)
    return one[_shared(one, turns(source.other, row)) :]


def is_alone(reply: Sequence[Turn]) -> bool:
    """Return whether a reply includes no earlier turns."""
    return not reply or reply[0]["role"] == "assistant"


def _shared(one: Sequence[Turn], other: Sequence[Turn]) -> int:
    asked = 0
    for number, (mine, theirs) in enumerate(zip(one, other, strict=False), start=1):
        if not is_same(mine, theirs):
            break
        if mine["role"] in PROMPT_END_ROLES:
            asked = number
    return asked
