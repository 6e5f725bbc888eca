"""Results as lines and columns of text: in a pipe, a log or a notebook they are written as they are."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

RIGHT, LEFT = "right", "left"
INDENT = 2


class Line(NamedTuple):
    """A line, or a cell, in a style of rich's."""

    text: str
    style: str = ""
    indent: int = 0


class Columns(NamedTuple):
    """Rows of as many cells as there are sides, on which each column is aligned."""

    sides: tuple[str, ...]
    rows: list[tuple[Line, ...]]
    indent: int = 0


Part = Line | Columns


def lines_of(part: Part) -> Iterator[str]:
    """Yield the lines of a part, indented."""
    for line in _plain(part):
        yield f"{' ' * part.indent}{line}".rstrip()


def plain_text(parts: Iterable[Part]) -> str:
    """Return parts as text without colours, each line with its end."""
    return "".join(f"{line}\n" for part in parts for line in lines_of(part))


def _plain(part: Part) -> list[str]:
    if isinstance(part, Line):
        return [part.text]
    widths = [max(len(cell.text) for cell in column) for column in zip(*part.rows, strict=True)]
    return [
        "  ".join(
            cell.text.rjust(width) if side == RIGHT else cell.text.ljust(width)
            for cell, side, width in zip(row, part.sides, widths, strict=True)
        )
        for row in part.rows
    ]
