"""An inspection: sources are opened, a type is detected or taken as named, every row is examined once.

Single rows (for masks, pages and the lines of late findings) are fetched in a second pass that
converts only the blocks they are in.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from fmtkit.core.data_classes import dataclass
from fmtkit.core.secret_keys import beginning
from fmtkit.detection import certainty, detection
from fmtkit.detection.rendered_texts import rendered_as
from fmtkit.findings import rendered_text
from fmtkit.findings.findings import Finding
from fmtkit.inspection.collector import RowStatistics
from fmtkit.inspection.first_pass import look_at_rows
from fmtkit.inspection.reading import Opened, open_sources, reading_of, split_of
from fmtkit.inspection.row_fetch import RowFetch
from fmtkit.inspection.row_observer import RowObserver
from fmtkit.inspection.shown_rows import RowViewer
from fmtkit.inspection.survey_making import (
    RAW_SHOWN,
    Passed,
    finding_summary,
    make_bare_survey,
    make_survey,
    worst_first,
)
from fmtkit.inspection.survey_record import FindingSummary, SourceSummary, Survey
from fmtkit.inspection.type_guesses import Guess, command_as, common
from fmtkit.masks.masking import Masking
from fmtkit.options.convert_options import RowOptions
from fmtkit.options.inspect_options import InspectOptions
from fmtkit.running.progress_bar import Watch
from fmtkit.work.engines import session

FIRST_ROWS = 3
"""Rows of the source that a survey shows as they are."""


@dataclass(frozen=True)
class Inspection:
    """A survey, and how to look at its rows afterwards: None where no type fits."""

    survey: Survey
    fetch: RowFetch | None = None
    viewer: RowViewer | None = None
    statistics: RowStatistics | None = None


_OF_RENDERED = frozenset({rendered_text.CODE, "unread_turns"})
"""Findings that hold for every text that fmtkit rendered: its control tokens, and tools beside it."""


def run(
    source: object,
    options: InspectOptions,
    rows: RowOptions | None = None,
    masks: Callable[[Masking], Masking] | None = None,
    watch: Watch | None = None,
    observer: RowObserver | None = None,
) -> Inspection:
    """Inspect sources.

    `rows` says how they are converted if `options` do not say everything, as for a config's dataset;
    `masks` adds what a config says of masks, `watch` follows the rows that were read, and `observer`
    looks at each of them too.

    Raises:
        OptionError, UnknownNameError, ColumnMismatchError, TemplateError, TokenizerError: before
            the rows are read.
        SourceError: if a source cannot be read.
    """
    # A cluster is started once for all steps.
    with session():
        return _run(source, options, rows, masks, watch, observer)


def _run(
    source: object,
    options: InspectOptions,
    rows: RowOptions | None,
    masks: Callable[[Masking], Masking] | None,
    watch: Watch | None,
    observer: RowObserver | None,
) -> Inspection:
    # An observer asks for the rows alone: neither for other types that fit, nor for what lengths would cut.
    opened = open_sources(source, options, guesses=observer is None or options.type is None)
    best = common(opened.guesses)
    first_look = _first_look(opened, best, options.type)
    reading = reading_of(opened, options, rows, masks, observer)
    if reading is None:
        sources = _sources(opened, {})
        bare = make_bare_survey(opened.sources, sources, opened.samples, options)
        bare = replace(bare, **first_look, findings=_written(opened, options))
        return Inspection(_without_type(bare, opened))
    viewer, shown = reading.viewer.viewer, reading.shown
    seen, fetch = look_at_rows(reading.job, reading.viewer, watch)
    survey = make_survey(Passed(seen.statistics, seen.ledger, fetch), viewer, shown, options)
    survey = replace(
        survey,
        **first_look,
        sources=_sources(opened, seen.progress.rows),
        bad_rows=seen.bad.rows(fetch),
        findings=worst_first((*survey.findings, *_written(opened, options))),
        notes=(*reading.notes, *survey.notes),
    )
    if options.type is None:
        survey = _without_type(survey, opened)
    return Inspection(survey, fetch, shown, seen.statistics)


def _without_type(survey: Survey, opened: Opened) -> Survey:
    """Replace findings on rendered texts by a note of the type, if fmtkit rendered the texts.

    With a type named they would be rendered once more, and the findings are right.
    """
    rendered = _rendered_by(opened)
    if rendered is None:
        return survey
    findings = tuple(found for found in survey.findings if found.code not in _OF_RENDERED)
    note = f"fmtkit rendered these texts as {rendered}: train on them as they are"
    return replace(survey, findings=findings, notes=(*survey.notes, note))


def _written(opened: Opened, options: InspectOptions) -> tuple[FindingSummary, ...]:
    """Return the findings of texts that a template wrote, or that hold a transcript, of the first rows."""
    rows = [row for sample in opened.samples for row in sample]
    found = [*rendered_text.find(rows), *rendered_text.find_transcripts(rows)]
    paths = [source.given for source in opened.sources]
    made = []
    for one in found:
        finding = one
        if one.code == rendered_text.TRANSCRIPT:
            command = command_as("transcript", rows, paths=paths, options=options)
            also = {"command": command} if command else {}
            finding = replace(one, details={**one.details, **also})
        made.append(finding_summary(finding))
    return (*made, *_mixed(opened, options))


def _rendered_by(opened: Opened) -> str | None:
    """Return the type whose template fmtkit rendered all sources with, as their metadata says; else None."""
    types = {rendered_as(source) for source in opened.sources}
    return types.pop() if len(types) == 1 else None


def _mixed(opened: Opened, options: InspectOptions) -> tuple[FindingSummary, ...]:
    """Return the finding of sources whose first rows are of two layouts, with the share of each."""
    mixed = [
        detection.layouts(rows, fits)
        for rows, fits in zip(opened.samples, opened.fits, strict=True)
        if options.type is None
    ]
    found = next((types for types in mixed if types), None)
    if found is None:
        return ()
    details = {f"{fit.converter.name} {fit.converter.table}": share for fit, share in found}
    rows = sum(map(len, opened.samples))
    share = min(share for _, share in found)
    return (finding_summary(Finding("mixed_layouts", round(share * rows), share, (), details)),)


def _first_look(opened: Opened, best: Guess | None, chosen: str | None) -> dict[str, Any]:
    """Return what the first rows say: the best guess, how sure it is, its command, and the rows."""
    firsts = next((rows for rows in opened.samples if rows), [])[:FIRST_ROWS]
    texts = (json.dumps(row, ensure_ascii=False, default=_in_words) for row in firsts)
    shown = tuple(beginning(text, RAW_SHOWN) for text in texts)
    if best is None:
        return {"first_rows": shown, "guessed": chosen is None}
    sure = certainty.least([found[0].certainty for found in opened.guesses if found])
    at_first = all(not found or found[0].type == best.type for found in opened.guesses)
    return {
        "best_guess": best.type,
        "certainty": sure if at_first else certainty.UNSURE,
        "command": best.command if chosen is None else None,
        "readings": best.readings if chosen is None else (),
        "first_rows": shown,
        "guessed": chosen is None,
    }


def _in_words(value: object) -> str:
    """Return a value that JSON does not have: of bytes, such as those of an image, only their number."""
    return f"<{len(value):,} bytes>" if isinstance(value, bytes) else str(value)


def _sources(opened: Opened, rows: Mapping[int, int]) -> tuple[SourceSummary, ...]:
    return tuple(
        SourceSummary(source.name, source.kind, rows.get(i, 0), split_of(source.name), guesses)
        for i, (source, guesses) in enumerate(zip(opened.sources, opened.guesses, strict=True))
    )
