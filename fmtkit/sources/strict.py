"""The strict JSON parser: each line is parsed by itself.

Python's `json` accepts what JSON does not have (NaN, 1e400, half surrogate pairs) and hides what a text has
(duplicate keys, how a number was written). Here such values are returned as marks, so that an unused column
may hold them and a used one may not.
"""

import json
import re
from collections import Counter
from typing import Any

from fmtkit.sources.marks import (
    NON_FINITE,
    OVERFLOW,
    OVERFLOW_REAL,
    Duplicated,
    Fault,
    NonFinite,
    Overflow,
    WrittenFloat,
    WrittenInt,
    kind_of,
)

MAX_DEPTH = 100
MAX_EXPONENT = 308
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f]")
# A string that is cut off is a string to its end, and nothing is tried twice (`++`): with a search
# that begins again at each quote, 200 KB of `\\"` took 44 s.
_STRING = rb'"(?:[^"\\]++|\\.)*+"?'
_STRING_OR_NONFINITE = re.compile(_STRING + rb"|-NaN\b|-?Inf\b", re.DOTALL)
TOKEN = re.compile(_STRING + rb"|[\[{]|[\]}]", re.DOTALL)
_INT64_DIGITS = 18
_LONGEST_EXPONENT = 9


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
    """Return whether a number is refused for its exponent, at any place.

    A number that rounds up to infinity is not refused, nor an exponent of 308 plus one for each decimal.
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
        value = _decoded(text, line, decoder)
    except json.JSONDecodeError as error:
        return None, _syntax(error, line)
    if not isinstance(value, dict):
        return None, Fault("not_an_object", None, f"a row is a JSON object, not {kind_of(value)}")
    return value, None


def _decoded(text: str, line: bytes, decoder: json.JSONDecoder) -> Any:
    """Decode a string; Inf and -NaN, which pyarrow and others write, count as not finite too."""
    try:
        return decoder.decode(text)
    except json.JSONDecodeError:
        spelled = _STRING_OR_NONFINITE.sub(_respell, line)
        if spelled == line:
            raise
        return decoder.decode(spelled.decode("utf-8"))


def _respell(match: re.Match[bytes]) -> bytes:
    """Write a number that is not finite as Python's parser takes it, with its position."""
    return match[0] if match[0].startswith(b'"') else b"NaN".rjust(len(match[0]))


def _syntax(error: json.JSONDecodeError, line: bytes) -> Fault:
    where = f"at character {error.pos + 1}"
    if error.msg.startswith("Invalid control character"):
        return Fault("json_control_char", None, f"a raw control character in a string {where}")
    detail = (error.msg[0].lower() + error.msg[1:]).removesuffix(" at")
    if error.msg == "Extra data":
        detail = "more text follows the object; one object per line"
    elif _CONTROL.search(line):
        detail += "; the line holds raw control characters"
    return Fault("json_syntax", None, f"{detail} {where}")


def depth(line: bytes) -> int:
    """Return how deep a line nests arrays and objects, brackets inside strings apart."""
    if line.count(b"[") + line.count(b"{") <= MAX_DEPTH:
        return 0
    level = deepest = 0
    for token in TOKEN.finditer(line):
        first = token[0][:1]
        if first in b"[{":
            level += 1
            deepest = max(deepest, level)
        elif first in b"]}":
            level -= 1
    return deepest
