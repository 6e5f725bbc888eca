"""An inspection: sources are opened, a type is detected or taken as named, every row is examined once.

Single rows (for masks, pages and the lines of late findings) are fetched in a second pass that
converts only the blocks they are in.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fmtkit.columns.documents import Untokenized
from fmtkit.converting import certainty, detection, preparation, typenames
from fmtkit.converting.conversions import open_named
from fmtkit.converting.convert_options import RowOptions
from fmtkit.converting.engines import session
from fmtkit.converting.fits import Fit
from fmtkit.converting.ignoring import selected, without
from fmtkit.converting.preparation import Job
from fmtkit.converting.progress_bar import Watch
from fmtkit.converting.rendered_texts import rendered_as
from fmtkit.converting.suggestions import methods_for
from fmtkit.converting.task_work import check_places
from fmtkit.core.errors import ColumnMismatchError, OptionError, TokenizerError
from fmtkit.core.secret_keys import beginning
from fmtkit.core.tables import carried
from fmtkit.counting.visual_counts import visual_counter
from fmtkit.formats import registry
from fmtkit.inspection import rendered_text
from fmtkit.inspection.as_trained import masking_of, template_of
from fmtkit.inspection.box_columns import has_boxes
from fmtkit.inspection.collector import RowStatistics, Viewer
from fmtkit.inspection.cutting import LADDER
from fmtkit.inspection.findings import Finding
from fmtkit.inspection.first_pass import BlockViewer, look_at_rows
from fmtkit.inspection.inspect_options import InspectOptions
from fmtkit.inspection.masking import Masking
from fmtkit.inspection.reply_checks import ReplyChecks
from fmtkit.inspection.row_fetch import RowFetch
from fmtkit.inspection.row_observer import RowObserver
from fmtkit.inspection.score_columns import score_names
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
from fmtkit.inspection.type_guesses import Guess, command_as, common, of_fits
from fmtkit.rendering.row_templates import RowTemplate
from fmtkit.sources.blocks import Block
from fmtkit.sources.source import Source
from fmtkit.tokenizers import tokens
from fmtkit.tokenizers.tokens import Tokenizer

SPLIT_WORDS = {
    "train": "train",
    "training": "train",
    "test": "test",
    "valid": "validation",
    "validation": "validation",
    "val": "validation",
    "dev": "validation",
    "eval": "validation",
}


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


@dataclass(frozen=True)
class Opened:
    """The sources, and the types that their first rows fit."""

    sources: tuple[Source, ...]
    samples: tuple[list[Any], ...]
    fits: tuple[list[Fit], ...]
    guesses: tuple[tuple[Guess, ...], ...]


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
    for plugin in options.plugins:
        registry.load_plugin(plugin)
    tokenizer = tokens.load(options.tokenizer) if options.tokenizer else None
    # An observer asks for the rows alone: neither for other types that fit, nor for what lengths would cut.
    opened = _open(source, options, guesses=observer is None or options.type is None)
    best = common(opened.guesses)
    first_look = _first_look(opened, best, options.type)
    if options.type is None:
        found = _guessed(opened, options)
        if found is None:
            sources = _sources(opened, {})
            bare = make_bare_survey(opened.sources, sources, opened.samples, options)
            bare = replace(bare, **first_look, findings=_written(opened, options))
            return Inspection(_without_type(bare, opened))
        name, job = found
    else:
        name = typenames.read(options.type, functions=rows is not None)
        job = preparation.prepare(opened.sources, rows or _row_options(name, options))
    template, notes = template_of(name, job.table.name(), tokenizer, options)
    template = template.at(options.now) if template is not None else None
    masking = masking_of(name, options)
    masking = masking if masks is None else masks(masking)
    viewer = Viewer(
        tokenizer,
        template,
        ReplyChecks(tokenizer) if tokenizer else None,
        tuple(sorted(set(options.max_length))) or (LADDER if observer is None else ()),
        _stride(opened, options.sample),
        masking,
        masking.text_ends(job.table.name()),
        observer=observer,
    )
    if job.images is not None and tokenizer is not None and options.tokenizer:
        viewer, more = _with_images(viewer, options.tokenizer, tokenizer)
        notes = [*notes, *more]
    seen, fetch = look_at_rows(job, _block_viewer(job, opened, viewer), watch)
    shown = RowViewer(
        job.table.name(),
        tokenizer,
        RowTemplate(template) if template else None,
        masking,
    )
    survey = make_survey(Passed(seen.statistics, seen.ledger, fetch), viewer, shown, options)
    survey = replace(
        survey,
        **first_look,
        sources=_sources(opened, seen.progress.rows),
        bad_rows=seen.bad.rows(fetch),
        findings=worst_first((*survey.findings, *_written(opened, options))),
        notes=(*notes, *survey.notes),
    )
    if options.type is None:
        survey = _without_type(survey, opened)
    return Inspection(survey, fetch, shown, seen.statistics)


def _with_images(viewer: Viewer, folder: str, tokenizer: Tokenizer) -> tuple[Viewer, list[str]]:
    """Return what counts the tokens of images too, or a note on why they are not counted."""
    image = viewer.template.compiled.image if viewer.template is not None else None
    counter = visual_counter(folder, tokenizer, image)
    if isinstance(counter, str):
        return viewer, [f"lengths do not include images: {counter}"]
    return replace(viewer, visual=counter), []


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


def _block_viewer(job: Job, opened: Opened, viewer: Viewer) -> BlockViewer:
    return BlockViewer(
        viewer,
        splits=tuple(split_of(source.name) for source in job.sources),
        scores=tuple(
            tuple(n for n in score_names(sample) if carried(n) not in job.staged.names)
            for sample in opened.samples
        ),
        once=tuple(source.once for source in job.sources),
        boxes=tuple(job.images is not None and has_boxes(one) for one in opened.samples),
    )


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


def _guessed(opened: Opened, options: InspectOptions) -> tuple[typenames.TypeName, Job] | None:
    """Prepare the first guess that all sources share and that takes nothing but the rows."""
    shared: set[tuple[str, str]] | None = None
    for found in filter(None, opened.guesses):
        names = {(one.type, one.table) for one in found}
        shared = names if shared is None else shared & names
    candidates = next((found for found in opened.guesses if found), ())
    for one in (g for g in candidates if (g.type, g.table) in (shared or ())):
        name = typenames.read(one.type)
        chosen = replace(
            options,
            columns=dict(one.columns) | dict(options.columns),
            options={**one.options, **options.options},
        )
        others = methods_for(one.table) if options.method is None else ()
        for method in (options.method, *others):
            try:
                row_options = _row_options(name, replace(chosen, method=method))
                job = preparation.prepare(opened.sources, row_options)
            except (OptionError, ColumnMismatchError, TokenizerError):
                # A guess that needs more than the rows, or a decision of the user's: try the next one.
                continue
            if job.converter.table == one.table:
                return name, job
    return None


def _open(source: object, options: InspectOptions, *, guesses: bool) -> Opened:
    # An inspection reports no hash of its sources.
    sources = tuple(open_named(source, options, "never"))
    check_places(sources, None, options)
    whole = [preparation.sample_of(one) for one in sources]
    ignored = selected(options, whole).ignore
    samples = tuple(without(sample, ignored) for sample in whole)
    paths = [one.given for one in sources]
    if not guesses:
        nothing: tuple[list[Fit], ...] = tuple([] for _ in sources)
        return Opened(sources, samples, nothing, tuple(() for _ in sources))
    fits = tuple(detection.detect(sample, options.method) for sample in samples)
    found = tuple(
        of_fits(fitting, sample, options, paths=paths)
        for fitting, sample in zip(fits, samples, strict=True)
    )
    return Opened(sources, samples, fits, found)


def _row_options(name: typenames.TypeName, options: InspectOptions) -> RowOptions:
    named = [] if name.function else registry.named(name.source, options.method)
    is_text = any(converter.text for converter in named)
    # Tokens are made for one length; of all other tables the messages are examined.
    strided = any(issubclass(converter.makes, Untokenized) for converter in named)
    values = options.of_sources() | {"type": name.type}
    if strided:
        return RowOptions(**values, max_length=max(options.max_length, default=None))
    # Rendered texts are examined later.
    values |= {"tokenizer": None, "chat_template": None}
    return RowOptions(**values, as_=None if is_text else "messages")


def _stride(opened: Opened, sample: int | None) -> int:
    """Return the n for which every n-th row makes about this many rows."""
    if sample is None:
        return 1
    rows = 0.0
    for source in opened.sources:
        block = source.first_block()
        if block is not None:
            whole = (source.size or 0) / max(block.bytes_read, 1)
            rows += _rows_of(block) * max(whole, 1.0)
    return max(1, int(rows // sample))


def _rows_of(block: Block) -> int:
    return len(block.records()) + len(block.rejects)


def _sources(opened: Opened, rows: Mapping[int, int]) -> tuple[SourceSummary, ...]:
    return tuple(
        SourceSummary(source.name, source.kind, rows.get(i, 0), split_of(source.name), guesses)
        for i, (source, guesses) in enumerate(zip(opened.sources, opened.guesses, strict=True))
    )


def split_of(path: str) -> str:
    """Return the split that a source's name suggests, or an empty string."""
    words = re.split(r"[^a-z]+", path.rsplit("/", 1)[-1].lower())
    return next((SPLIT_WORDS[word] for word in words if word in SPLIT_WORDS), "")
