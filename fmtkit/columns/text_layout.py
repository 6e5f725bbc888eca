"""The layout of fused rows: what the kernel writes for each line while it reads it, as data.

A layout says which turns of a line make which conversations (`fmtkit.columns.turn_sources`), which rules
these must keep, and what is written of them: the messages, or what a template makes of conversations of
known shapes (constants, and texts as they are or trimmed). It is sound, not complete: a line that breaks a
rule, whose contents hold a control token, or whose shape or path is not known yet is not fused, and is
converted like any other line.
"""

from enum import IntEnum
from functools import cached_property
from typing import TypeAlias

from fmtkit.columns.turn_sources import Except, Rule, Source, names_of
from fmtkit.core.data_classes import dataclass

LEFT, RIGHT = 1, 2
"""Sides on which a string is trimmed; their sum is both."""

MOST_TURNS, MOST_VIEWS = 128, 256
"""Limits of a shape; lines with more turns are not fused."""

Trim: TypeAlias = tuple[int, str | None]
"""Sides, and which ASCII characters (None: Unicode white space)."""


class Ask(IntEnum):
    """A comparison of two strings."""

    NONEMPTY = 0
    STARTSWITH = 1
    ENDSWITH = 2
    EQUALS = 3
    CONTAINS = 4


@dataclass(frozen=True)
class View:
    """A text of a turn of a line, counted over all its conversations, trimmed one way after another."""

    turn: int
    trims: tuple[Trim, ...] = ()
    key: str = "content"


@dataclass(frozen=True)
class Condition:
    """A question about a view, and the answer that a line must give."""

    view: int
    ask: Ask
    text: str
    answer: bool


@dataclass(frozen=True)
class Path:
    """One way through a template: the conditions that lead there, and the pieces of each text.

    A piece is a constant or the number of a view.
    """

    conditions: tuple[Condition, ...]
    texts: tuple[tuple[str | int, ...], ...]


@dataclass(frozen=True)
class Shape:
    """Conversations of the same roles, conversation by conversation, and the known paths that they take."""

    roles: tuple[tuple[str, ...], ...]
    views: tuple[View, ...]
    paths: tuple[Path, ...]
    keys: tuple[tuple[tuple[str, ...], ...], ...] = ()
    """What each turn has besides its content, by conversation; empty where none has anything."""


@dataclass(frozen=True)
class Layout:
    """What a line becomes: texts of its conversations, or the conversations themselves."""

    conversations: tuple[Source, ...]
    rules: tuple[Rule, ...] = ()
    """A line for which one of them holds is not fused."""
    tokens: tuple[str, ...] = ()
    """What no text of a conversation may hold."""
    keys: tuple[tuple[str, str], ...] = ()
    """What a message may have besides role and content, and its form: text, flag or calls."""
    silent: tuple[str, ...] = ()
    """Columns that are read, and must be null or hold no text."""
    messages: bool = False
    """The conversations are written as messages; else as texts."""
    unlike: tuple[tuple[int, int], ...] = ()
    """Texts that may not be equal."""
    shapes: tuple[Shape, ...] = ()

    @cached_property
    def bound(self) -> tuple[str, ...]:
        """Return the bound texts and conversations that are used, each once."""
        return names_of((*self.conversations, *self.rules))


def wider(rule: Rule) -> Rule:
    """Return a rule that the kernel may know and that holds of all rows of which this one does."""
    return wider(rule.rule) if isinstance(rule, Except) else rule
