"""Marks: what stands for a value that JSON does not have, and the faults that it makes.

A column that nobody uses may hold such values; one that is used may not.
"""

import re
from dataclasses import dataclass
from typing import Any

from fmtkit.codes import PRECEDENCE

_LONE = re.compile("[\ud800-\udfff]")


class NonFinite:
    """Mark of NaN or Infinity."""


class Overflow:
    """Mark of a number that 64 bits do not hold; `real` if no float comes near it either."""

    def __init__(self, *, real: bool) -> None:
        self.real = real


class NotText:
    """Mark of bytes, of a columnar source, that are no UTF-8."""


class WrittenInt(int):
    """An integer that remembers how it was written."""

    token: str


class WrittenFloat(float):
    """A float that remembers how it was written: 1.0 stays 1.0."""

    token: str


class Duplicated(dict[str, Any]):
    """An object in which some keys stood more than once; the last of each counts."""

    twice: tuple[str, ...]


NON_FINITE = NonFinite()
OVERFLOW = Overflow(real=False)
OVERFLOW_REAL = Overflow(real=True)
NOT_TEXT = NotText()


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a line, or a value in it, cannot be used; `column` is a path such as `chosen[1].content`."""

    code: str
    column: str | None
    message: str


def faults(value: Any, path: str) -> Fault | None:
    """Return the first mark inside a value that makes it unusable, by precedence of its code."""
    found = marks(value, path)
    return min(found, key=lambda fault: PRECEDENCE[fault.code]) if found else None


def faults_anywhere(value: Any, path: str) -> list[Fault]:
    """Return the marks inside a value that make its row unusable even where nobody uses the value."""
    found = [fault for fault in marks(value, path) if fault.code == "invalid_unicode"]
    if _holds_giant(value):
        found.append(Fault("number_overflow", path, f"{path} holds a number beyond 64 bits"))
    return found


def _holds_giant(value: Any) -> bool:
    if isinstance(value, Overflow):
        return value.real
    if isinstance(value, list | dict):
        items = value.values() if isinstance(value, dict) else value
        return any(_holds_giant(item) for item in items)
    return False


def is_unicode(text: str) -> bool:
    """Tell whether a text holds no half of a surrogate pair."""
    return _LONE.search(text) is None


def duplicate(key: str, path: str) -> Fault:
    """Make the fault of a key that an object has more than once."""
    return Fault("duplicate_key", path, f"key {key!r} stands twice")


def marks(value: Any, path: str) -> list[Fault]:
    """Return every mark inside a value."""
    if isinstance(value, str):
        return [] if is_unicode(value) else [_lone(path)]
    if isinstance(value, NonFinite):
        return [Fault("json_nonfinite", path, "NaN or Infinity is not JSON")]
    if isinstance(value, Overflow):
        return [Fault("number_overflow", path, "a number beyond 64 bits")]
    if isinstance(value, NotText):
        return [Fault("invalid_utf8", path, f"{path} holds bytes that are not UTF-8")]
    if isinstance(value, list):
        return [mark for i, item in enumerate(value) for mark in marks(item, f"{path}[{i}]")]
    if isinstance(value, dict):
        found = [mark for key, item in value.items() for mark in marks(item, f"{path}.{key}")]
        found += [_lone(path) for key in value if not is_unicode(key)]
        if isinstance(value, Duplicated):
            found += [duplicate(key, f"{path}.{key}") for key in value.twice]
        return found
    return []


def _lone(path: str) -> Fault:
    return Fault("invalid_unicode", path, "half a surrogate pair")


def kind_of(value: Any) -> str:
    """Name the kind of a JSON value as a person would."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, str):
        return "text"
    if isinstance(value, int | float | NonFinite | Overflow):
        return "a number"
    if isinstance(value, NotText):
        return "bytes"
    return "a list" if isinstance(value, list) else "an object"
