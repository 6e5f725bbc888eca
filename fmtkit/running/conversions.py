"""Conversion as a whole: sources in, files out, and the report that accounts for every row."""

import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from fmtkit.core.errors import (
    LimitError,
    NothingWrittenError,
    OptionError,
    ResumeError,
    WriteError,
)
from fmtkit.core.forks import refuse_lost_threads, refuse_other_process
from fmtkit.core.urls import ObjectPath
from fmtkit.formats import registry
from fmtkit.options.convert_options import (
    HASHED,
    ConvertOptions,
    RowOptions,
    SourceOptions,
)
from fmtkit.running.conversion_run import ConversionRun
from fmtkit.running.ledger import Ledger, why_ended
from fmtkit.running.pipeline import Piece, Progress, stream
from fmtkit.running.preparation import Job, prepare, prepare_all
from fmtkit.running.progress_bar import Watch
from fmtkit.running.run_report import Report, report_of
from fmtkit.running.task_work import check_places, results_of_rows
from fmtkit.sources.opening import open_sources
from fmtkit.sources.source import Source
from fmtkit.stages.target_stage import TargetStage
from fmtkit.work.engines import session
from fmtkit.writing import destinations, formats
from fmtkit.writing.common_schema import common_schema
from fmtkit.writing.hub_output import HubOutput
from fmtkit.writing.outputs import Destination, HubFolder, destination, hub_folder
from fmtkit.writing.splitting import (
    LowestHashes,
    Split,
    by_fraction,
    by_rows,
    frame_of,
    place_hashes,
    prompt_hashes,
)


def convert_to(
    sources: Sequence[object] | object,
    out: str | Path | ObjectPath,
    options: ConvertOptions,
    *,
    watch: Watch | None = None,
) -> Report:
    """Convert sources and write them to a file or a folder.

    Raises:
        OptionError, UnknownNameError, ColumnMismatchError: before anything is read or written.
        SourceError, WriteError: if a source cannot be read, or OUT cannot be written.
        LimitError: if more rows are bad than --max-errors or --on-error fail allows.
        NothingWrittenError: if not one row could be converted; quarantine and report are written.
    """
    options = replace(options, out=str(out))
    if options.type is None and options.to is None:
        # `prepare` raises the error that suggests a type and a command.
        for plugin in options.plugins:
            registry.load_plugin(plugin)
        prepare(open_named(sources, options), options)
    if not str(out):
        raise OptionError(
            "OUT is missing: give -o FILE.parquet, FILE.jsonl, FILE.arrow or a folder"
        )
    if place := hub_folder(out):
        return to_hub(place, options, lambda to, own: [convert_to(sources, to, own, watch=watch)])[
            0
        ]
    for plugin in options.plugins:
        registry.load_plugin(plugin)
    target = destination(out)
    opened = open_named(sources, options)
    refuse_output(target, (source.name for source in opened), options)
    check_places(opened, target, options)
    options = as_begun(options, [target])
    with session():
        jobs = prepare_all(opened, options)
        _check_lengths(jobs)
        if len(jobs) > 1 and target.format is None:
            raise OptionError(
                f"{jobs[0].sources[0].name} and {jobs[1].sources[0].name} make "
                f"{jobs[0].table.name()} in two forms: give a file as OUT, or convert them one by one"
            )
        jobs = [with_split(job, options) for job in jobs]
        return write_jobs(jobs, target, options, watch, limit=options.limit)


def _check_lengths(jobs: Sequence[Job]) -> None:
    """Raise OptionError where rows would be dropped, or not, by lengths without their images."""
    why = next((job.uncounted for job in jobs if job.uncounted), "")
    if why:
        raise OptionError(
            f"--max-length and --min-length count the tokens of images, and {why}; leave the length out"
        )


def as_begun(options: ConvertOptions, outputs: Sequence[Destination]) -> ConvertOptions:
    """Return the options with the time at which the run began that `--resume` continues."""
    begun = destinations.begun_at(outputs) if options.resume else None
    return options if begun is None else replace(options, begun=begun)


