"""A sequence as rich text: which tokens are trained, and where each of them ends."""

from rich.style import Style
from rich.text import Text

from fmtkit.core.escaping import visible
from fmtkit.inspection.shown_rows import ShownSide

TRAINED = (Style(color="green", bold=True), Style(color="green", bold=True, underline=True))
CONTEXT = (Style(color="bright_black"), Style(color="bright_black", underline=True))
WINDOWS = (Style(bgcolor="grey23"), Style(bgcolor="grey30"))
"""The style of every second window, so that neighbours can be distinguished."""

OPEN, CLOSE = "⟦", "⟧"
"""Around trained spans where there is no colour."""

ANCHOR, END = "▸", "◂"
"""Before the first token of a window, and after tokens of which none follows in a window."""


MARK = Style(color="cyan", bold=True)


def side_text(side: ShownSide, *, plain: bool) -> Text:
    """Return a side's text, control characters shown; in a pipe trained spans are bracketed."""
    if not side.ids:
        return Text(_shown(side, 0, len(side.text)))
    trained = {number for start, end in side.trained for number in range(start, end)}
    anchors = {start for start, _ in side.windows}
    window_of = {
        number: window
        for window, (start, end) in enumerate(side.windows)
        for number in range(start, end)
    }
    text, at, inside = Text(), 0, False
    for number, (_, end) in enumerate(side.offsets):
        is_trained, window = number in trained, window_of.get(number)
        if plain and is_trained != inside:
            text.append(OPEN if is_trained else CLOSE)
        if plain and window is None and number - 1 in window_of:
            text.append(END)
        if number in anchors:
            text.append(ANCHOR, None if plain else MARK)
        inside = is_trained
        if end > at:
            style = (TRAINED if is_trained else CONTEXT)[number % 2]
            style = style if window is None else style + WINDOWS[window % 2]
            text.append(_shown(side, at, end), None if plain else style)
            at = end
    text.append(CLOSE if plain and inside else "")
    text.append(END if plain and len(side.ids) - 1 in window_of else "")
    text.append(_shown(side, at, len(side.text)))
    return text


def _shown(side: ShownSide, start: int, end: int) -> str:
    """Return a part of a side's text, with what an image is where its placeholder begins."""
    shown = ""
    for image in side.images:
        if image.end <= start or image.start >= end:
            continue
        shown += visible(side.text[start : max(image.start, start)])
        shown += f"[{image.label}]" if image.start >= start else ""
        start = min(image.end, end)
    return shown + visible(side.text[start:end])
