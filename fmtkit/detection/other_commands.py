"""Other commands for a source with an open column, each tried on its first rows."""

from collections.abc import Sequence

from fmtkit.core.data_classes import dataclass
from fmtkit.detection.fits import Fit
from fmtkit.detection.guessed_labels import label_fit
from fmtkit.detection.suggestions import as_command, convert_command, is_kept, options_for, to_of
from fmtkit.options.convert_options import SourceOptions
from fmtkit.reading.bound_column import Row


@dataclass(frozen=True)
class Reading:
    """A command that reads a source with an open column, and in words what it does with it."""

    meaning: str
    command: str


def readings(
    paths: Sequence[str], found: Fit, sample: Sequence[Row], given: SourceOptions
) -> tuple[Reading, ...]:
    """Return what may be done about the open columns of a fit: read as labels, carried through, ignored."""
    if not (found.open or found.unread) or any(path.startswith("<") for path in paths):
        return ()
    options = options_for(found, sample, given)
    if options is None:
        return ()
    made: list[Reading] = []
    for column in found.open:
        labeled = label_fit(found, column, sample)
        command = labeled and convert_command(paths, labeled[0], sample, given)
        if labeled and command:
            made.append(Reading(f"{column.name} as a label for KTO ({labeled[1]})", command))
    opened = (one.name for one in found.open)
    names = [n for n in dict.fromkeys([*found.unread, *opened]) if not is_kept(n, given)]
    if not any(c in name for name in names for c in ", \t\n"):
        # A layout (--to) has no place for columns of others; a key of messages is not carried through alone.
        held = {name for row in sample for name in row}
        carried = [name for name in names if name in held] if to_of(given) is None else []
        for flag, meaning, those in (
            ("keep", "carried through", carried),
            ("ignore", "not needed", names),
        ):
            if those:
                said = as_command(paths, given, options | {flag: (*options[flag], *those)})
                made.append(Reading(f"{','.join(those)} {meaning}", said))
    return tuple(made)
