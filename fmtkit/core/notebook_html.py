"""HTML of results for notebooks: small, escaped, in the colours of the notebook's own theme."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from fmtkit.core.escaping import visible

MOST = 20
"""Lines of a table; the others are counted."""
LONGEST = 300
"""Characters of a cell."""
MARKS = {"fine": "✔", "error": "✖", "warning": "▲", "note": "●"}
_CELL = "text-align:left;vertical-align:top;padding:.15em 1em .15em 0;overflow-wrap:anywhere"
_NUMBER = "text-align:right;padding:.15em 1em .15em 0;font-variant-numeric:tabular-nums"


def text(value: object) -> str:
    """Return a value as text of a page, its control characters shown."""
    written = f"{value:,}" if type(value) is int else visible(str(value))
    return escape(written if len(written) <= LONGEST else written[: LONGEST - 1] + "…")


def card(title: str, *parts: str, severity: str = "") -> str:
    """Return a result: a bold line with the mark and word of a severity, and parts below it."""
    head = f"{MARKS[severity]} {severity}: " if severity else ""
    # No colour of our own: what a light theme reads well, a dark one does too.
    return f"<div><p><strong>{escape(head)}{text(title)}</strong></p>{''.join(parts)}</div>"


def facts(pairs: Mapping[str, object]) -> str:
    """Return names with their values; what is None is left out."""
    known = {name: value for name, value in pairs.items() if value is not None}
    rows = "".join(
        f'<tr><th scope="row" style="{_CELL}">{text(name)}</th>{_cell(value)}</tr>'
        for name, value in known.items()
    )
    return f"<table>{rows}</table>"


def table(
    heads: Sequence[str], rows: Iterable[Sequence[object]], *, most: int | None = MOST
) -> str:
    """Return a table of the first rows, of all where `most` is None; nothing where there are none."""
    every = list(rows)
    if not every:
        return ""
    names = "".join(f'<th scope="col" style="{_CELL}">{text(head)}</th>' for head in heads)
    lines = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in every[:most])
    left = 0 if most is None else max(len(every) - most, 0)
    more = f"<p>and {left:,} more</p>" if left else ""
    return f"<table><thead><tr>{names}</tr></thead><tbody>{lines}</tbody></table>{more}"


def _cell(value: object) -> str:
    style = _NUMBER if isinstance(value, int | float) else _CELL
    return f'<td style="{style}">{text(value)}</td>'
