"""The work of one task on a worker: read its sources, convert, and write its own shards."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OptionError
from fmtkit.core.urls import ObjectPath
from fmtkit.options.convert_options import SourceOptions
from fmtkit.running.ledger import Ledger
from fmtkit.running.pipeline import Piece, Progress, stream
from fmtkit.running.preparation import AnySource, Job
from fmtkit.sources.made_source import MadeSource
from fmtkit.sources.parts import blocks_of_part
from fmtkit.sources.raw import RANGE_BYTES, Location, digest_of_range, folded, ranges_of
from fmtkit.sources.source import Source
from fmtkit.work.engine_choice import engine_of
from fmtkit.work.engines import Inline, TaskLostError
from fmtkit.work.tasks import MAX_PARTS, Task, can_travel, tasks_of
from fmtkit.writing import quarantine
from fmtkit.writing.outputs import Destination
from fmtkit.writing.splitting import Encoding
from fmtkit.writing.task_output import SHARD_BYTES, Counts, Place, TaskRecord, TaskWriter, Trace

T = TypeVar("T")


@dataclass(frozen=True)
class TaskWork:
    """Writes a task; it can be pickled."""

    job: Job
    encode: Encoding
    place: Place
    metadata: Mapping[str, str]
    shard_bytes: int = SHARD_BYTES

    def __call__(self, task: Task) -> TaskRecord:
        """Read, convert and write a task; a failed task leaves nothing that counts."""
        writer = TaskWriter(
            self.place, task.number, self.encode.format, self.metadata, self.shard_bytes
        )
        try:
            return self._write(limited(self.job, task), task, writer)
        except BaseException:
            writer.discard()
            raise

    def _write(self, job: Job, task: Task, writer: TaskWriter) -> TaskRecord:
        options = job.options
        ledger, progress = Ledger(), Progress()
        trace: list[Trace] = []
        is_traced = options.max_errors is not None or options.on_error == "fail"
        with closing(stream(job, engine=Inline(), encode=self.encode, tasks=[task])) as pieces:
            for piece in pieces:
                ledger.add(piece, skipped=options.on_error == "skip")
                progress.add(piece)
                if options.on_error != "skip":
                    name = job.sources[piece.source].name
                    writer.quarantine(piece.source, quarantine.encode(name, piece.rejects))
                for split, encoded in piece.result:
                    writer.write(encoded, split)
                if piece.resumable:
                    writer.end_block()
                if is_traced:
                    counts = counts_of(ledger, progress)
                    trace.append(_trace(piece, counts, writer.bad_bytes))
                if options.on_error == "fail" and piece.rejects:
                    break
        return writer.finish(counts_of(ledger, progress), trace)


@dataclass(frozen=True)
class RowCount:
    """Counts the rows of a task up to a limit; it can be pickled."""

    job: Job

    def __call__(self, task: Task) -> int:
        """Read a task, and convert nothing."""
        count, limit = 0, self.job.options.limit
        for index, part in task.parts:
            for block in blocks_of_part(self.job.sources[index], part):
                if limit is not None and count >= limit:
                    return count
                count += block.count
        return count


def limited_tasks(job: Job) -> list[Task]:
    """Return the tasks of a job; with --limit those up to its last row, for which rows are counted first."""
    tasks, left = tasks_of(job.sources), job.options.limit
    if left is None:
        return tasks
    kept = []
    counts = engine_of(job.options).map(RowCount(job), iter(tasks))
    with closing(naming_lost_tasks(counts, job.sources)) as counted:
        for task, rows in zip(tasks, counted, strict=False):
            kept.append(replace(task, rows=left) if rows >= left else task)
            left -= rows
            if left <= 0:
                break
    return kept


def limited(job: Job, task: Task) -> Job:
    """Return the job for a task: --limit is the task's own."""
    if task.rows == job.options.limit:
        return job
    return replace(job, options=replace(job.options, limit=task.rows))


def works_by_tasks(job: Job) -> bool:
    """Return whether workers read the sources of a job by themselves."""
    return job.options.engine == "ray" and all(map(can_travel, job.sources))


def counts_of(ledger: Ledger, progress: Progress) -> Counts:
    """Return what was read of a task."""
    lines = {source: line - 1 for source, line in progress.lines.items()}
    read = dict(progress.rows), lines, dict(progress.bytes)
    return Counts(ledger.as_dict(), ledger.by_tier(), *read)


def ledger_of(counts: Counts) -> Ledger:
    """Return the ledger of what was read of a task."""
    return Ledger.from_dict(counts.ledger, counts.tiers)


def _trace(piece: Piece, counts: Counts, bad_bytes: int) -> Trace:
    first = next(iter(piece.rejects), None)
    reject = None if first is None else (first.row, first.line, first.code, first.message)
    return Trace(piece.source, counts, bad_bytes, reject)