def to_hub(
    place: HubFolder,
    options: ConvertOptions,
    convert: Callable[[Path, ConvertOptions], list[Report]],
) -> list[Report]:
    """Convert into a local folder, and commit it to a dataset repository of the hub.

    Raises what `convert` raises, and what `HubOutput` raises before anything is read. What was converted is
    kept for --resume if the hub refuses it.
    """
    hub = HubOutput(place, overwrite=options.overwrite, resume=options.resume)
    hub.folder.parent.mkdir(parents=True, exist_ok=True)
    if hub.is_finished:
        return _there(hub, options, convert)
    try:
        reports = convert(hub.folder, replace(options, overwrite=not options.resume))
        address = hub.commit()
    except WriteError as error:
        kept = f"; what was converted is kept: --resume continues ({hub.folder})"
        raise type(error)(f"{error}{kept}") from error
    hub.forget()
    return _placed(hub, reports, address)


def _there(
    hub: HubOutput,
    options: ConvertOptions,
    convert: Callable[[Path, ConvertOptions], list[Report]],
) -> list[Report]:
    """Return the report of a run that is finished; raise ResumeError if this would be a different one."""
    try:
        hub.bring_report()
        return _placed(hub, convert(hub.folder, options))
    except ResumeError as error:
        raise ResumeError(str(error).replace(str(hub.folder), str(hub.place))) from error
    finally:
        hub.forget()


def _placed(hub: HubOutput, reports: Iterable[Report], *addresses: str) -> list[Report]:
    """Return reports whose files are named as they are on the hub."""
    own = str(hub.folder)
    return [
        Report(one.data, (*(f"{hub.place}{o.removeprefix(own)}" for o in one.outputs), *addresses))
        for one in reports
    ]


class RowStream:
    """The converted rows of sources, block by block in input order, with nothing written.

    The tables are those of `pipeline.stream`: whoever hands rows out uses `tables.final_rows`.
    Every row read so far is counted in `ledger`, the position in `progress`; `watch` follows both.

    Raises:
        OptionError, UnknownNameError, ColumnMismatchError, SourceError: as `convert_to`.
        LimitError: while it is read, if more rows are bad than --max-errors or --on-error fail allows.
    """

    def __init__(
        self,
        sources: Sequence[object] | object,
        options: RowOptions,
        watch: Watch | None = None,
    ) -> None:
        for plugin in options.plugins:
            registry.load_plugin(plugin)
        self.options, self.watch = options, watch
        opened = open_named(sources, options, hash="auto")
        check_places(opened, None, options)
        self.job = prepare(opened, options)
        self.ledger, self.progress = Ledger(), Progress()

    def __iter__(self) -> Iterator[Piece]:
        refuse_lost_threads()
        process = os.getpid()
        with closing(stream(self.job)) as pieces:
            for piece in pieces:
                self.ledger.add(piece, skipped=self.options.on_error == "skip")
                self.progress.add(piece)
                source = self.job.sources[piece.source].name
                reason = why_ended(self.options, self.ledger, source, piece.rejects)
                if reason is not None:
                    raise LimitError(reason)
                self.report_progress()
                yield piece
                refuse_other_process(process)
        self.ledger.check()

    def report_progress(self) -> None:
        """Report to `watch` how much has been read."""
        if self.watch is not None:
            self.watch(self.progress.bytes_of_sources(), self.job.size, self.ledger)

    def report(self) -> Report:
        """Return the report of what was read so far."""
        return report_of(self.job, self.ledger, self.progress)


def open_named(
    sources: Sequence[object] | object,
    options: SourceOptions | None = None,
    hash: str | None = None,
) -> list[Source]:
    """Open sources as options say, with the rows that --where takes; OptionError if there is none.

    They are hashed as `hash` says, or else the options; `auto` where these do not say it either.
    """
    options = options or SourceOptions()
    hashed = hash or (options.hash if isinstance(options, ConvertOptions) else "auto")
    opened = open_sources(sources, hashed=HASHED[hashed], delimiter=options.delimiter)
    if not opened:
        raise OptionError(
            "SOURCE is missing: give files, folders, globs, hf://datasets/ORG/NAME or -"
        )
    if options.where is None:
        return opened
    from fmtkit.reading.where_filter import keep_where

    return keep_where(opened, options.where)


def with_split(job: Job, options: ConvertOptions) -> Job:
    """Choose the validation rows; a number or share of rows costs a pass over the sources."""
    by = options.split_by if options.split is None else options.split.by
    if options.split is None and options.val_size is None:
        return job
    if by == "prompts":
        job = _keyed(job)
    if options.split is not None:
        return replace(job, split=options.split)
    size = options.val_size
    assert size is not None
    if by == "prompts" and isinstance(size, float):
        return replace(job, split=by_fraction(size, options.seed))
    return replace(job, split=splits_of([job], size, options.seed, by)[0])


