"""Certainty: whether a guess is sure, likely or unsure."""

from collections.abc import Sequence

from fmtkit.columns.transcripts import is_in_turn
from fmtkit.detection.contradicted_fits import asks_conversations, holds_lists, is_on_another_scale
from fmtkit.detection.fits import NAMED, PLAIN, UNKNOWN, Fit, renamed_likeness
from fmtkit.reading.bound_column import Row

SURE, LIKELY, UNSURE = "sure", "likely", "unsure"
SHAPED = 0.75
"""Share of rows whose columns have the right kinds of value, below which rows are of another type too."""
NEAR = 0.6
"""Likeness of names from which on a reading by other names can be likely: they mean the same."""


def certainty(fits: Sequence[Fit], sample: Sequence[Row]) -> str:
    """Return how certain the first of several fits is: sure, likely or unsure.

    Never sure while a column is open, or a turn may hold a whole conversation; a reading by other names is
    at most likely.
    """
    found = _certainty(fits)
    best = fits[0]
    are_lists = holds_lists(best, sample, lambda item: isinstance(item, str))
    if (
        best.assumed
        or are_lists
        or asks_conversations(best, sample)
        or is_on_another_scale(best, sample)
    ):
        return UNSURE
    return LIKELY if found == SURE and is_in_turn(sample) else found


def least(certainties: Sequence[str]) -> str:
    """Return the certainty of a guess on several sources: that of the least certain one."""
    return max(certainties, key=(SURE, LIKELY, UNSURE).index)


def _certainty(fits: Sequence[Fit]) -> str:
    best, *others = fits
    if not best.is_good or best.is_narrow or best.is_written or best.shaped < SHAPED:
        return UNSURE
    if best.refused > 1 - SHAPED or best.by_values:
        return UNSURE
    if any(one.is_grave for one in best.open) or best.speakers == UNKNOWN:
        return UNSURE
    if best.is_renamed and (best.open or any(map(str.isdigit, best.options.values()))):
        # That 1 is the second of two, and not the first or a yes, is an assumption.
        return UNSURE
    if best.has_threshold:
        return UNSURE
    if best.is_renamed and (best.sound < PLAIN or renamed_likeness(best.mapping) < NEAR):
        return UNSURE
    rivals = [f for f in others if f.is_good and not (f.is_narrow or f.is_renamed or f.assumed)]
    tables = {best.converter.table, *(f.converter.table for f in rivals)}
    is_sure = len(tables) == 1 and not (best.open or best.is_renamed or best.speakers != NAMED)
    return SURE if is_sure else LIKELY
