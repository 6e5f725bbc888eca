"""The strict JSON parser: one line, judged alone.

Python's `json` takes what JSON does not have (NaN, 1e400, half surrogate pairs) and hides what it has
(duplicate keys, how a number was written). Here such values come back as marks, so that a column that
nobody uses may hold them and one that is used may not.
"""

import json
import re
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from json.encoder import encode_basestring
from typing import Any

from fmtkit.codes import PRECEDENCE

MAX_DEPTH = 100
MAX_EXPONENT = 308
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_LONE = re.compile("[\ud800-\udfff]")
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f]")
_STRING_OR_NONFINITE = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|-?(?:Inf(?:inity)?|NaN)\b', re.DOTALL)
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[{]|[\]}]', re.DOTALL)
_INT64_DIGITS = 18
_LONGEST_EXPONENT = 9


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


def _integer(text: str) -> int | Overflow:
    if len(text) > _INT64_DIGITS + 2:
        return OVERFLOW
    value = int(text)
    if not -(2**63) <= value < 2**63:
        return OVERFLOW
    return value


def _written_integer(text: str) -> int | Overflow:
    value = _integer(text)
    if isinstance(value, Overflow):
        return value
    out = WrittenInt(value)
    out.token = text
    return out


def _real(text: str) -> float | Overflow:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        return OVERFLOW_REAL if _has_giant_exponent(text) else OVERFLOW
    return value


def _has_giant_exponent(text: str) -> bool:
    """Tell whether the fast parser refuses a number for its exponent, wherever the number stands.

    It takes what rounds up to infinity, and an exponent of 308 and one more for each decimal.
    """
    digits, _, exponent = text.lower().partition("e")
    if not exponent or exponent.startswith("-"):
        return False
    power = exponent.lstrip("+0")
    decimals = len(digits.partition(".")[2])
    return len(power) > _LONGEST_EXPONENT or int(power or 0) > MAX_EXPONENT + decimals


def _written_real(text: str) -> float | Overflow:
    value = _real(text)
    if isinstance(value, Overflow):
        return value
    out = WrittenFloat(value)
    out.token = text
    return out


def number_of(decimal: Decimal) -> int | float:
    """Return the number that a decimal stands for, which remembers all of its digits."""
    token = f"{decimal:f}"
    out = WrittenFloat(token) if "." in token else WrittenInt(token)
    out.token = token
    return out


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) == len(pairs):
        return out
    marked = Duplicated(out)
    times = Counter(key for key, _ in pairs)
    marked.twice = tuple(key for key, count in times.items() if count > 1)
    return marked


def _non_finite(_: str) -> NonFinite:
    return NON_FINITE


_DECODER = json.JSONDecoder(
    parse_int=_integer,
    parse_float=_real,
    parse_constant=_non_finite,
    object_pairs_hook=_object,
)
_WRITTEN = json.JSONDecoder(
    parse_int=_written_integer,
    parse_float=_written_real,
    parse_constant=_non_finite,
    object_pairs_hook=_object,
)


def parse(line: bytes, *, written: bool = False) -> tuple[Any, Fault | None]:
    """Return a line's value, or why it has none; `written` keeps how numbers were written.

    Marks (`NonFinite`, `Overflow`, `Duplicated`) and half surrogate pairs may be inside the value:
    `faults` finds them. A line that fails here can be used by no type.
    """
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        return None, Fault("invalid_utf8", None, f"byte {error.start} is not UTF-8")
    if (nesting := depth(line)) > MAX_DEPTH:
        return None, Fault(
            "json_too_deep", None, f"nested {nesting} deep, at most {MAX_DEPTH} allowed"
        )
    decoder = _WRITTEN if written else _DECODER
    try:
        value = decoder.decode(text)
    except json.JSONDecodeError as error:
        # The fast parser takes Inf and -NaN too; a row's verdict must not depend on who reads it.
        spelled = _STRING_OR_NONFINITE.sub(_respell, line)
        if spelled != line:
            return parse(spelled, written=written)
        return None, _syntax(error, line)
    if not isinstance(value, dict):
        return None, Fault("not_an_object", None, f"a row is a JSON object, not {kind_of(value)}")
    return value, None


def _respell(match: re.Match[bytes]) -> bytes:
    return match[0] if match[0].startswith(b'"') else b"NaN"


def _syntax(error: json.JSONDecodeError, line: bytes) -> Fault:
    where = f"at character {error.pos + 1}"
    if error.msg.startswith("Invalid control character"):
        return Fault("json_control_char", None, f"a raw control character in a string {where}")
    detail = (error.msg[0].lower() + error.msg[1:]).removesuffix(" at")
    if error.msg == "Extra data":
        detail = "more text follows the object; one object a line"
    elif _CONTROL.search(line):
        detail += "; the line holds raw control characters"
    return Fault("json_syntax", None, f"{detail} {where}")


def depth(line: bytes) -> int:
    """Return how deep a line nests arrays and objects, brackets inside strings apart."""
    if line.count(b"[") + line.count(b"{") <= MAX_DEPTH:
        return 0
    level = deepest = 0
    for token in _TOKEN.finditer(line):
        first = token[0][:1]
        if first in b"[{":
            level += 1
            deepest = max(deepest, level)
        elif first in b"]}":
            level -= 1
    return deepest


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


def suspects_surrogates(line: bytes) -> bool:
    """Tell whether a line escapes a surrogate at all, whole pairs included."""
    return _SURROGATE.search(line) is not None


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


def canonical(value: Any) -> str:
    """Return canonical JSON text: no spaces, source key order, minimal escapes, numbers as written."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return encode_basestring(value)
    if isinstance(value, WrittenInt | WrittenFloat):
        return value.token
    if isinstance(value, int | float):
        return json.dumps(value)
    if isinstance(value, list):
        return "[" + ",".join(canonical(item) for item in value) + "]"
    if isinstance(value, dict):
        return (
            "{" + ",".join(f"{encode_basestring(k)}:{canonical(v)}" for k, v in value.items()) + "}"
        )
    raise TypeError(f"not a JSON value: {type(value).__name__}")
