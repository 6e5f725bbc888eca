"""Unknown texts as data: what stands for a content, what a template made of it and asked about it.

In a symbolic text one private-use character stands for each unknown; its number is its place in a
list of unknowns. `expand` puts the texts of a row in their places again.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fmtkit.rendering.jinja_environment import tojson

FIRST, LAST = 0xF0000, 0xFFFFD
"""The characters that stand for unknowns."""


@dataclass(frozen=True, slots=True)
class Slot:
    """The text of one key of one message of one dialog."""

    dialog: int
    message: int
    key: str


@dataclass(frozen=True, slots=True)
class Derived:
    """What an operation makes of a text; `text` and strings in `arguments` may hold symbols."""

    operation: str
    text: str
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """A yes-or-no question about a text; `text` and strings in `arguments` may hold symbols."""

    predicate: str
    text: str
    arguments: tuple[Any, ...] = ()


Unknown = Slot | Derived

STRING_OPERATIONS = (
    "strip",
    "lstrip",
    "rstrip",
    "replace",
    "upper",
    "lower",
    "title",
    "capitalize",
    "swapcase",
    "casefold",
    "expandtabs",
    "removeprefix",
    "removesuffix",
)
STRING_PREDICATES = (
    "startswith",
    "endswith",
    "isdigit",
    "isspace",
    "isalpha",
    "isalnum",
    "isupper",
    "islower",
    "istitle",
    "isnumeric",
    "isdecimal",
    "isascii",
    "isidentifier",
    "isprintable",
)

OPERATIONS: dict[str, Callable[..., str]] = {
    **{name: getattr(str, name) for name in STRING_OPERATIONS},
    "slice": lambda text, start, stop, step: text[start:stop:step],
    "item": lambda text, index: text[index],
    "part": lambda text, method, separator, limit, index: getattr(text, method)(separator, limit)[
        index
    ],
    "json": tojson,
}
PREDICATES: dict[str, Callable[..., bool]] = {
    **{name: getattr(str, name) for name in STRING_PREDICATES},
    "nonempty": bool,
    "equals": lambda text, other: text == other,
    "contains": lambda text, other: other in text,
    "longer": lambda text, length: len(text) >= length,
    "parts": lambda text, method, separator, limit, count: (
        len(getattr(text, method)(separator, limit)) >= count
    ),
}


ANY_SYMBOL = re.compile(f"[{chr(FIRST)}-{chr(LAST)}]")


def symbolic(text: str) -> bool:
    """Say whether an unknown text is part of this one."""
    return ANY_SYMBOL.search(text) is not None


def expand(text: str, unknowns: list[Unknown], row: dict[Slot, str]) -> str:
    """Put the texts of a row in place of the symbols."""
    return ANY_SYMBOL.sub(lambda m: evaluate(unknowns[ord(m[0]) - FIRST], unknowns, row), text)


def evaluate(unknown: Unknown, unknowns: list[Unknown], row: dict[Slot, str]) -> str:
    """Return what an unknown is in a row."""
    if isinstance(unknown, Slot):
        return row[unknown]
    text = expand(unknown.text, unknowns, row)
    return OPERATIONS[unknown.operation](text, *_expanded(unknown.arguments, unknowns, row))


def answer(question: Question, unknowns: list[Unknown], row: dict[Slot, str]) -> bool:
    """Answer a question for a row."""
    text = expand(question.text, unknowns, row)
    return PREDICATES[question.predicate](text, *_expanded(question.arguments, unknowns, row))


def _expanded(
    arguments: tuple[Any, ...], unknowns: list[Unknown], row: dict[Slot, str]
) -> list[Any]:
    return [expand(a, unknowns, row) if isinstance(a, str) else a for a in arguments]
