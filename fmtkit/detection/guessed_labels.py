"""Columns under any name that say which replies are good: read as the labels of KTO."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fmtkit.columns.kinds import FlagKind
from fmtkit.columns.known_words import BAD, GOOD, NEGATIONS, PRAISE, TRUTH
from fmtkit.columns.strict_kinds import mark_of
from fmtkit.core.tables import Completion, Conversation, Unpaired
from fmtkit.detection.fits import PLAIN, TRUSTED, Fit, fit
from fmtkit.detection.near_misses import asks
from fmtkit.detection.unread_columns import LABEL, SCALE, SCORE, OpenColumn
from fmtkit.formats import registry
from fmtkit.formats.registry import Converter
from fmtkit.formats.type_options import LABEL_OPTION
from fmtkit.reading.bound_column import Row
from fmtkit.reading.lost_turns import words_of


def with_label_fit(fits: Sequence[Fit], sample: Sequence[Row]) -> list[Fit]:
    """Return the fits; if the values of a column say good and bad, one that reads it as labels comes first.

    Only if the best fit makes completions or conversations, and this is its one unread column that matters
    (`is_grave`). The values 1 and -1 count too. Yes and no count as good and bad only if the column's name
    is praise: `accepted_by_user`. An object of several flags is no label; it stays unread, so that the guess
    is not sure.
    """
    best = next(iter(fits), None)
    if best is None or best.converter.makes not in (Completion, Conversation):
        return [*fits]
    grave = [one for one in best.open if one.is_grave and not _are_flags(one.name, sample)]
    if len(grave) != 1 or any("." in one.name or "[" in one.name for one in grave):
        return [*fits]
    [column] = grave
    values = (row.get(column.name) for row in sample)
    marks = {mark_of(value).lower() for value in values if value not in (None, "")}
    are_labels = marks <= (GOOD | BAD) - (TRUTH if not _praises(column.name) else set())
    are_labels = are_labels and bool(marks & GOOD) and bool(marks & BAD)
    labeled = label_fit(best, column, sample) if are_labels or marks == {"1", "-1"} else None
    return [labeled[0], *fits] if labeled else [*fits]


def _are_flags(name: str, sample: Sequence[Row]) -> bool:
    """Return whether a column has an object of several flags in each row: `{"violence": false, ...}`."""
    values = [row.get(name) for row in sample]
    return bool(values) and all(
        isinstance(value, Mapping)
        and len(value) > 1
        and all(isinstance(flag, bool) for flag in value.values())
        for value in values
    )


def _praises(name: str) -> bool:
    """Return whether a name says that yes is good: `accepted_by_user` does, `not_accepted` does not.

    A name about the prompt says nothing about the reply: `prompt_is_safe`.
    """
    said = {*words_of(name)}
    return bool(said & PRAISE) and not said & (NEGATIONS | {"prompt"}) and not asks(name)


def label_fit(found: Fit, column: OpenColumn, sample: Sequence[Row]) -> tuple[Fit, str] | None:
    """Return the fit that reads an unread column as the rows' label, and in words which values are good."""
    labels = _labels(column, sample) if column.could_be in (LABEL, SCORE) else None
    labeled = _fit_with_labels(found, column.name, labels[0], sample) if labels else None
    return (labeled, labels[1]) if labels and labeled else None


def _labels(column: OpenColumn, sample: Sequence[Row]) -> tuple[Mapping[str, bool], str] | None:
    """Return whether each value is good (empty: true or 1 is) and the rule in words; None if none applies.

    Of two unknown values the first in order is assumed to be the good one.
    """
    values = [row[column.name] for row in sample if row.get(column.name) not in (None, "")]
    if not values or not all(isinstance(v, str | int | float) for v in values):
        return None
    marks = sorted({mark_of(value) for value in values})
    if all(isinstance(value, bool) for value in values):
        return {}, "true is good"
    if len(marks) > SCALE:
        return None
    numbers = {mark: float(mark) for mark in marks if _is_number(mark)}
    if len(numbers) == len(marks):
        return _by_size(numbers)
    good = {mark: mark.lower() in GOOD for mark in marks}
    if all((mark.lower() in BAD) != is_good for mark, is_good in good.items()):
        names = ", ".join(mark for mark in marks if good[mark])
        return good, f"good: {names}" if names else "none of these is good"
    if len(marks) == 2:
        return {marks[0]: True, marks[1]: False}, f"if {marks[0]} is the good one"
    return None


def _by_size(numbers: Mapping[str, float]) -> tuple[Mapping[str, bool], str]:
    most, least = max(numbers.values()), min(numbers.values())
    if set(numbers.values()) <= {0.0, 1.0}:
        return {}, "1 is good"
    middle = 0.0 if least < 0 else next((m for top, m in _SCALES if most <= top), most / 2)
    return {mark: n > middle for mark, n in numbers.items()}, f"above {middle:g} is good"


_SCALES = ((1.0, 0.5), (2.0, 1.0), (5.0, 3.0), (10.0, 5.0), (100.0, 50.0))
"""Pairs: the greatest value of a common scale, and the value above which a reply is good."""


def _is_number(mark: str) -> bool:
    try:
        float(mark)
    except ValueError:
        return False
    return True


def _fit_with_labels(
    found: Fit, column: str, labels: Mapping[str, bool], sample: Sequence[Row]
) -> Fit | None:
    """Return a fit that reads the labelled rows with their labels; None if no type can, or too few are."""
    label_types = [
        c for c in registry.converters() if c.makes is Unpaired and c.name != "passthrough"
    ]
    judged = [row for row in sample if row.get(column) not in (None, "")]
    if len(judged) < TRUSTED * len(sample):
        return None
    label_types.sort(key=lambda c: (c.name != found.converter.name, -len(c.aliases), c.name))
    label_options: dict[str, Any] = (
        {LABEL_OPTION: json.dumps(labels, ensure_ascii=False)} if labels else {}
    )
    for converter in label_types:
        flag = next((n for n, k in converter.columns.items() if isinstance(k, FlagKind)), None)
        flag = "label" if "label" in converter.columns else flag
        if flag is None or not _reads_the_same(converter, found, sample):
            continue
        mapping = {n: p for n, p in found.mapping.items() if n in converter.columns}
        tried = fit(
            converter, judged, {**mapping, flag: column}, {**found.options, **label_options}
        )
        if not tried.missing and tried.sound >= PLAIN and not tried.unread:
            return replace(tried, open=tuple(one for one in found.open if one.name != column))
    return None


def _reads_the_same(converter: Converter, found: Fit, sample: Sequence[Row]) -> bool:
    there = {name for row in sample for name in row}
    return all(
        name in converter.columns or found.converter.path(name).partition(".")[0] not in there
        for name in found.converter.columns
        if name not in found.mapping
    ) and all(name in converter.columns for name in found.mapping)
