"""Placeholders for values that JSON does not have, and the faults that they cause.

Only columns that are not used may hold such values.
"""

import re
from collections.abc import Mapping
from typing import Any

from fmtkit.core.codes import PRECEDENCE
from fmtkit.core.data_classes import dataclass

_LONE = re.compile("[\ud800-\udfff]")
LONE = "half a surrogate pair"


class NonFinite:
    """Mark of NaN or Infinity."""

    def __repr__(self) -> str:
        return "NaN or Infinity"


class Overflow:
    """Mark of a number beyond 64 bits; `real` if it is beyond the range of floats too."""

    def __init__(self, *, real: bool) -> None:
        self.real = real

    def __repr__(self) -> str:
        return "a number beyond 64 bits"


@dataclass(frozen=True, slots=True)
class NotText:
    """Bytes of a columnar source that are not UTF-8."""

    data: bytes = b""

    def __repr__(self) -> str:
        return "bytes that are not UTF-8"


@dataclass(frozen=True, slots=True)
class Media:
    """An image or a sound of a columnar source: a struct of its bytes and its path.

    Its bytes may be a view of those that Arrow holds: images are large,
    and are copied once, into what is written.
    """

    data: bytes | memoryview | None = None
    path: str | None = None

    def __repr__(self) -> str:
        return "an image or a sound"


class WrittenInt(int):
    """An integer with its original spelling."""

    token: str


class WrittenFloat(float):
    """A float with its original spelling: 1.0 stays 1.0."""

    token: str


class Duplicated(dict[str, Any]):
    """An object with duplicate keys, with the last value of each."""

    twice: tuple[str, ...]


NON_FINITE = NonFinite()
OVERFLOW = Overflow(real=False)
OVERFLOW_REAL = Overflow(real=True)


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
    """Return the marks inside a value that make its row unusable even if its column is not used."""
    if isinstance(value, str) and value.isascii():
        return []
    found = [f for f in marks(value, path) if f.code in ("invalid_unicode", "unsupported")]
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
    """Return whether a string has no unpaired surrogate."""
    return text.isascii() or _LONE.search(text) is None


def fault_of_names(row: Mapping[str, Any]) -> Fault | None:
    """Return the fault of a row that has a top-level key that is no text."""
    if all(map(is_unicode, row)):
        return None
    return Fault("invalid_unicode", None, "a key holds half a surrogate pair")


def duplicate(key: str, path: str) -> Fault:
    """Make the fault of a key that an object has more than once."""
    return Fault("duplicate_key", path, f"duplicate key {key!r}")


def marks(value: Any, path: str) -> list[Fault]:
    """Return the first mark of each code inside a value, in their order."""
    if isinstance(value, str) and value.isascii():
        return []
    found: dict[str, Fault] = {}
    _look(value, [path], found)
    return list(found.values())


Way = list[str | int]
"""The path of a value, then the keys and indices inside it."""


def _look(value: Any, way: Way, found: dict[str, Fault]) -> None:
    """Add the marks inside a value; only their paths are built, since paths may be long."""
    if isinstance(value, str):
        if not is_unicode(value):
            _add(found, "invalid_unicode", way, LONE)
    elif isinstance(value, list):
        way.append(0)
        for way[-1], item in enumerate(value):
            _look(item, way, found)
        way.pop()
    elif isinstance(value, dict):
        _look_at_members(value, way, found)
    elif isinstance(value, NonFinite):
        _add(found, "json_nonfinite", way, "NaN or Infinity is not JSON")
    elif isinstance(value, Overflow):
        _add(found, "number_overflow", way, "a number beyond 64 bits")
    elif isinstance(value, NotText):
        _add(found, "invalid_utf8", way, "{} holds bytes that are not UTF-8")
    elif isinstance(value, Media):
        _add(found, "unsupported", way, "{} holds an image or a sound, where the type takes text")


def _look_at_members(value: dict[str, Any], way: Way, found: dict[str, Fault]) -> None:
    way.append("")
    for way[-1], item in value.items():
        _look(item, way, found)
    way.pop()
    if not all(map(is_unicode, value)):
        _add(found, "invalid_unicode", way, LONE)
    if isinstance(value, Duplicated) and "duplicate_key" not in found:
        key = value.twice[0]
        found["duplicate_key"] = duplicate(key, _path([*way, key]))


def _add(found: dict[str, Fault], code: str, way: Way, message: str) -> None:
    if code not in found:
        path = _path(way)
        found[code] = Fault(code, path, message.replace("{}", path))


def _path(way: Way) -> str:
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in way[1:])
    return f"{way[0]}{''.join(steps)}"


def kind_of(value: Any) -> str:
    """Name the kind of a JSON value in words."""
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
    if isinstance(value, Media):
        return "an image or a sound"
    return "a list" if isinstance(value, list) else "an object"
