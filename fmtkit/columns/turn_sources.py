"""How the conversations of a row are made, as data, so that the kernel can make them without a frame.

The helpers of converters make an expression and, where possible, the same as data, a `Source`: the
turns of a conversation. `turns` is what a source means, on the values of one row; the kernel reads sources as
they are here (`fmtkit.columns.text_layout`), and tests compare it with the expressions.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import singledispatch
from typing import Any, TypeAlias, TypeVar

from fmtkit.core.messages import SYSTEM, is_same

Turn: TypeAlias = Mapping[str, Any]
"""A message: role, content and, if it is wide, the other keys."""

PROMPT_END_ROLES = ("user", "tool")
"""Roles whose turn may end a prompt."""
"""Roles of the turn that may lead a conversation; their text may be empty."""


@dataclass(frozen=True)
class Texts:
    """Bound texts, each a turn of a role; a row's null or empty ones are left out."""

    said: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Messages:
    """The messages of a bound column."""

    column: str


@dataclass(frozen=True)
class WithSystem:
    """A conversation after the bound system prompt, unless that is empty or the conversation has one."""

    system: str
    of: "Source"


@dataclass(frozen=True)
class WithoutSystem:
    """A conversation without its first turn where that is the system's."""

    of: "Source"


@dataclass(frozen=True)
class AllButLast:
    """All turns of a conversation but the last."""

    of: "Source"


@dataclass(frozen=True)
class Last:
    """The last turn of a conversation."""

    of: "Source"


@dataclass(frozen=True)
class WithoutAnswer:
    """A conversation without its last turn, if that is the assistant's and the last one of `other` too."""

    of: "Source"
    other: "Source"


@dataclass(frozen=True)
class AfterContext:
    """A reply after its context; a reply that includes earlier turns stays as it is."""

    context: "Source"
    reply: "Source"


@dataclass(frozen=True)
class PromptTurns:
    """The turns before the reply: the context, or all but the last of a reply that includes earlier turns."""

    context: "Source"
    reply: "Source"


@dataclass(frozen=True)
class Shared:
    """The turns with which both conversations begin, up to the last of them that asks for a reply."""

    one: "Source"
    other: "Source"


@dataclass(frozen=True)
class AfterShared:
    """What the first conversation has after the turns that both share."""

    one: "Source"
    other: "Source"


Source: TypeAlias = (
    Texts | Messages | WithSystem | WithoutSystem | AllButLast | Last | WithoutAnswer | AfterContext
    | PromptTurns | Shared | AfterShared
)  # fmt: skip


# Rules. A rule may match more rows than the problem or warning that it stands for, never fewer: the
# rows that it matches are converted in a frame.


@dataclass(frozen=True)
class Null:
    """A bound column is null."""

    column: str


@dataclass(frozen=True)
class Blank:
    """The text of a bound column is not null, and has nothing but white space."""

    column: str


@dataclass(frozen=True)
class Equal:
    """The texts of two bound columns are equal."""

    one: str
    other: str


@dataclass(frozen=True)
class Flawed:
    """A bound column has no messages, or an empty one."""

    column: str


@dataclass(frozen=True)
class Ends:
    """The last turn has one of these roles; without `holds` it has none of them, or there is no turn."""

    of: Source
    roles: tuple[str, ...]
    holds: bool = True


@dataclass(frozen=True)
class HasRole:
    """A turn of a conversation has one of these roles; without `holds` none has."""

    of: Source
    roles: tuple[str, ...]
    holds: bool = True


@dataclass(frozen=True)
class Same:
    """Two conversations hold the same messages; without `holds` they do not."""

    one: Source
    other: Source
    holds: bool = True


@dataclass(frozen=True)
class Foreign:
    """A reply includes earlier turns that are not those of its context."""

    context: Source
    reply: Source


@dataclass(frozen=True)
class Several:
    """A reply without its context is more than one answer; without `calls` more than one message."""

    reply: Source
    calls: bool


@dataclass(frozen=True)
class OtherSystem:
    """A conversation begins with another system prompt than the bound one."""

    system: str
    of: Source


@dataclass(frozen=True)
class QuestionMissing:
    """No user turn is the bound question, or there is none at all."""

    question: str
    of: Source


Rule: TypeAlias = (
    Null
    | Blank
    | Equal
    | Flawed
    | Ends
    | HasRole
    | Same
    | Foreign
    | Several
    | OtherSystem
    | QuestionMissing
)
"""When rows are bad, or are warned of, as data."""


def names_of(found: Iterable[Source | Rule]) -> tuple[str, ...]:
    """Return the bound columns that sources and rules name, each once."""
    return tuple(dict.fromkeys(name for one in found for name in _names(one)))


def _names(found: Source | Rule) -> Iterator[str]:
    if isinstance(found, Texts):
        yield from (name for _, name in found.said)
        return
    held = [getattr(found, entry.name) for entry in fields(found)]
    yield from (name for name in held if isinstance(name, str))
    for source in sources_of(found):
        yield from _names(source)


def sources_of(found: Source | Rule) -> list[Source]:
    """Return the conversations that a source or a rule is about."""
    held = (getattr(found, entry.name) for entry in fields(found))
    return [source for source in held if isinstance(source, Source)]


Made = TypeVar("Made")


def known(make: Callable[..., Made], *of: Source | str | None) -> Made | None:
    """Make a source or a rule of others; None if one of them is None."""
    return None if None in of else make(*of)


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
