"""Seeded mutants of JSON lines, by class: bytes, structure, escapes, numbers, what JSON only resembles."""

import json
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from mutated_rows import KEYS, TOKENS

Draw = random.Random
NUMBERS = (
    *(b"0", b"-0", b"0.0", b"-0.0", b"1", b"1.0", b"1e0", b"1E+2", b"1e-7", b"0.5", b"-1.5"),
    *(b"0.1", b"0.30000000000000004", b"0.8234567891234567", b"3.141592653589793"),
    *(b"9007199254740993", b"9007199254740993.0", b"9223372036854775807", b"-9223372036854775808"),
    *(b"9223372036854775808", b"1e22", b"1e23", b"8.5e-23", b"123456789012345678e-27"),
    *(b"1.7976931348623157e308", b"5e-324", b"1e308", b"1e309", b"1e400", b"1e-400", b"0e999"),
    *(b"01", b"1.", b".5", b"+1", b"--1", b"1e", b"1e+", b"0x1", b"1_0", b"1e99999", b"1e999999"),
    *(b"NaN", b"-NaN", b"Infinity", b"-Infinity", b"Inf", b"nan", b"1" * 30, b"0." + b"1" * 30),
    *(b"4.35", b"0.000001", b"123456.789e3", b"2.2250738585072014e-308", b"0.1e-26", b"7e27"),
)
SURROGATES = (
    *(b"\\ud83d\\ude00", b"\\uD83D\\uDE00", b"\\ud83d", b"\\ude00", b"\\ude00\\ud83d"),
    *(b"\\ud83d\\u0041", b"\\ud83dx\\ude00", b"\\ud83d\\ud83d\\ude00", b"\xed\xa0\xbd\xed\xb8\x80"),
)
ESCAPES = (
    *(b"\\n", b"\\t", b'\\"', b"\\\\", b"\\/", b"\\b", b"\\f", b"\\r", b"\\u0041", b"\\u00e9"),
    *(b"\\u20AC", b"\\u0000", b"\\u001f", b"\\u0022", b"\\u005c", b"\\u007f", b"\\uffff"),
    *(b"\\x", b"\\u12", b"\\u12g4", b"\\'", b"\\", b"\\U0041", b"\\u+041", b"\\u 041"),
)
TEXTS = (
    "é",
    "日本語",
    "😀",
    "\u2028",
    "\u00a0",
    "ß" * 20,
    "漢" * 40,
    "a" * 100,
    "\ue000",
    "\ufeff",
)
BROKEN_UTF8 = (
    *(b"\xff", b"\xc0\x80", b"\xe0\x80\x80", b"\xf0\x80\x80\x80", b"\xf4\x90\x80\x80", b"\x80"),
    *(b"\xe6\x97", b"\xc3", b"\xf5\x80\x80\x80", b"\xed\xa0\x80", b"\xed\x9f\xbf", b"\xee\x80\x80"),
)


