"""Readings by values: what the values of columns and their relations say, where names do not.

What is read here is at most likely: a guess is sure only where names and values agree.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from fmtkit.detection import asked_readings, listed_replies, numbered_replies, spoken_lists
from fmtkit.detection.fits import TRUSTED, Fit, fit, has_path
from fmtkit.detection.value_columns import ValueColumns
from fmtkit.formats.registry import Converter
from fmtkit.reading.bound_column import Row

Proposal = tuple[str, Mapping[str, str], Mapping[str, str]]
"""The name of a type, its columns, and its options."""


def fits_of(
    converters: Sequence[Converter],
    sample: Sequence[Row],
    whole: Sequence[Row],
    kinds: tuple[bool, bool, bool] = (True, True, True),
) -> list[Fit]:
    """Return the fit of what the values say, of the strongest evidence.

    `whole` are all rows at hand; `kinds` says whether to look for verdicts on replies, for turns and logs,
    and for texts that answer others.
    """
    columns = ValueColumns(sample)
    sources = (_judged(columns), _spoken(columns, whole), asked_readings.proposals(columns))
    proposed = chain.from_iterable(s for s, wanted in zip(sources, kinds, strict=True) if wanted)
    for name, mapping, options in proposed:
        found = [
            fit(c, whole if c.rows_by else sample, mapping, options)
            for c in converters
            if c.name == name and mapping.keys() <= c.columns.keys()
            if c.required <= mapping.keys() | _own(c, sample)
        ]
        good = [one for one in found if not one.missing and one.sound >= TRUSTED]
        if good:
            return [replace(good[0], by_values=True)]
    return []


def _own(converter: Converter, sample: Sequence[Row]) -> set[str]:
    """Return the parameters of a type that rows have under their own names, or that rows make."""
    own = {"rows"} if converter.rows_by else set()
    paths = {name: tuple(converter.path(name).split(".")) for name in converter.columns}
    return own | {n for n, path in paths.items() if any(has_path(row, path) for row in sample)}


def _judged(columns: ValueColumns) -> Iterator[Proposal]:
    for mapping, options in numbered_replies.proposals(columns.sample):
        yield from _with_prompt(mapping, options, columns)
    for mapping, options in listed_replies.proposals(columns):
        yield from _with_prompt(mapping, options, columns)
    for mapping, options in listed_replies.by_key(columns):
        for name, read, told in _with_prompt(mapping, options, columns):
            if "response_3" not in read:
                yield name, read, told
                continue
            replies = {n: path for n, path in read.items() if n != "prompt"}
            yield "scored_replies", {"question": read["prompt"], **replies}, told


def _spoken(columns: ValueColumns, whole: Sequence[Row]) -> Iterator[Proposal]:
    yield from spoken_lists.proposals(columns)
    yield from spoken_lists.of_rows(whole)
    yield from asked_readings.logged(columns)


def _with_prompt(
    mapping: Mapping[str, str], options: Mapping[str, str], columns: ValueColumns
) -> Iterator[Proposal]:
    """Yield the replies with the prompt that is theirs, if there is one."""
    taken = [
        *mapping.values(),
        *(name for name in ("response_a", "response_b") if name in columns.paths),
    ]
    asked = columns.prompt(taken)
    if asked is not None:
        yield "judged_replies", {"prompt": asked, **mapping}, options
