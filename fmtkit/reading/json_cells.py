"""JSON text in cells: columns that hold lists or objects as text are read by the kernel all the same.

Files whose columns have one type only keep messages so, and so does what a CSV became. A row is written as
the JSON line that it would be without the quotes, so that no second reader of messages is needed; what is not
certain to be the same stays with the strict parser.
"""

import json
import re
from collections.abc import Collection, Mapping
from json import decoder
from typing import Any

from fmtkit.columns.kinds import ConversationKind, ListKind, RecordKind
from fmtkit.columns.strict_kinds import holds
from fmtkit.reading.binding import Binding

_BLANK = re.compile(r"[ \t\n\r]*")
_CONTROL = re.compile(r"[\x00-\x1f]")
_DECODER = json.JSONDecoder()
_SCAN: Any = vars(decoder)["scanstring"]
"""Takes a JSON text and the place after a quote; returns the string and the place after its end."""


def names_of(binding: Binding) -> frozenset[str]:
    """Return the columns whose text can only be JSON text."""
    kinds = ListKind | RecordKind | ConversationKind
    return frozenset(
        column.path[0]
        for column in binding.columns
        if len(column.path) == 1 and isinstance(column.kind, kinds) and not holds(column.kind, "[")
    )


def in_line(line: bytes, names: Collection[str]) -> str | None:
    """Return a JSON line with what such columns hold in the place of their text; None where none has any.

    All else of the line stays as it is written.
    """
    try:
        return _unquoted(line.decode(), names)
    except (ValueError, IndexError, RecursionError):
        return None


def _unquoted(line: str, names: Collection[str]) -> str | None:
    if "\n" in line.strip():
        return None
    parts, begun, at = list[str](), 0, _after_blanks(line, 0)
    if line[at] != "{":
        return None
    while line[at] != "}":
        at = _after_blanks(line, at + 1)
        if line[at] != '"':
            return None
        name, at = _string(line, at)
        at = _after_blanks(line, at)
        if line[at] != ":":
            return None
        at = _after_blanks(line, at + 1)
        if line[at] == '"' and name in names:
            text, end = _string(line, at)
            held = value_of(text)
            if held is None:
                return None
            parts += (line[begun:at], held)
            begun = end
        else:
            _, end = _DECODER.raw_decode(line, at)
        at = _after_blanks(line, end)
        if line[at] not in ",}":
            return None
    return "".join((*parts, line[begun:].rstrip())) if parts else None


def of_cells(row: Mapping[str, str | None], names: Collection[str]) -> str | None:
    """Return the JSON line of a row of texts; None where it is to be read by itself.

    A null within such a column may be a key that only other rows of a table have.
    """
    parts = []
    for name, text in row.items():
        held = None if text is None else value_of(text) if name in names else json.dumps(text)
        if text is not None and (held is None or (name in names and "null" in text)):
            return None
        parts.append(f"{json.dumps(name)}:{'null' if held is None else held}")
    return f"{{{','.join(parts)}}}"


def value_of(text: str) -> str | None:
    """Return the JSON of a list or an object as it may stand in a line; None if a text is anything else."""
    if _CONTROL.search(text):
        return None
    start = _after_blanks(text, 0)
    if text[start : start + 1] not in ("[", "{"):
        return None
    try:
        _, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None
    # One value and no more: what follows would become part of the row.
    return text if _after_blanks(text, end) == len(text) else None


def _after_blanks(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    assert found is not None
    return found.end()


def _string(line: str, at: int) -> tuple[str, int]:
    found: tuple[str, int] = _SCAN(line, at + 1, True)
    return found