class Token(str):
    """A text that stands for the bytes that it names."""


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every holder in a value and the key in it."""
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield value, key
            yield from _places(item)


def _row(line: bytes) -> Any:
    row = json.loads(line)
    return row if isinstance(row, dict) else {"row": row}


def _put(row: Any, holder: Any, key: Any, token: bytes, draw: Draw) -> bytes:
    holder[key] = "@put@"
    return _written(row, draw).replace(b'"@put@"', token)


def _written(row: Any, draw: Draw) -> bytes:
    separators = draw.choice(((",", ":"), (", ", ": "), (" ,\t", "  : ")))
    return json.dumps(row, ensure_ascii=draw.random() < 0.2, separators=separators).encode()


def _in_a_text(line: bytes, draw: Draw, put: bytes) -> bytes:
    """Put bytes into one of the strings of a line."""
    row = _row(line)
    texts = [(holder, key) for holder, key in _places(row) if isinstance(holder[key], str)]
    if not texts:
        return line
    holder, key = draw.choice(texts)
    text = holder[key]
    at = draw.randint(0, len(text))
    holder[key] = f"{text[:at]}@put@{text[at:]}"
    return _written(row, draw).replace(b"@put@", put)


def _flipped(line: bytes, draw: Draw) -> bytes:
    at = draw.randrange(len(line))
    return line[:at] + bytes([line[at] ^ (1 << draw.randrange(8))]) + line[at + 1 :]


def _cut(line: bytes, draw: Draw) -> bytes:
    at = draw.randrange(len(line))
    return line[:at] + line[at + draw.randint(1, 5) :]


def _cut_off(line: bytes, draw: Draw) -> bytes:
    return line[: draw.randrange(len(line))]


def _inserted(line: bytes, draw: Draw) -> bytes:
    at = draw.randint(0, len(line))
    put = draw.choice((b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b" ", b"\r", b"0", b"x"))
    return line[:at] + put + line[at:]


def _nested(line: bytes, draw: Draw) -> bytes:
    row = _row(line)
    deep = draw.choice((1, 2, 50, 97, 98, 99, 100, 101, 300))
    begin, end = draw.choice(((b"[", b"]"), (b'{"a":', b"}")))
    inner = draw.choice((b"1", b"[]", b"{}", b'"x"'))
    places = list(_places(row))
    if not places or draw.random() < 0.5:
        row["extra"] = None
        places = [(row, "extra")]
    return _put(row, *draw.choice(places), begin * deep + inner + end * deep, draw)


def _token(line: bytes, draw: Draw) -> bytes:
    row = _row(line)
    places = list(_places(row))
    return _put(row, *draw.choice(places), draw.choice(TOKENS), draw) if places else line


def _added(line: bytes, draw: Draw) -> bytes:
    row = _row(line)
    holders = [row, *(h[k] for h, k in _places(row) if isinstance(h[k], dict))]
    holder = draw.choice(holders)
    key = draw.choice([key for key in KEYS if "\\" not in key])
    return _put(row, holder, key, draw.choice((*TOKENS[:20], b'"x"', b"null", b"[]")), draw)


def _number(line: bytes, draw: Draw) -> bytes:
    row = _row(line)
    places = list(_places(row))
    numbers = [(h, k) for h, k in places if isinstance(h[k], int | float)]
    row["extra"] = None
    chosen = draw.choice(numbers) if numbers and draw.random() < 0.8 else (row, "extra")
    return _put(row, *chosen, draw.choice(NUMBERS), draw)


def _real(line: bytes, draw: Draw) -> bytes:
    """Put a number of many digits where a number stands."""
    row = _row(line)
    numbers = [(h, k) for h, k in _places(row) if isinstance(h[k], float | int)]
    if not numbers:
        row["extra"] = None
    digits = "".join(draw.choices("0123456789", k=draw.randint(1, 21)))
    power = f"e{draw.randint(-45, 30)}" if draw.random() < 0.3 else ""
    token = f"{draw.choice(('', '-'))}0.{digits}{power}".encode()
    return _put(row, *(draw.choice(numbers) if numbers else (row, "extra")), token, draw)


def _doubled(line: bytes, draw: Draw) -> bytes:
    row = _row(line)
    places = [(holder, key) for holder, key in _places(row) if isinstance(holder, dict)]
    if not places:
        return line
    holder, key = draw.choice(places)
    value = json.dumps(holder[key]) if draw.random() < 0.7 else "null"
    holder["@twice@"] = Token("@twice@")
    found = _written(row, draw)
    name = json.dumps(key).encode()
    if draw.random() < 0.2 and key:
        name = b'"\\u%04x' % ord(key[0]) + json.dumps(key[1:]).encode()[1:]
    at = found.index(b'"@twice@"')
    end = found.index(b'"@twice@"', at + 1) + len(b'"@twice@"')
    return found[:at] + name + b":" + value.encode() + found[end:]


def _shuffled(line: bytes, draw: Draw) -> bytes:
    row = _row(line)
    keys = list(row)
    draw.shuffle(keys)
    return _written({key: row[key] for key in keys}, draw)


def _crlf(line: bytes, draw: Draw) -> bytes:
    return draw.choice((line + b"\r", line + b"\r\r", b" " + line, line + b" \t", b"\r" + line))


def _bom(line: bytes, draw: Draw) -> bytes:
    return b"\xef\xbb\xbf" + line if draw.random() < 0.5 else line + b"\xef\xbb\xbf"


def _control(line: bytes, draw: Draw) -> bytes:
    control = bytes([draw.choice((0, 1, 8, 9, 11, 12, 13, 27, 31, 127))])
    if draw.random() < 0.5:
        return _in_a_text(line, draw, control)
    at = draw.randint(0, len(line))
    return line[:at] + control + line[at:]


def _many_keys(line: bytes, draw: Draw) -> bytes:
    row = _row(line)
    row["extra"] = {f"k{i}": i for i in range(draw.choice((1, 63, 64, 65, 200)))}
    return _written(row, draw)


def _restyled(line: bytes, draw: Draw) -> bytes:
    return _written(_row(line), draw)


CLASSES: dict[str, Callable[[bytes, Draw], bytes]] = {
    "a bit flipped": _flipped,
    "bytes cut out": _cut,
    "cut off": _cut_off,
    "a byte inserted": _inserted,
    "nested": _nested,
    "a value replaced": _token,
    "a key added": _added,
    "a number": _number,
    "a number of many digits": _real,
    "a key twice": _doubled,
    "keys shuffled": _shuffled,
    "written otherwise": _restyled,
    "an escape": lambda line, draw: _in_a_text(line, draw, draw.choice(ESCAPES)),
    "several escapes": lambda line, draw: _in_a_text(
        line, draw, b"".join(draw.choices(ESCAPES[:17], k=draw.randint(1, 40)))
    ),
    "a surrogate": lambda line, draw: _in_a_text(line, draw, draw.choice(SURROGATES)),
    "text beyond ASCII": lambda line, draw: _in_a_text(line, draw, draw.choice(TEXTS).encode()),
    "no UTF-8": lambda line, draw: _in_a_text(line, draw, draw.choice(BROKEN_UTF8)),
    "a control": _control,
    "a byte order mark": _bom,
    "blanks and CRLF": _crlf,
    "many keys": _many_keys,
}


def mutants(lines: Sequence[bytes], count: int, seed: str) -> Iterator[tuple[str, bytes]]:
    """Yield mutants of sound lines with their class, each class in its turn; none holds a line feed."""
    draw = random.Random(seed)
    names = list(CLASSES)
    # Few mutants of many files are not to be all of the first classes, which break most lines.
    first = draw.randrange(len(names))
    for number in range(first, first + count):
        name = names[number % len(names)]
        line = draw.choice(lines)
        changed = line
        if draw.random() < 0.2:
            again = draw.choice(("a key added", "a value replaced", "keys shuffled"))
            changed = CLASSES[again](line, draw)
        try:
            made = CLASSES[name](changed, draw)
        except (ValueError, KeyError):
            # The first change has left no JSON to change.
            made = CLASSES[name](line, draw)
        yield name, made.replace(b"\n", b" ")
