"""A sequence as rich text: which tokens are trained, and where each of them ends."""

from rich.style import Style
from rich.text import Text

from fmtkit.core.escaping import visible
from fmtkit.inspection.shown_rows import ShownSide

KIND_STYLES = {
    "content": Style(color="green"),
    "reasoning": Style(color="magenta"),
    "tool_call": Style(color="blue"),
    "end": Style(color="cyan"),
    "header": Style(color="yellow"),
    "generation_prompt": Style(color="yellow"),
    "pad_image": Style(color="bright_black"),
    "tools": Style(color="blue"),
    "template": Style(color="red"),
}
"""The colour of trained tokens of each kind: those in yellow and red the model never writes."""
NAMES = {
    "content": "",
    "reasoning": "reasoning",
    "tool_call": "call",
    "end": "",
    "header": "header",
    "generation_prompt": "prompt",
    "pad_image": "image",
    "tools": "tools",
    "template": "template",
}
"""What a trained span says of its kind where there is no colour; content and its end need no word."""
BOLD = Style(bold=True)
UNDERLINED = Style(underline=True)
CONTEXT = Style(color="bright_black")
WINDOWS = (Style(bgcolor="grey23"), Style(bgcolor="grey30"))
"""The style of every second window, so that neighbours can be distinguished."""

OPEN, CLOSE = "⟦", "⟧"
"""Around trained spans where there is no colour."""

ANCHOR, END = "▸", "◂"
"""Before the first token of a window, and after tokens of which none follows in a window."""


MARK = Style(color="cyan", bold=True)


def side_text(side: ShownSide, *, plain: bool) -> Text:
    """Return a side's text, control characters shown; in a pipe trained spans are bracketed, by kind."""
    if not side.ids:
        return Text(_shown(side, 0, len(side.text)))
    kinds = kinds_of(side)
    trained = {number for start, end in side.trained for number in range(start, end)}
    anchors = {start for start, _ in side.windows}
    window_of = {
        number: window
        for window, (start, end) in enumerate(side.windows)
        for number in range(start, end)
    }
    text, at, inside = Text(), 0, ""
    for number, (_, end) in enumerate(side.offsets):
        is_trained, window = number in trained, window_of.get(number)
        kind = kinds[number] if is_trained else ""
        if plain and bool(kind) != bool(inside):
            text.append(OPEN if kind else CLOSE)
        if plain and kind and NAMES[kind] != NAMES.get(inside, ""):
            text.append(f"‹{NAMES[kind] or kind}›")
        if plain and window is None and number - 1 in window_of:
            text.append(END)
        if number in anchors:
            text.append(ANCHOR, None if plain else MARK)
        inside = kind
        if end > at:
            style = KIND_STYLES[kind] + BOLD if is_trained else CONTEXT
            style = style + UNDERLINED if number % 2 else style
            style = style if window is None else style + WINDOWS[window % 2]
            text.append(_shown(side, at, end), None if plain else style)
            at = end
    text.append(CLOSE if plain and inside else "")
    text.append(END if plain and len(side.ids) - 1 in window_of else "")
    text.append(_shown(side, at, len(side.text)))
    return text


def kinds_of(side: ShownSide) -> list[str]:
    """Return the kind of each token; `content` where nothing is known."""
    kinds: list[str] = []
    for stretch in side.kinds:
        kinds += [stretch.kind] * (stretch.end - len(kinds))
    return kinds or ["content"] * len(side.ids)


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
