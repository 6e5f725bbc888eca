"""kernel/tables.h: what Python and the kernel have to number alike, as the kernel is compiled with it."""

import re
from collections.abc import Iterable

from fmtkit.columns import text_layout
from fmtkit.columns.read_spec import MARK
from fmtkit.columns.text_layout import Ask
from fmtkit.reading import clean_lines

_TOP = """\
/* What fmtkit numbers as the kernel does. Written by `make docs` (docs/pages/kernel_tables.py) from
 * fmtkit/reading/clean_lines.py and fmtkit/columns/text_layout.py; a test compares them.
 */

#ifndef FMTKIT_TABLES_H
#define FMTKIT_TABLES_H
"""


def text() -> str:
    """Return the header."""
    return "\n".join(
        [
            _TOP,
            "/* Turns of a line, and of a shape; a line that has more is unsure. So are views of a shape. */",
            *_numbers(text_layout, "MOST_TURNS", "MOST_VIEWS"),
            "/* What a message may have besides its role and content. */",
            *_numbers(clean_lines, "MOST_MESSAGE_KEYS"),
            "/* Roles of a layout, each a letter, and what ends a conversation in the key of a shape. */",
            *_numbers(clean_lines, "MOST_ROLES", "CONVERSATION_END"),
            "/* How the key of a shape tells what a turn has: so many characters of so many bits each. */",
            *_numbers(clean_lines, "THERE_BASE", "THERE_BITS", "THERE_CHARACTERS"),
            "/* Sides on which a text is trimmed. */",
            f"#define SIDE_LEFT {text_layout.LEFT}",
            f"#define SIDE_RIGHT {text_layout.RIGHT}",
            "/* The character that says that a value exists. */",
            f'#define MARK "{_MARK}"',
            "",
            "/* The verdict on a line. */",
            _enum("Verdict", "LINE", {name: getattr(clean_lines, name) for name in _VERDICTS}),
            "/* Kinds of JSON value, a bit each. */",
            _enum("Kind", "KIND", {n: 1 << bit for bit, n in enumerate(clean_lines.KINDS)}),
            "/* What the bits of keys mean, of which a layout tells one set each. */",
            _enum("BitSet", "BITS", _in_order(clean_lines.BITS), "BIT_SETS"),
            "/* How a conversation is made, and when a line is left: classes of columns/turn_sources.py. */",
            _enum("Make", "MAKE", _in_order(_names(clean_lines.STEPS)), "MAKES"),
            _enum("RuleKind", "RULE", _in_order(_names(clean_lines.RULES)), "RULES"),
            "/* Comparisons of two texts. */",
            _enum("Ask", "ASK", {ask.name: ask.value for ask in Ask}, "ASKS"),
            "#endif",
            "",
        ]
    )


_MARK = "".join(f"\\x{byte:02x}" for byte in MARK.encode())
_VERDICTS = ("CLEAN", "BLANK", "UNSURE")


def _numbers(module: object, *names: str) -> Iterable[str]:
    return (f"#define {name} {getattr(module, name)}" for name in names)


def _names(classes: Iterable[type]) -> list[str]:
    """Return the names of classes as C writes constants: WithSystem is WITH_SYSTEM."""
    return [re.sub(r"(?<=[a-z])(?=[A-Z])", "_", one.__name__) for one in classes]


def _in_order(names: Iterable[str]) -> dict[str, int]:
    return {name: number for number, name in enumerate(names)}


def _enum(kind: str, prefix: str, values: dict[str, int], count: str = "") -> str:
    """Return an enumeration, with how many values it has as the last one where that has a name."""
    named = {f"{prefix}_{name.upper().replace(' ', '_')}": value for name, value in values.items()}
    if count:
        named[count] = len(values)
    body = "".join(f"    {name} = {value},\n" for name, value in named.items())
    return f"typedef enum {{\n{body}}} {kind};\n"
