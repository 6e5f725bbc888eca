"""Parts of a split, as a configuration writes them: `train[:500]`, `train[10%:20%]`."""

import re
from dataclasses import dataclass

from fmtkit.errors import OptionError

_SLICE = re.compile(r"^(?P<name>[\w.-]+)(?:\[(?P<from>\d+%?)?:(?P<to>\d+%?)?\])?$")


@dataclass(frozen=True)
class Slice:
    """A part of a split, as `train[10%:20%]` says it; bounds are rows or shares."""

    name: str
    start: float = 0.0
    stop: float | None = None
    is_share: bool = False

    @property
    def limit(self) -> int | None:
        """Return the number of first rows that this is, or None where it is something else."""
        return None if self.is_share or self.start or self.stop is None else int(self.stop)

    @property
    def is_whole(self) -> bool:
        """Tell whether nothing is cut."""
        return not self.start and self.stop is None

    def bounds(self, rows: int) -> tuple[int, int]:
        """Return the first row and the one after the last, of so many."""
        scale = rows if self.is_share else 1
        stop = rows if self.stop is None else min(round(self.stop * scale), rows)
        return min(round(self.start * scale), stop), stop


def parse_slice(text: str) -> Slice:
    """Read `train`, `train[:500]` or `train[10%:20%]`."""
    match = _SLICE.match(text.strip())
    if match is None:
        raise OptionError(
            f"split: {text!r}: write a name, or a slice such as train[:500] or train[10%:20%]"
        )
    bounds = [match["from"], match["to"]]
    shares = {bound.endswith("%") for bound in bounds if bound}
    if len(shares) > 1:
        raise OptionError(f"split: {text!r}: count both ends in rows, or both in percent")
    is_share = True in shares
    scale = 100.0 if is_share else 1.0
    start, stop = (float(b.rstrip("%")) / scale if b else None for b in bounds)
    if stop is not None and stop <= (start or 0.0):
        raise OptionError(f"split: {text!r}: ends where it begins, or before: no row is in it")
    return Slice(match["name"], start or 0.0, stop, is_share)
