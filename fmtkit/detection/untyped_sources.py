"""Sources without a named type: what they look like, and the commands for them that `inspect` prints too."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fmtkit.detection import detection
from fmtkit.detection.certainty import certainty, least
from fmtkit.detection.fits import Fit
from fmtkit.detection.no_type_advice import unfitting
from fmtkit.detection.other_commands import readings
from fmtkit.detection.suggestions import convert_command, why_not_to
from fmtkit.options.convert_options import RowOptions
from fmtkit.reading.bound_column import Row

if TYPE_CHECKING:
    from fmtkit.sources.source import Source

RIVALS = 3
"""Other tables that the rows may be read as, of which the line tells."""


def untyped(
    sources: Sequence["Source"],
    samples: Sequence[Sequence[Row]],
    given: RowOptions,
) -> str:
    """Return one line on what sources look like, how certain that is, and how to convert or validate them."""
    paths = [source.given for source in sources]
    sample = next((rows for rows in samples if rows), ())
    advice = "`fmtkit inspect SOURCE` shows what it holds"
    held = [(rows, detection.detect(rows, given.method)) for rows in samples if rows]
    fits = held[0][1] if held else []
    named = dict.fromkeys(_named(found) for _, found_of in held for found in found_of[:1])
    if len(named) > 1:
        return f"--type is missing, and the sources differ ({', '.join(named)}): one at a time"
    if not fits:
        return f"--type is missing, and {unfitting(paths, samples, sources, given)}; {advice}"
    mixed = detection.layouts(sample, fits)
    if mixed:
        both = ", ".join(f"{_named(found)} {share:.0%}" for found, share in mixed)
        return (
            f"--type is missing, and the rows are of two layouts ({both}): split them, or name one with "
            "--type, and the rows of the other are quarantined"
        )
    best = fits[0]
    plain = convert_command(paths, best, sample, given)
    sure = least([certainty(found_of, rows) for rows, found_of in held if found_of])
    message = f"--type is missing; it looks like {_named(best)} ({sure}: {best.reason})"
    rivals = _rivals(fits)
    also = f"; or {', '.join(rivals)}" if rivals else ""
    if plain is None:
        return f"{message}{also}; {why_not_to(best, given) or advice}"
    others = readings(paths, best, sample, given)
    more = "".join(f"; or with {one.meaning}: {one.command}" for one in others)
    return f"{message}{also}: {plain}{more}"


def _rivals(fits: Sequence[Fit]) -> list[str]:
    made = fits[0].converter.makes
    names = (_named(f) for f in fits[1:] if f.is_good and f.converter.makes is not made)
    return list(dict.fromkeys(names))[:RIVALS]


def _named(found: Fit) -> str:
    return f"{found.converter.name} -> {found.converter.table}"
