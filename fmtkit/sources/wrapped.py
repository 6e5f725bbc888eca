"""Rows in a list inside the single object of a file: `{"version": 1, "data": [{...}, {...}]}`."""

import json
from typing import Any

from fmtkit.core.data_classes import dataclass
from fmtkit.core.message_keys import SPEAKER_KEYS
from fmtkit.sources.jsonl import BLANK

WRAPPERS = frozenset(
    {"data", "dataset", "train", "test", "validation", "valid", "val", "dev", "eval"}
)
WRAPPERS |= {"rows", "items", "examples", "records", "results", "samples", "instances", "entries"}
"""Keys under which the list of rows may be."""
BLANKS = BLANK.decode()
_DECODER = json.JSONDecoder()


@dataclass(frozen=True)
class Wrapping:
    """The place of the rows in a text."""

    name: str
    """The key of the list of rows."""
    at: int
    """Where the first row begins, after the bracket of the list."""
    beside: tuple[str, ...]
    """The other keys of the object, as far as the text goes."""


def wrapping_of(text: bytes, *, is_cut: bool) -> Wrapping | None:
    """Return where the rows are in the single object of a text.

    None if the object has no such list or several, if the text has more than the object, or if the items of
    the list are messages or contain the rows one level deeper.

    Args:
        text: The text from its opening brace on, or its beginning.
        is_cut: Whether the text is only the beginning.
    """
    # Of each byte one character: places stay as they are.
    said = text.decode("latin-1")
    found: tuple[str, int] | None = None
    beside: list[str] = []
    at = _after_blanks(said, 1)
    try:
        while said[at] != "}":
            name, at = _key(said, at)
            is_list = name.lower() in WRAPPERS and said[at] == "["
            first = _after_blanks(said, at + 1)
            if is_list and said.startswith("{", first):
                if found is not None or not _is_row(said, first):
                    return None
                found = (name, first)
            else:
                beside.append(_named(name))
            value, at = _DECODER.raw_decode(said, at)
            if found != (name, first) and _holds_objects(value):
                return None
            at = _after_comma(said, at)
        is_whole = _after_blanks(said, at + 1) == len(said)
    except (ValueError, IndexError, RecursionError):
        # Cut inside the list, as a rule; a broken one is told by whoever reads it.
        is_whole = is_cut
    return Wrapping(*found, tuple(beside)) if found is not None and is_whole else None


def _named(name: str) -> str:
    """Return a key as it is written: each byte of it is one character."""
    try:
        return name.encode("latin-1").decode()
    except (UnicodeEncodeError, UnicodeDecodeError):
        return name


def _key(said: str, at: int) -> tuple[str, int]:
    """Return a key and where its value begins."""
    name, at = _DECODER.raw_decode(said, at)
    at = _after_blanks(said, at)
    if not isinstance(name, str) or said[at] != ":":
        raise ValueError("no key")
    return name, _after_blanks(said, at + 1)


def _after_comma(said: str, at: int) -> int:
    """Return where the next key begins, or the object ends."""
    at = _after_blanks(said, at)
    if said[at] not in ",}":
        raise ValueError("no comma")
    return at if said[at] == "}" else _after_blanks(said, at + 1)


def _is_row(said: str, at: int) -> bool:
    """Return whether a list's first item is a row: no message, and no object around a row."""
    row, _ = _DECODER.raw_decode(said, at)
    return row.keys().isdisjoint(SPEAKER_KEYS) and not isinstance(row.get("row"), dict)


def _after_blanks(said: str, at: int) -> int:
    while at < len(said) and said[at] in BLANKS:
        at += 1
    return at


def fault_of_rest(text: bytes) -> str | None:
    """Return what is wrong with the text after the list of rows, which should end the object."""
    rest = text.strip(BLANK)
    try:
        held: dict[str, Any] = json.loads(b'{"": 0' + rest)
    except (ValueError, RecursionError):
        return "the object around the rows does not end as JSON does"
    others = [name for name, value in held.items() if _holds_objects(value)]
    if others:
        return f"the object has other rows in {others[0]!r}, which are not read"
    return None


def _holds_objects(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(item, dict) for item in value)
