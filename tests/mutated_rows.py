"""Rows with something wrong in them: JSON that is changed in one place, and lines with bytes changed."""

import json
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

TOKENS = [
    *(b"null", b"true", b"false", b"0", b"1", b"-1", b"2", b"0.0", b"1.0", b"0.5", b"1e5", b"-0"),
    *(b"NaN", b"-Infinity", b"Inf", b"1e400", b"1000e306", b"1e-400", b"9223372036854775807"),
    *(b"9223372036854775808", b"-9223372036854775809", b"9" * 5000, b"12345678901234567.5"),
    *(b'""', b'" \\t\\u3000"', b'"x"', b'"1"', b'"true"', b'"user"', b'"assistant"', b'"robot"'),
    *(b'"\\ud800"', b'"\\udc00\\ud800"', b'"\\ud83d\\ude00"', b'"\\u0000"', b'"\x01"', b'"\xff"'),
    *(
        b'"\\x"',
        b"'x'",
        b"01",
        b".5",
        b"1.",
        b"tru",
        b"{",
        b"]",
        b'"',
        b"",
        b"[,]",
        b"\xe2\x80\xa8",
    ),
    *(b"[]", b"{}", b"[null]", b"[[]]", b"[1]", b'["x"]', b"[true,1]", b'[{"a":1},{"a":"x"}]'),
    *(
        b'{"a":1,"a":2}',
        b'{"a":{"b":NaN}}',
        b'{"\\ud800":1}',
        b'[{"c":[1e400]}]',
        b'{"x":[{"y":null}]}',
    ),
    *(b'{"role":"user","content":"x"}', b'[{"role":"user","content":"x"}]', b'{"content":"x"}'),
    *(b'[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]', b'[{"role":"tool"}]'),
    *(b'{"role":"assistant","content":"x","weight":0}', b'{"role":"assistant","tool_calls":[]}'),
    *(
        b'[{"from":"human","value":"x"}]',
        b'{"role":"assistant","content":[{"type":"text","text":"x"}]}',
    ),
    *(b'{"role":"user","content":[{"type":"image_url"}]}', b'{"role":"system","content":null}'),
    *(b"[" * 99 + b"]" * 99, b"[" * 101 + b"]" * 101, b'"' + b"[{" * 80 + b'"', b"\xef\xbb\xbf1"),
]
"""Values, sound and unsound, that may stand anywhere in a row."""

KEYS = [
    *("meta", "extra", "a", "images", "video", "role", "content", "weight", "train", "tool_calls"),
    *("name", "reasoning_content", "system", "tools", "prompt", "chosen", "label", "\\ud800", ""),
]


@dataclass(frozen=True)
class Raw:
    """Bytes that stand for themselves."""

    token: bytes


Pairs = list[tuple[str, Any]]
"""An object, in which a key may stand twice."""


def written(value: Any) -> bytes:
    """Write a value: objects are lists of pairs within a tuple, so that keys may stand twice."""
    if isinstance(value, Raw):
        return value.token
    if isinstance(value, tuple):
        return b"{" + b",".join(_key(key) + b":" + written(item) for key, item in value) + b"}"
    if isinstance(value, list):
        return b"[" + b",".join(written(item) for item in value) + b"]"
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _key(key: str) -> bytes:
    return b'"' + key.encode() + b'"' if "\\" in key else json.dumps(key).encode()


def parsed(line: bytes) -> Any:
    """Read a sound line so that `written` gives it back."""
    return json.loads(line, object_pairs_hook=tuple)


@st.composite
def changed(draw: st.DrawFn, value: Any) -> Any:
    """Change a value in one place: there, or somewhere inside of it."""
    is_object = isinstance(value, tuple)
    inside = value and isinstance(value, tuple | list)
    if inside and draw(st.integers(0, 3)):
        at = draw(st.integers(0, len(value) - 1))
        items = list(value)
        if is_object:
            items[at] = (items[at][0], draw(changed(items[at][1])))
            return tuple(items)
        items[at] = draw(changed(items[at]))
        return items
    if inside and draw(st.booleans()):
        return draw(_rearranged(value))
    return Raw(draw(st.sampled_from(TOKENS)))


@st.composite
def _rearranged(draw: st.DrawFn, value: Any) -> Any:
    items = list(value)
    at = draw(st.integers(0, len(items) - 1))
    how = draw(st.sampled_from(["drop", "twice", "swap", "add", "add"]))
    if how == "drop":
        del items[at]
    elif how == "twice":
        items.insert(draw(st.integers(0, len(items))), items[at])
    elif how == "swap":
        items[at], items[0] = items[0], items[at]
    else:
        new = Raw(draw(st.sampled_from(TOKENS)))
        items.insert(at, (draw(st.sampled_from(KEYS)), new) if isinstance(value, tuple) else new)
    return tuple(items) if isinstance(value, tuple) else items


@st.composite
def mutated(draw: st.DrawFn, line: bytes) -> bytes:
    """Change a sound line in a place or two; a raw line feed would make it two lines."""
    row = parsed(line)
    for _ in range(draw(st.integers(1, 2))):
        row = draw(changed(row)) if isinstance(row, tuple | list) else row
    return written(row).replace(b"\n", b" ")


@st.composite
def damaged(draw: st.DrawFn, line: bytes) -> bytes:
    """Change some bytes of a line."""
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(line)))
        end = min(len(line), at + draw(st.integers(0, 4)))
        put = draw(
            st.sampled_from(
                [
                    b"",
                    b"\x00",
                    b'"',
                    b"\\",
                    b"{",
                    b"}",
                    b"[",
                    b"]",
                    b",",
                    b":",
                    b"\xff",
                    b" ",
                    b"\r",
                    b"1",
                ]
            )
        )
        line = line[:at] + put + line[end:]
    return line
