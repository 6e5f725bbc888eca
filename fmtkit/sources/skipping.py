"""Members that are cut out of JSON lines before the fast parser sees them.

pyarrow reads a column of mixed kinds under no type, and it skips unknown keys at every depth or at none:
a key that stands twice inside of a message must not be skipped. Here members of the rows themselves are
judged strictly and replaced by spaces, so that what is left is a sound row if and only if the whole was.
"""

import json
import re
from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from fmtkit.sources.marks import faults_anywhere
from fmtkit.sources.strict import parse
from fmtkit.sources.structure import members_of

SPACES = b" \t\r"
BLANKS = re.compile(rb"[ \t\r]*")
NEAR = 16
"""How far behind a comma the next member is looked for."""


def without(
    text: bytes, starts: np.ndarray, ends: np.ndarray, names: Sequence[str]
) -> bytes | None:
    """Return JSON lines with the members of these names blanked; None where anything is suspicious.

    Line i is `text[starts[i]:ends[i]]`; it begins with `{` and ends with `}`.
    """
    cuts = members_of(text, starts, ends)
    if cuts is None:
        return None
    keys = {json.dumps(name, ensure_ascii=False).encode(): name for name in names}
    pattern = re.compile(b"|".join(map(re.escape, keys)))
    firsts, bounds, out = starts.tolist(), cuts.tolist(), bytearray(text)
    member, key = -1, -1
    for match in pattern.finditer(text):
        place = match.start()
        at = bisect_left(bounds, place)
        if at != member:
            member, key = at, BLANKS.match(text, bounds[at - 1] + 1).end()  # type: ignore[union-attr]
        if place != key:
            # The key of an object further inside, or behind such a name.
            continue
        end = bounds[at]
        if not _is_sound(text[place:end], keys[match[0]]):
            return None
        line = firsts[bisect_left(firsts, place) - 1]
        span = _with_comma(text, out, line, place, end)
        if span is None:
            return None
        out[slice(*span)] = b" " * (span[1] - span[0])
    return bytes(out)


def _is_sound(member: bytes, name: str) -> bool:
    """Tell whether the bytes are one member, with a value that may stand in a column nobody uses."""
    value, fault = parse(b"{" + member + b"}")
    return fault is None and list(value) == [name] and not faults_anywhere(value[name], name)


def _with_comma(
    text: bytes, out: bytearray, line: int, begin: int, end: int
) -> tuple[int, int] | None:
    """Return the bytes of a member and of the one comma that goes with it."""
    if text[end : end + 1] == b",":
        follows = text[end + 1 : end + NEAR].lstrip(SPACES)
        return (begin, end + 1) if follows.startswith(b'"') else None
    before = bytes(out[line:begin]).rstrip(SPACES)
    if before == b"{":
        return begin, end
    comma = line + len(before) - 1
    if not before.endswith(b",") or before[:-1].rstrip(SPACES) == b"{":
        return None
    return comma, end
