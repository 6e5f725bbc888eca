"""Sources without a named type: what they look like, and the commands for them that `inspect` prints too."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fmtkit.converting import detection
from fmtkit.converting.bound_column import Row
from fmtkit.converting.detection import Fit, certainty
from fmtkit.converting.readings import readings
from fmtkit.converting.suggestions import convert_command
from fmtkit.converting.unfitting import unfitting

if TYPE_CHECKING:
    from fmtkit.sources.opening import Source

RIVALS = 3
"""Other tables that the rows may be read as, of which the line tells."""


def untyped(
    sources: Sequence["Source"],
    samples: Sequence[Sequence[Row]],
    method: str | None,
    delimiter: str | None,
    command: str = "convert",
) -> str:
    """Return one line on what sources look like, how certain that is, and how to convert or validate them."""
    paths = [source.given for source in sources]
    sample = next((rows for rows in samples if rows), ())
    fits = detection.detect(sample, method)
    advice = "`fmtkit inspect SOURCE` shows what it holds"
    looks = (detection.detect(rows, method)[:1] for rows in samples if rows)
    named = dict.fromkeys(_named(found) for best in looks for found in best)
    if len(named) > 1:
        return f"--type is missing, and the sources differ ({', '.join(named)}): one at a time"
    if not fits:
        return f"--type is missing, and {unfitting(paths, samples, sources)}; {advice}"
    mixed = detection.layouts(sample, fits)
    if mixed:
        both = ", ".join(f"{_named(found)} {share:.0%}" for found, share in mixed)
        return (
            f"--type is missing, and the rows are of two layouts ({both}): split them, or name one with "
            "--type, and the rows of the other are quarantined"
        )
    best = fits[0]
    plain = convert_command(paths, best, sample, delimiter=delimiter, command=command)
    message = f"--type is missing; it looks like {_named(best)} ({certainty(fits)}: {best.reason})"
    rivals = _rivals(fits)
    also = f"; or {', '.join(rivals)}" if rivals else ""
    if plain is None:
        return f"{message}{also}; {advice}"
    others = readings(paths, best, sample, delimiter, command)
    more = "".join(f"; or with {one.meaning}: {one.command}" for one in others)
    return f"{message}{also}: {plain}{more}"


def _rivals(fits: Sequence[Fit]) -> list[str]:
    made = fits[0].converter.makes
    names = (_named(f) for f in fits[1:] if f.is_good and f.converter.makes is not made)
    return list(dict.fromkeys(names))[:RIVALS]


def _named(found: Fit) -> str:
    return f"{found.converter.name} -> {found.converter.table}"
