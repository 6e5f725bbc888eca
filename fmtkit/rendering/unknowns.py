"""Placeholders for the contents of a row, and what a template did with them while it was traced.

In a symbolic text each unknown text is one private-use character; its code point minus FIRST is its index
in a list of unknowns. `expand` replaces these characters by the texts of a row. The placeholder of a JSON
value (the arguments of a tool call, a tool) stands for its JSON text, as `tojson` writes it.
"""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

from fmtkit.core.data_classes import dataclass
from fmtkit.rendering.jinja_environment import tojson

FIRST, LAST = 0xF0000, 0xFFFFD
"""The range of characters that stand for unknowns."""

TEXT, OBJECT = UNKNOWN = "text", "object"
"""The kinds of unknown value in a tool call."""

CallShape = tuple[tuple[str, str], ...]
Calls = tuple[CallShape, ...]
"""The paths in each tool call of a message, in order, with their kinds: TEXT, OBJECT or a JSON scalar."""


SMALL_JSON = 512
"""Up to this many characters, the value of a JSON text is cached for the next question about it."""

TOOL = "tool"
"""The key of a tool's JSON text: tools are a conversation of their own, with one message for each tool."""


@dataclass(frozen=True, slots=True)
class Slot:
    """The text of one key of a message of a conversation; within tool calls the key is from `call_key`."""

    conversation: int
    message: int
    key: str


def call_key(number: int, path: str) -> str:
    """Return the key of a slot within the calls of a message."""
    return f"tool_calls[{number}].{path}"


@lru_cache(maxsize=4096)
def read_call_key(key: str) -> tuple[int, str] | None:
    """Split a key made by `call_key` into number and path; return None for any other key."""
    if not key.startswith("tool_calls["):
        return None
    number, _, path = key.removeprefix("tool_calls[").partition("].")
    return int(number), path


@dataclass(frozen=True, slots=True)
class Derived:
    """The result of an operation on a string; `text` and strings in `arguments` may hold symbols."""

    operation: str
    text: str
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """A yes-or-no question about a string; `text` and strings in `arguments` may hold symbols."""

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


def _parsed(text: str) -> Any:
    """Return the value of a JSON text. Callers must not change it: it may be cached."""
    return _cached(text) if len(text) <= SMALL_JSON else json.loads(text)


@lru_cache(maxsize=4096)
def _cached(text: str) -> Any:
    return json.loads(text)


def _in_order(text: str) -> list[tuple[str, Any]]:
    """Sort the members of an object as the filter `dictsort` does."""
    members: dict[str, Any] = _parsed(text)
    return sorted(members.items(), key=lambda member: member[0].lower())


OPERATIONS: dict[str, Callable[..., str]] = {
    **{name: getattr(str, name) for name in STRING_OPERATIONS},
    "slice": lambda text, start, stop, step: text[start:stop:step],
    "item": lambda text, index: text[index],
    "part": lambda text, method, separator, limit, index: getattr(text, method)(separator, limit)[
        index
    ],
    "json": tojson,
    # Of a JSON text: its value written with other options, as Python prints it, or a part of it.
    "rewritten": lambda text, *options: tojson(_parsed(text), *options),
    "printed": lambda text: str(_parsed(text)),
    "text": json.loads,
    "member": lambda text, key: tojson(_parsed(text)[key]),
    "element": lambda text, index: tojson(_parsed(text)[index]),
    "key": lambda text, index: list(_parsed(text))[index],
    "value": lambda text, index: tojson(list(_parsed(text).values())[index]),
    "sorted key": lambda text, index: _in_order(text)[index][0],
    "sorted value": lambda text, index: tojson(_in_order(text)[index][1]),
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
    "kind": lambda text, kind: kind_of(text) == kind,
    "members": lambda text, count: len(_parsed(text)) == count,
    "has": lambda text, key: key in _parsed(text),
}

KINDS = {
    "{": "object",
    "[": "array",
    '"': "string",
    "t": "true",
    "f": "false",
    "n": "null",
}


def kind_of(text: str) -> str:
    """Return the kind of value of a JSON text that `tojson` wrote."""
    return KINDS.get(text[0], "number")


ANY_SYMBOL = re.compile(f"[{chr(FIRST)}-{chr(LAST)}]")


def symbolic(text: str) -> bool:
    """Return whether a text contains a placeholder."""
    return ANY_SYMBOL.search(text) is not None


def expand(text: str, unknowns: list[Unknown], row: dict[Slot, str]) -> str:
    """Replace the placeholders in a text by the texts of a row."""
    return ANY_SYMBOL.sub(lambda m: evaluate(unknowns[ord(m[0]) - FIRST], unknowns, row), text)


def evaluate(unknown: Unknown, unknowns: list[Unknown], row: dict[Slot, str]) -> str:
    """Return the text that an unknown has in a row."""
    if isinstance(unknown, Slot):
        return row[unknown]
    text = expand(unknown.text, unknowns, row)
    return OPERATIONS[unknown.operation](text, *_expanded(unknown.arguments, unknowns, row))


def answer(question: Question, unknowns: list[Unknown], row: dict[Slot, str]) -> bool:
    """Answer a question for a row."""
    text = expand(question.text, unknowns, row)
    return PREDICATES[question.predicate](text, *_expanded(question.arguments, unknowns, row))


def slots_of(texts: Iterable[Any], unknowns: Sequence[Unknown]) -> list[Slot]:
    """Return the slots that texts are made of, also through operations."""
    found: dict[Slot, None] = {}
    waiting = list(texts)
    seen: set[str] = set()
    while waiting:
        one = waiting.pop()
        if isinstance(one, tuple):
            waiting += one
        for character in ANY_SYMBOL.findall(one) if isinstance(one, str) else ():
            if character in seen:
                continue
            seen.add(character)
            unknown = unknowns[ord(character) - FIRST]
            if isinstance(unknown, Slot):
                found[unknown] = None
            else:
                waiting += [unknown.text, *unknown.arguments]
    return list(found)


def _expanded(
    arguments: tuple[Any, ...], unknowns: list[Unknown], row: dict[Slot, str]
) -> list[Any]:
    return [_expanded_one(argument, unknowns, row) for argument in arguments]


def _expanded_one(argument: Any, unknowns: list[Unknown], row: dict[Slot, str]) -> Any:
    if isinstance(argument, tuple):
        return tuple(_expanded_one(item, unknowns, row) for item in argument)
    return expand(argument, unknowns, row) if isinstance(argument, str) else argument
