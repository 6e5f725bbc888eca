"""A sequence as rich text: which tokens are trained, and where each of them ends."""

from rich.style import Style
from rich.text import Text

from fmtkit.escaping import visible
from fmtkit.surveying.shown_rows import ShownSide

TRAINED = (Style(color="green", bold=True), Style(color="green", bold=True, underline=True))
CONTEXT = (Style(color="bright_black"), Style(color="bright_black", underline=True))
OPEN, CLOSE = "⟦", "⟧"
"""Around trained spans where there is no colour."""


def side_text(side: ShownSide, *, plain: bool) -> Text:
    """Return a side's text, control characters shown; in a pipe trained spans are bracketed."""
    if not side.ids:
        return Text(visible(side.text))
    trained = {number for start, end in side.trained for number in range(start, end)}
    text, at, inside = Text(), 0, False
    for number, (_, end) in enumerate(side.offsets):
        is_trained = number in trained
        if plain and is_trained != inside:
            text.append(OPEN if is_trained else CLOSE)
        inside = is_trained
        if end > at:
            styles = TRAINED if is_trained else CONTEXT
            text.append(visible(side.text[at:end]), None if plain else styles[number % 2])
            at = end
    text.append(CLOSE if plain and inside else "")
    text.append(visible(side.text[at:]))
    return text
