"""How the rows of an inspection are read: as the type that is named, or as the best guess of all sources."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fmtkit.columns.documents import Untokenized
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import ColumnMismatchError, OptionError, TokenizerError
from fmtkit.core.tables import carried
from fmtkit.counting.visual_counts import visual_counter
from fmtkit.detection import detection
from fmtkit.detection.fits import Fit
from fmtkit.detection.suggestions import methods_for
from fmtkit.findings.box_columns import has_boxes
from fmtkit.findings.cutting import LADDER
from fmtkit.findings.reply_checks import ReplyChecks
from fmtkit.findings.score_columns import score_names
from fmtkit.formats import registry, typenames
from fmtkit.inspection.as_trained import masking_of, template_of
from fmtkit.inspection.collector import Viewer
from fmtkit.inspection.first_pass import BlockViewer
from fmtkit.inspection.row_observer import RowObserver
from fmtkit.inspection.shown_rows import RowViewer
from fmtkit.inspection.type_guesses import Guess, of_fits
from fmtkit.masks.masking import Masking
from fmtkit.options.convert_options import RowOptions
from fmtkit.options.inspect_options import InspectOptions
from fmtkit.reading.ignoring import selected, without
from fmtkit.rendering.row_templates import RowTemplate
from fmtkit.running import preparation
from fmtkit.running.conversions import open_named
from fmtkit.running.preparation import Job
from fmtkit.running.task_work import check_places
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


@dataclass(frozen=True)
class Opened:
    """The sources, and the types that their first rows fit."""

    sources: tuple[Source, ...]
    samples: tuple[list[Any], ...]
    fits: tuple[list[Fit], ...]
    guesses: tuple[tuple[Guess, ...], ...]
    tokenizer: Tokenizer | None = None


@dataclass(frozen=True)
class Reading:
    """How rows are read, examined and shown."""

    job: Job
    type: str
    viewer: BlockViewer
    shown: RowViewer
    notes: tuple[str, ...]
    """What is missing, or is not counted."""


def read(
    source: object,
    options: InspectOptions,
    rows: RowOptions | None = None,
    masks: Callable[[Masking], Masking] | None = None,
) -> Reading:
    """Return how the rows of sources are read; of the rows only the first are looked at.

    Raises OptionError if no type fits, and what an inspection raises before it reads rows.
    """
    opened = open_sources(source, options, guesses=options.type is None)
    found = reading_of(opened, options, rows, masks)
    if found is None:
        names = ", ".join(one.name for one in opened.sources)
        raise OptionError(
            f"no type fits {names}; `fmtkit inspect` without --serve shows why, or name one (--type)"
        )
    return found


def reading_of(
    opened: Opened,
    options: InspectOptions,
    rows: RowOptions | None = None,
    masks: Callable[[Masking], Masking] | None = None,
    observer: RowObserver | None = None,
) -> Reading | None:
    """Return how the rows of opened sources are read; None if no type fits."""
    tokenizer = opened.tokenizer
    if options.type is None:
        found = _guessed(opened, options)
        if found is None:
            return None
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
    shown = RowViewer(
        job.table.name(), tokenizer, RowTemplate(template) if template else None, masking
    )
    return Reading(job, name.type, _block_viewer(job, opened, viewer), shown, tuple(notes))


def open_sources(source: object, options: InspectOptions, *, guesses: bool) -> Opened:
    """Open sources and look at their first rows; with `guesses` at the types that these fit."""
    for plugin in options.plugins:
        registry.load_plugin(plugin)
    tokenizer = tokens.load(options.tokenizer) if options.tokenizer else None
    # An inspection reports no hash of its sources.
    sources = tuple(open_named(source, options, "never"))
    check_places(sources, None, options)
    whole = [preparation.sample_of(one) for one in sources]
    ignored = selected(options, whole).ignore
    samples = tuple(without(sample, ignored) for sample in whole)
    paths = [one.given for one in sources]
    if not guesses:
        nothing: tuple[list[Fit], ...] = tuple([] for _ in sources)
        return Opened(sources, samples, nothing, tuple(() for _ in sources), tokenizer)
    fits = tuple(detection.detect(sample, options.method) for sample in samples)
    found = tuple(
        of_fits(fitting, sample, options, paths=paths)
        for fitting, sample in zip(fits, samples, strict=True)
    )
    return Opened(sources, samples, fits, found, tokenizer)


def _row_options(name: typenames.TypeName, options: InspectOptions) -> RowOptions:
    named = [] if name.function else registry.converters_named(name.source, options.method)
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


def _with_images(viewer: Viewer, folder: str, tokenizer: Tokenizer) -> tuple[Viewer, list[str]]:
    """Return what counts the tokens of images too, or a note on why they are not counted."""
    image = viewer.template.compiled.image if viewer.template is not None else None
    counter = visual_counter(folder, tokenizer, image)
    if isinstance(counter, str):
        return viewer, [f"lengths do not include images: {counter}"]
    return replace(viewer, visual=counter), []


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


def split_of(path: str) -> str:
    """Return the split that a source's name suggests, or an empty string."""
    words = re.split(r"[^a-z]+", path.rsplit("/", 1)[-1].lower())
    return next((SPLIT_WORDS[word] for word in words if word in SPLIT_WORDS), "")
