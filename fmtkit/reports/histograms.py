"""Histograms in characters, on one line or as bars, as wide as the window."""

import math
from collections.abc import Sequence

from fmtkit.counting.lengths import Bin, Lengths

SPARKS = "▁▂▃▄▅▆▇█"
BARS = 14
"""Lines that a histogram has at most."""

EIGHTHS = "▏▎▍▌▋▊▉█"


def sparkline(figures: Lengths, width: int) -> str:
    """Return the histogram on one line; an empty bin is a space."""
    heights = [entry.rows for entry in merged(figures.bins, width)]
    most = max(heights)
    return "".join(_spark(height, most) for height in heights)


def _spark(height: int, most: int) -> str:
    if not height:
        return " "
    return SPARKS[min(len(SPARKS) - 1, height * len(SPARKS) // (most + 1))]


def bars(figures: Lengths, width: int, *, plain: bool = False) -> list[str]:
    """Return a line for each bin: its lengths, a bar, the number of rows and their share."""
    # Rice's rule: few rows in many bins show nothing.
    bins = merged(figures.bins, min(BARS, math.ceil(2 * figures.rows ** (1 / 3))))
    names = [f"{entry.start:,}-{entry.end - 1:,}" for entry in bins]
    counts = [f"{entry.rows:,} {entry.rows / figures.rows:6.1%}" for entry in bins]
    left, right = max(map(len, names)), max(map(len, counts))
    room = max(width - left - right - 4, 4)
    most = max(entry.rows for entry in bins)
    return [
        f"{name:>{left}}  {_bar(entry.rows / most, room, plain=plain):<{room}}  {count:>{right}}"
        for name, entry, count in zip(names, bins, counts, strict=True)
    ]


def _bar(share: float, room: int, *, plain: bool) -> str:
    if plain:
        return "#" * max(round(share * room), int(share > 0))
    eighths = max(round(share * room * 8), int(share > 0))
    return "█" * (eighths // 8) + (EIGHTHS[eighths % 8 - 1] if eighths % 8 else "")


def merged(bins: Sequence[Bin], most: int) -> list[Bin]:
    """Merge neighbouring bins until there are no more than a given number."""
    size = -(-len(bins) // most)
    groups = [bins[i : i + size] for i in range(0, len(bins), size)]
    return [Bin(g[0].start, g[-1].end, sum(entry.rows for entry in g)) for g in groups]
