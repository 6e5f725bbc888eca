"""Text for people: control characters escaped, secrets hidden, addresses left out, nouns counted."""

import re

from fmtkit.core.secret_keys import hidden

_CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)

_ADDRESS = re.compile(r"(<[^\n]{0,400}?) at 0x[0-9a-fA-F]+>?")
"""The address in Python's text of an object, also of one that was cut off."""


def without_addresses(text: str) -> str:
    """Return the text without addresses of objects, which say nothing and differ between runs."""
    return _ADDRESS.sub(r"\1>", text) if " at 0x" in text else text


def visible(text: str) -> str:
    """Return the text with control characters as escapes and secrets as stars; tabs and newlines stay."""
    return _CONTROL.sub(
        lambda match: (
            f"\\x{ord(match[0]):02x}" if ord(match[0]) < 256 else f"\\u{ord(match[0]):04x}"
        ),
        hidden(text),
    )


def one_line(text: str, width: int = 0) -> str:
    """Return the text on one line, cut to `width` characters where that is given."""
    flat = visible(text).replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
    return flat if not width or len(flat) <= width else flat[: width - 1] + "…"


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return `1 row`, `2 rows`; give `plural` for a noun whose plural is not formed with an s."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
