"""Rows in the form in which pages show them: what their list says of each, and what is shown of a chosen one.

`rows.js` reads both.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fmtkit.core.data_classes import dataclass
from fmtkit.core.message_keys import IMAGE
from fmtkit.core.secret_keys import beginning
from fmtkit.inspection.shown_images import bare
from fmtkit.inspection.shown_rows import ShownRow, ShownSide
from fmtkit.masks.origins import KINDS
from fmtkit.reports.thumbnails import DataUri

TEXT_SHOWN = 40_000
"""Characters of a sequence that the page shows."""

TITLE = 90


@dataclass(frozen=True)
class PicturedRow:
    """A row as it is shown, with its title and small copies of its images."""

    row: ShownRow
    title: str
    images: list[DataUri | None]


def title_of(row: Mapping[str, Any] | None) -> str:
    """Return what names a row in a list: the beginning of its last question."""
    conversation = (
        (row or {}).get("prompt") or (row or {}).get("messages") or (row or {}).get("text") or ""
    )
    if isinstance(conversation, str):
        return _words(conversation)
    asked = [m["content"] for m in conversation if m["role"] == "user" and m["content"]]
    said = asked[-1] if asked else conversation[-1]["content"] or ""
    return _words(said.replace(IMAGE, " ")) or _words(bare(said))


def _opening(side: ShownSide) -> str:
    """Return the beginning of what a row of tokens trains."""
    reply_start = side.offsets[side.prompt_length : side.prompt_length + 1]
    return _words(side.text[reply_start[0][0] if reply_start else 0 :])


def _words(text: str) -> str:
    return " ".join(beginning(text, 4 * TITLE).split())[:TITLE]


def entry_of(one: PicturedRow, codes: Sequence[str]) -> list[Any]:
    """Return number, source, row and line there, title, findings, and of each side its size.

    A size is a number, how much of it is trained, and its unit: sides without ids count characters.
    """
    row = one.row
    sizes = [
        [len(side.ids), side.trained_tokens, "tokens"]
        if side.ids
        else [len(side.text), 0, "characters"]
        for side in row.sides
    ]
    place = row.place
    return [
        place.row,
        place.source,
        place.source_row,
        place.line,
        one.title or row.problem or "".join(map(_opening, row.sides[:1])),
        list(codes),
        sizes,
    ]


def packed_row(one: PicturedRow) -> dict[str, Any]:
    """Return what is shown of a row: its sides, with where tokens end, its problem, details and images."""
    row = one.row
    return {
        "sides": [_packed_side(side) for side in row.sides],
        "problem": row.problem,
        "details": dict(row.details),
        "images": [list(pair) for pair in zip(row.images, one.images, strict=False)],
    }


def _packed_side(side: ShownSide) -> dict[str, Any]:
    text = side.text[:TEXT_SHOWN]
    return {
        "side": side.side,
        "text": text,
        "cut": len(side.text) - len(text),
        "steps": _steps(side, text),
        "trained": side.trained,
        "prompt": side.prompt_length,
        "why": side.why,
        "labels": side.labels,
        "windows": side.windows,
        "notes": side.notes,
        "images": _places(side, text),
        "kinds": _kinds(side),
    }


def _kinds(side: ShownSide) -> list[list[int]]:
    """Return stretches of tokens of one origin: the token after the last, kind, message, who wrote it.

    A message that there is none is -1; what the template wrote has 1, other tokens 0.
    """
    return [
        [
            one.end,
            KINDS.index(one.kind),
            -1 if one.message is None else one.message,
            int(one.by_template),
        ]
        for one in side.kinds
    ]


def _places(side: ShownSide, text: str) -> list[int]:
    """Return where the placeholder of each image begins, in UTF-16 units, within the text that is shown."""
    starts = (image.start for image in side.images if image.start < len(text))
    return [len(text[:start].encode("utf-16-le", "surrogatepass")) // 2 for start in starts]


def _steps(side: ShownSide, text: str) -> list[int]:
    """Return how far each token's end is from the one before, in UTF-16 units as in JavaScript."""
    if not side.offsets:
        return []
    ends = np.minimum([end for _, end in side.offsets], len(text))
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    units = np.concatenate(([0], np.cumsum(1 + (points > 0xFFFF))))
    at = units[np.maximum.accumulate(ends)]
    steps: list[int] = np.diff(np.concatenate(([0], at))).tolist()
    return steps