def _keyed(job: Job) -> Job:
    """Return a job whose rows keep the text of their prompt, where their layout may not show it."""
    if not isinstance(job.text, TargetStage):
        return job
    stage = replace(job.text, keyed=True)
    return replace(job, text=stage, staged=stage.schema(job.canonical))


def splits_of(jobs: Sequence[Job], size: float, seed: int, by: str) -> list[Split]:
    """Split off rows of all jobs together: a share below 1, rounded up, or a number.

    By prompts these are whole prompts, which are held out of every job, until there are that many rows.
    Raises OptionError if that leaves none to train on.
    """
    if by == "prompts" and isinstance(size, int):
        held = LowestHashes(size)
        for job in jobs:
            for hashes in results_of_rows(_keyed(job), partial(_hash_prompts, seed=seed)):
                held.add(hashes)
        return [by_rows(held.counts, size, seed)] * len(jobs)
    found = []
    for number, job in enumerate(jobs):
        count = partial(_count_places, seed=seed, salt=number)
        if by == "prompts":
            job, count = _keyed(job), partial(_hash_prompts, seed=seed)  # noqa: PLW2901
        found += list(results_of_rows(job, count))
    hashes = np.concatenate(found) if found else np.empty(0, np.uint64)
    values, counts = np.unique(hashes, return_counts=True)
    wanted = size if isinstance(size, int) else math.ceil(size * len(hashes))
    rows = Counter(dict(zip(values.tolist(), counts.tolist(), strict=True)))
    split = by_rows(rows, wanted, seed)
    return [
        replace(split, by=by, salt=number if by == "rows" else 0) for number in range(len(jobs))
    ]


def _hash_prompts(
    table: pa.Table,
    places: np.ndarray,  # noqa: ARG001
    *,
    seed: int,
) -> list[int]:
    hashes: list[int] = prompt_hashes(frame_of(table), seed).tolist()
    return hashes


def _count_places(
    table: pa.Table,  # noqa: ARG001
    places: np.ndarray,
    *,
    seed: int,
    salt: int,
) -> list[int]:
    hashes: list[int] = place_hashes(places, seed, salt).tolist()
    return hashes


def write_jobs(
    jobs: Sequence[Job],
    out: Destination,
    options: ConvertOptions,
    watch: Watch | None,
    *,
    limit: int | None = None,
) -> Report:
    """Run jobs one after another into one sink; several only into a file, and of one table.

    `limit` is that of all jobs together, beside the limit of each.

    Raises OptionError where their tables differ, or a column holds different kinds of value.
    """
    if len({job.table for job in jobs}) > 1:
        made = ", ".join(f"{job.options.type} makes {job.table.name()}" for job in jobs)
        raise OptionError(f"one file holds one table, but {made}; give a folder as OUT")
    schema = common_schema(
        [job.stored_schema for job in jobs], [job.options.chosen_type for job in jobs]
    )
    run = ConversionRun(jobs, out, options, watch, schema, limit)
    try:
        return run.write()
    except (LimitError, NothingWrittenError):
        raise
    except BaseException as error:
        # The run stays resumable, also after a full disk or a lost mount.
        run.sink.suspend()
        if isinstance(error, KeyboardInterrupt):
            error.add_note(_what_is_left(out, options))
        raise


def _what_is_left(out: Destination, options: ConvertOptions) -> str:
    """Return what an interrupted run left, and what to do next."""
    if out.format is not None:
        return f"nothing was written to {out.path}"
    instead = " instead of --overwrite" if options.overwrite else ""
    return f"{out.path} is not finished: run the same command with --resume{instead} to continue"


def refuse_output(out: Destination, sources: Iterable[str], options: ConvertOptions) -> None:
    """Raise, before anything is read or written, if OUT or a file next to it may not be written.

    The sinks look again before they put anything in place.

    Raises:
        OptionError: if it is, or holds, a source, or --format cannot be written.
        OutputExistsError: if there is a file that fmtkit did not write, or may not replace.
    """
    if options.format is not None:
        formats.find(options.format)
    destinations.refuse(out, sources, overwrite=options.overwrite, resume=options.resume)
