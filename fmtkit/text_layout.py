"""How texts are put together while their lines are read: what each line makes of its values, as data.

A layout says which texts of a line are turns of which dialogs, which rules they must keep, and what a
template makes of conversations of known shapes: constants, and turns as they stand or trimmed. It is
sound, not complete: a line whose rules do not hold, whose contents hold a control token, or whose shape
or path nobody has met yet is not laid out, and goes the way of every other line.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

LEFT, RIGHT = 1, 2
"""Sides on which a text is trimmed; their sum is both."""

Trim: TypeAlias = tuple[int, str | None]
"""Sides, and which characters of ASCII (None: white space of Unicode)."""


class Ask(IntEnum):
    """A question about a text and another one."""

    NONEMPTY = 0
    STARTSWITH = 1
    ENDSWITH = 2
    EQUALS = 3
    CONTAINS = 4


@dataclass(frozen=True)
class View:
    """A turn of a line, counted over all its dialogs, trimmed one way after another."""

    turn: int
    trims: tuple[Trim, ...] = ()


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
    """Conversations of the same roles, dialog by dialog, and the known paths that they take."""

    roles: tuple[tuple[str, ...], ...]
    views: tuple[View, ...]
    paths: tuple[Path, ...]


@dataclass(frozen=True)
class Layout:
    """The texts of a line: `texts` of them, made of dialogs whose turns are bound texts."""

    texts: int
    dialogs: tuple[tuple[tuple[str, str], ...], ...]
    """Role and bound text of each turn; empty ones are left out."""
    solid: tuple[str, ...]
    """Bound texts that may not be blank."""
    differing: tuple[tuple[str, str], ...]
    """Bound texts that may not be equal."""
    unlike: tuple[tuple[int, int], ...]
    """Texts that may not be equal."""
    tokens: tuple[str, ...]
    """What no bound text may hold."""
    shapes: tuple[Shape, ...] = ()

    @property
    def bound(self) -> tuple[str, ...]:
        """Return the bound texts that the turns are made of, and those that must keep rules."""
        turns = (name for dialog in self.dialogs for _, name in dialog)
        ruled = (name for pair in self.differing for name in pair)
        return tuple(dict.fromkeys((*turns, *self.solid, *ruled)))