@dataclass(frozen=True)
class RowResults:
    """Collects the results of `encode` for the rows of a task, as numbers (uint64); it can be pickled."""

    job: Job
    encode: Callable[[pa.Table, np.ndarray], list[int]]

    def __call__(self, task: Task) -> np.ndarray:
        """Read and convert a task, and write nothing."""
        job = limited(self.job, task)
        pieces = stream(job, engine=Inline(), encode=self.encode, tasks=[task])
        return _numbers(number for piece in pieces for number in piece.result)


def results_of_rows(
    job: Job, encode: Callable[[pa.Table, np.ndarray], list[int]]
) -> Iterator[np.ndarray]:
    """Yield the results of `encode` for the rows of a job (uint64), in order; nothing is written.

    Workers read the sources that they can reach.
    """
    if works_by_tasks(job):
        mapped = engine_of(job.options).map(RowResults(job, encode), iter(limited_tasks(job)))
        yield from naming_lost_tasks(mapped, job.sources)
        return
    for source in job.sources:
        source.keep()
    for piece in stream(job, encode=encode):
        yield _numbers(piece.result)


def _numbers(found: Iterable[int]) -> np.ndarray:
    return np.fromiter(found, dtype=np.uint64)


def naming_lost_tasks(
    mapped: Iterator[T], sources: Sequence[AnySource]
) -> Generator[T, None, None]:
    """Map over tasks; SourceError names the one that crashes its worker."""
    try:
        yield from mapped
    except TaskLostError as error:
        raise error.named(error.task.named(sources)) from error


@dataclass(frozen=True)
class HashTask:
    """Ranges of sources whose bytes are hashed: index of the source, start and end."""

    ranges: tuple[tuple[int, int, int], ...]

    def named(self, sources: Sequence[AnySource]) -> str:
        """Return what is read, for errors."""
        index, start, end = self.ranges[0]
        return f"{sources[index].name}, bytes {start} to {end}"


@dataclass(frozen=True)
class RangeDigests:
    """Hashes ranges of sources; it can be pickled."""

    locations: tuple[Location, ...]

    def __call__(self, task: HashTask) -> list[bytes]:
        """Return the digest of each range."""
        return [
            digest_of_range(self.locations[index], start, end) for index, start, end in task.ranges
        ]


def hash_sources(sources: Sequence[AnySource], options: SourceOptions) -> None:
    """Let an engine compute the wanted hashes of files, range by range.

    Other sources are hashed by the process that needs the hash: streams as they pass, tables in memory.
    """
    opened = [s.source if isinstance(s, MadeSource) else s for s in sources]
    files = [s for s in opened if s.hashed and can_travel(s) and _ranged(s) is not None]
    if not files:
        return
    locations = tuple(filter(None, map(_ranged, files)))
    engine = engine_of(options)
    tasks, held, size = list[HashTask](), list[tuple[int, int, int]](), 0
    for index, location in enumerate(locations):
        for start, end in ranges_of(location.size or 0):
            if held and (size + end - start > RANGE_BYTES or len(held) == MAX_PARTS):
                tasks.append(HashTask(tuple(held)))
                held, size = [], 0
            held.append((index, start, end))
            size += end - start
    tasks.append(HashTask(tuple(held)))
    digests: list[list[bytes]] = [[] for _ in files]
    with closing(
        naming_lost_tasks(engine.map(RangeDigests(locations), iter(tasks)), files)
    ) as found:
        for task, made in zip(tasks, found, strict=True):
            for (index, _, _), digest in zip(task.ranges, made, strict=True):
                digests[index].append(digest)
    for location, own in zip(locations, digests, strict=True):
        location.digest = folded(own)


def _ranged(source: Source) -> Location | None:
    """Return the file of a source that is not hashed yet, and may be read from anywhere."""
    location = getattr(source.reader, "location", None)
    if not isinstance(location, Location) or location.size is None or not location.seeks:
        return None
    return location if location.digest is None else None


def check_places(sources: Sequence[Any], out: Destination | None, options: Any) -> None:
    """Raise OptionError for a local path that the machines at --ray-address need not see."""
    if options.ray_address is None or options.shared_filesystem:
        return
    local = [s.name for s in sources if isinstance(s, Source) and _is_local(s)]
    if out is not None and not isinstance(out.path, ObjectPath):
        local.append(str(out.path))
    if local:
        raise OptionError(
            f"--ray-address: {local[0]} is a path of this machine; give URLs, or say with "
            "--shared-filesystem that the cluster's machines see the same files under it"
        )


def _is_local(source: Source) -> bool:
    location = getattr(source.reader, "location", None)
    return location is not None and location.path is not None and not source.once
