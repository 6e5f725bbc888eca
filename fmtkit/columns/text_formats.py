"""Format strings of users, with placeholders such as {prompt}; they are checked before a row is read.

Only the named placeholders and the escapes {{ and }} are allowed. Other syntax of `str.format`
({prompt.__class__}, {prompt[0]}, {prompt:>9}, {prompt!r}) could expose or change values.
"""

import re
from collections.abc import Mapping

import polars as pl

from fmtkit.columns.problems import Column
from fmtkit.core.errors import OptionError, near_match

PLACEHOLDERS = (
    "prompt", "system", "chosen", "rejected", "completion", "instruction", "input",
)  # fmt: skip
_TOKEN = re.compile(r"\{\{|\}\}|\{(?P<name>[^{}]*)\}|[{}]")


def parse_format(option: str, text: str, known: Mapping[str, object]) -> list[tuple[bool, str]]:
    """Split a format into pairs (whether it is a placeholder, its name or the literal text).

    Raises OptionError with the code `format_placeholder` for anything that is not a placeholder.
    """
    parts: list[tuple[bool, str]] = []
    end = 0
    for token in _TOKEN.finditer(text):
        parts.append((False, text[end : token.start()]))
        end = token.end()
        if token[0] in ("{{", "}}"):
            parts.append((False, token[0][0]))
        elif token["name"] in known:
            parts.append((True, token["name"]))
        else:
            raise OptionError(_refusal(option, token[0], known))
    parts.append((False, text[end:]))
    return [part for part in parts if part[1]]


def _refusal(option: str, token: str, known: Mapping[str, object]) -> str:
    names = ", ".join(f"{{{name}}}" for name in known)
    near = near_match(token.strip("{}"), known)
    hint = f"did you mean {{{near}}}? " if near else ""
    return (
        f"format_placeholder: {option} holds {token!r}, which is not a placeholder; {hint}"
        f"known: {names}; write {{{{ and }}}} for braces"
    )


def mentions(option: str, text: str, name: str, known: Mapping[str, object]) -> bool:
    """Return whether a format uses a placeholder.

    Args:
        option: The option that the format is the value of, for the error.
        text: The format.
        name: The placeholder.
        known: The placeholders that the format may have.

    Raises:
        OptionError: If the format has another placeholder.
    """
    return (True, name) in parse_format(option, text, known)


def formatted(option: str, text: str, columns: Mapping[str, Column]) -> Column:
    """Fill a format with columns; a null becomes an empty string. Problems of the columns are kept.

    Args:
        option: The option that the format is the value of, for the error.
        text: The format.
        columns: Placeholder -> the column that takes its place.

    Raises:
        OptionError: If the format has another placeholder.
    """
    parts = [
        columns[part].value.fill_null("") if is_name else pl.lit(part)
        for is_name, part in parse_format(option, text, columns)
    ]
    filled = pl.concat_str(parts) if parts else pl.lit("")
    return Column(filled).depending_on(*columns.values())
