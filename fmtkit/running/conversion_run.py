"""Runs a conversion: writes its pieces to a sink, and accounts for every row in the ledger."""

import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from hashlib import sha256
from pathlib import Path, PurePath
from typing import Any

import pyarrow as pa

from fmtkit.core.atomic import Written
from fmtkit.core.codes import Reject
from fmtkit.core.distributions import own_version
from fmtkit.core.errors import LimitError, NothingWrittenError, OptionError
from fmtkit.options.convert_options import ConvertOptions, RowOptions
from fmtkit.rows.user_functions import TransformedSource
from fmtkit.running.ledger import Ledger, why_ended
from fmtkit.running.pipeline import Piece, Progress, stream
from fmtkit.running.preparation import AnySource, Job, total_size
from fmtkit.running.progress_bar import Watch
from fmtkit.running.run_report import Report, report_of, sources_of
from fmtkit.running.task_work import (
    TaskWork,
    hash_sources,
    ledger_of,
    limited_tasks,
    naming_lost_tasks,
    works_by_tasks,
)
from fmtkit.sources.made_source import MadeSource
from fmtkit.sources.raw import Location
from fmtkit.work.engine_choice import engine_of
from fmtkit.work.engines import Cluster, Threads
from fmtkit.work.tasks import IN_PROCESS, Task
from fmtkit.writing import destinations, journal, quarantine, sinks
from fmtkit.writing.dataset_card import card_of
from fmtkit.writing.destinations import EarlierRun
from fmtkit.writing.folder_sink import FolderSink
from fmtkit.writing.formats import compression_of
from fmtkit.writing.journal import DATE
from fmtkit.writing.object_sinks import ObjectFolderSink
from fmtkit.writing.outputs import Destination
from fmtkit.writing.sinks import Closing, Sink
from fmtkit.writing.splitting import Encoding, Split
from fmtkit.writing.task_output import Counts, TaskRecord, Trace

READERS = 16
"""How many records of an earlier run are read at a time."""


class ConversionRun:
    """The run of one conversion."""

    def __init__(
        self,
        jobs: Sequence[Job],
        out: Destination,
        options: ConvertOptions,
        watch: Watch | None,
        schema: pa.Schema,
        limit: int | None = None,
    ) -> None:
        self.jobs, self.options, self.watch, self.schema = jobs, options, watch, schema
        self.limit = limit
        self.job = jobs[0]
        self.finished_sources: list[dict[str, Any]] = []
        self.finished_bytes = 0
        self.begun = time.monotonic()
        self.is_folder, self.out = out.format is None, out.path
        self.complete: Report | None = None
        self.format = _format_of(self.job, options.format or out.format)
        self.compression = compression_of(self.format, options.compression)
        self.ledger = Ledger()
        self.progress = Progress()
        self._first_bad = ""
        """Where the first bad row is that this run converted, and what is wrong with it."""
        self._first_open = 0
        """The first source that a checkpoint does not cover completely."""
        self._size = total_size(job.size for job in jobs)
        if not self.is_folder and options.engine == "ray":
            raise OptionError(f"{self.out} is one file; --engine ray writes a folder, OUT/")
        if not self.is_folder and self.job.split is not None:
            raise OptionError(
                f"{self.out} is one file and holds one split; give a folder as OUT with --val-size"
            )
        self._open(out)

    def _open(self, out: Destination) -> None:
        """Start the output, or continue a folder from the state that an interrupted run left.

        A single file is written atomically, so that an interrupted run leaves no part of it.
        """
        # Only for a folder: the sources of a single file are hashed as they are read.
        if self.is_folder:
            hash_sources([source for job in self.jobs for source in job.sources], self.options)
        fingerprint = self._fingerprint() if self.is_folder else {}
        found = destinations.find(out, fingerprint) if self.options.resume else EarlierRun()
        if found.report is not None:
            # Job scripts always pass --resume: a finished run is not an error.
            if found.fingerprint is not None:
                journal.check_fingerprint(self.out, found.fingerprint, self._fingerprint())
            self.complete = self._found(found.report)
            return
        engine = engine_of(self.options)
        if isinstance(engine, Cluster):
            # Before the output is created, so that an unreachable cluster leaves none.
            engine.reach(*(replace(job, sources=()) for job in self.jobs if job.code))
        self.sink: Sink = destinations.open_sink(
            out,
            self.format,
            fingerprint,
            overwrite=self.options.overwrite,
            point=found.point,
        )
        if found.point is not None and found.point.state:
            state = found.point.state
            self.ledger = Ledger.from_dict(state["ledger"], state["tiers"])
            self.progress = Progress.from_dict(state["progress"])

    def _found(self, report: Mapping[str, Any]) -> Report:
        """Return the report of an existing, finished run."""
        folder = self.out if self.is_folder else self.out.parent
        names = [
            file["path"] for file in report.get("files", ()) if file["path"] != "manifest.json"
        ]
        return Report(report, tuple(str(folder / name) for name in names))

    def _fingerprint(self) -> dict[str, Any]:
        return fingerprint_of(self.jobs, self.options) | _date_of(self.jobs)

    def write(self) -> Report:
        if self.complete is not None:
            return self.complete
        for number, job in enumerate(self.jobs):
            if number:
                self.finished_sources += sources_of(self.job, self.progress)
                self.finished_bytes += self.progress.bytes_of_sources()
                self.job, self.progress = job, Progress()
            if self.limit is not None and number:
                left = self.limit - self.ledger.rows_read
                if left <= 0:
                    continue
                self.job = replace(job, options=replace(job.options, limit=left))
            self._write_job()
        self.ledger.check()
        if not self.ledger.rows_written:
            self._reject()
            raise NothingWrittenError(self._nothing(), self.sink.report_path)
        closing = Closing(self._final, self._metadata(), self._manifest(), self._beside(), card_of)
        written = self.sink.finish(closing)
        return self._finished(written)

    def _write_job(self) -> None:
        """Stream a job's pieces into the sink."""
        encode = Encoding(self.job.split, self.format, self.compression, self.schema)
        if self._by_tasks():
            self._write_tasks(encode)
            return
        self._write_pieces(encode)

    def _write_pieces(self, encode: Encoding, tasks: Sequence[Task] | None = None) -> None:
        """Write the pieces of all tasks, or of the given ones."""
        read = stream(self.job, encode=encode, progress=self.progress, tasks=tasks)
        with closing(read) as pieces:
            for piece in pieces:
                self._account(piece)
                if piece.rejects and self.options.on_error != "skip":
                    name = self.job.sources[piece.source].name
                    self.sink.quarantine(quarantine.encode(name, piece.rejects))
                self._check_limit(piece)
                for split, encoded in piece.result:
                    self.sink.write(encoded, split)
                if self.is_folder and piece.resumable:
                    # A single file has no checkpoints, and its source's hash is known only at the end.
                    self.sink.end_block(self._point(piece.task, ends_task=piece.ends_task))
                if self.watch is not None:
                    done = self.finished_bytes + self.progress.bytes_of_sources()
                    self.watch(done, self._size, self.ledger)

    def _point(self, task: int, *, ends_task: bool) -> sinks.RunState:
        return sinks.RunState(
            self.progress.next_block, self._state, self._metadata, task, ends_task
        )

    def _by_tasks(self) -> bool:
        """Return whether workers read and write on their own."""
        is_seen = isinstance(self.out, Path) or not self.out.url.startswith(IN_PROCESS)
        return is_seen and works_by_tasks(self.job)

    def _write_tasks(self, encode: Encoding) -> None:
        """Let workers write every unfinished task, and take over their shards in the order of the tasks."""
        assert isinstance(self.sink, FolderSink | ObjectFolderSink)
        place = self.sink.workers_place()
        left = [
            task for task in limited_tasks(self.job) if task.next_block > self.progress.next_block
        ]
        if left and left[0].has_begun(self.progress.next_block):
            # A task that threads began: a shard was full before the task was finished.
            self._write_pieces(encode, [left.pop(0)])
        work = TaskWork(self.job, encode, place, self._metadata())
        with closing(self._records(left, work)) as records:
            for task, record in zip(left, records, strict=True):
                self._adopt(task, record, place.bad(record), records)

    def _records(self, tasks: Sequence[Task], work: TaskWork) -> Generator[TaskRecord, None, None]:
        """Yield the record of each task in order, from an earlier run or from the workers of this one.

        Up to READERS records are read ahead, since on an object store each is a request.
        """
        assert isinstance(self.sink, FolderSink | ObjectFolderSink)
        engine, done = engine_of(self.options), self.sink.finished_tasks()

        def written(tasks: list[Task]) -> Generator[TaskRecord, None, None]:
            return naming_lost_tasks(engine.map(work, iter(tasks)), self.job.sources)

        numbers = (task.number for task in tasks if task.number in done)
        left = [task for task in tasks if task.number not in done]
        with (
            closing(Threads(READERS).map(self.sink.finished, numbers)) as found,
            closing(written(left)) as made,
        ):
            for task in tasks:
                record = next(found) if task.number in done else next(made)
                if record is None:
                    # The record exists, but its shards do not.
                    [record] = written([task])
                yield record

    def _adopt(
        self, task: Task, record: TaskRecord, bad: bytes, records: Generator[Any, None, None]
    ) -> None:
        """Add a task that a worker wrote to the output and the ledger, as if it had been converted here."""
        lines = self._shifted(record, bad)
        for step in record.trace:
            ledger = Ledger.from_dict(self.ledger.as_dict())
            ledger.merge(ledger_of(step.counts))
            reason = self._why_ended(step, ledger)
            self._note_bad(step.source, self._first_of(step))
            if reason is not None:
                records.close()
                self.sink.quarantine(self._shifted(record, bad, step.bad_bytes))
                self._count(task, step.counts)
                self._reject()
                raise LimitError(f"{reason}; nothing was written{self._where()}")
        self._count(task, record.counts)
        assert isinstance(self.sink, FolderSink | ObjectFolderSink)
        self.sink.adopt(record, lines, self._point(task.number, ends_task=True))
        if self.watch is not None:
            done = self.finished_bytes + self.progress.bytes_of_sources()
            self.watch(done, self._size, self.ledger)

    def _count(self, task: Task, counts: Counts) -> None:
        self.ledger.merge(ledger_of(counts))
        self.progress.jump(task, counts)

    def _why_ended(self, step: Trace, ledger: Ledger) -> str | None:
        name = self.job.sources[step.source].name
        return why_ended(self.options, ledger, name, self._first_of(step))

    def _first_of(self, step: Trace) -> list[Reject]:
        """Return the first bad row of a step of a task, if there is one."""
        if step.first is None:
            return []
        row, line, code, message = step.first
        rows, lines = self._before(step.source)
        place = None if line is None else line + lines
        return [Reject(row + rows, place, code, None, message, b"")]

    def _note_bad(self, source: int, rejects: Sequence[Reject]) -> None:
        if rejects and not self._first_bad:
            first = rejects[0]
            place = f"row {first.row}" if first.line is None else first.line
            self._first_bad = f"{self.job.sources[source].name}:{place}: {first.message}"

    def _before(self, source: int) -> tuple[int, int]:
        """Return the rows and lines of a source before the next task."""
        return self.progress.rows.get(source, 0), self.progress.lines.get(source, 1) - 1

    def _shifted(self, record: TaskRecord, bad: bytes, size: int | None = None) -> bytes:
        """Return `size` bytes of a task's quarantine, with rows and lines counted from the source's start."""
        parts, at = [], 0
        for source, length in record.bad:
            end = at + length if size is None else min(at + length, size)
            parts.append(quarantine.shifted(bad[at:end], *self._before(source)))
            at += length
        return b"".join(parts)

    def _account(self, piece: Piece) -> None:
        self.ledger.add(piece, skipped=self.options.on_error == "skip")
        self._note_bad(piece.source, piece.rejects)
        self.progress.add(piece)

    def _check_limit(self, piece: Piece) -> None:
        name = self.job.sources[piece.source].name
        reason = why_ended(self.options, self.ledger, name, piece.rejects)
        if reason is not None:
            self._reject()
            raise LimitError(f"{reason}; nothing was written{self._where()}")

    def _where(self) -> str:
        """Return where the bad rows are, once the sink has written them."""
        if self.options.on_error == "skip" or not self.ledger.bad:
            return ""
        return f", the rows are in {self.sink.quarantine_path}"

    def _nothing(self) -> str:
        if not self.ledger.rows_read:
            return "the sources hold no rows; nothing was written"
        lost = dict(self.ledger.reasons.most_common(3)) | {
            "no pair": self.ledger.no_pair,
            "too long": self.ledger.overlong_dropped,
            "filtered": self.ledger.filtered,
        }
        codes = ", ".join(f"{reason} {count:,}" for reason, count in lost.items() if count)
        read = self.ledger.rows_read
        where = self.job.options.where
        if where is not None and self.ledger.filtered == read and not self.job.name.function:
            rows = "the only row" if read == 1 else f"any of {read:,} rows"
            return f'--where "{where}" is not true of {rows}; nothing was written'
        rows = "the only row" if read == 1 else f"none of {read:,} rows"
        rows = f"{rows} could {'not ' * (read == 1)}be converted ({codes})"
        found = "" if read == 1 else "the first, "
        first = f"; {found}{self._first_bad}" if self._first_bad else ""
        return f"{rows}{first}; nothing was written{self._where()}"

    def _reject(self) -> None:
        self.sink.reject(self._report(()))

    def _final(self, written: Sequence[Written]) -> dict[str, Any]:
        """Return the report; that of a single file has the fingerprint that a folder has in its manifest."""
        own = {} if self.is_folder else {"fingerprint": self._fingerprint()}
        return self._report(written) | own

    def _report(self, written: Sequence[Written]) -> dict[str, Any]:
        seconds = time.monotonic() - self.begun
        report = report_of(
            self.job, self.ledger, self.progress, self.jobs, written=written, seconds=seconds
        )
        several = {
            "type": self._type(),
            "bytes_read": self.finished_bytes + report.data["bytes_read"],
            "sources": self._sources(),
            "schema": {field.name: str(field.type) for field in self.schema},
        }
        template = self.job.text.template
        difference = template.compiled.difference if template is not None else None
        tiers = {"template_difference": difference, "tiers": self.ledger.by_tier()}
        if self._beside():
            several["beside"] = self._beside()
        return report.as_dict() | several | tiers | dict(self.job.replayed)

    def _type(self) -> str:
        return ", ".join(dict.fromkeys(job.options.chosen_type for job in self.jobs))

    def _sources(self) -> list[dict[str, Any]]:
        return [*self.finished_sources, *sources_of(self.job, self.progress)]

    def _metadata(self) -> dict[str, str]:
        """Return the key-value metadata of the files."""
        template = self.job.text.template
        return {
            "fmtkit.type": self._type(),
            "fmtkit.table": self.job.table.name(),
            "fmtkit.to": self.options.to or "",
            "fmtkit.template": template.sha256 if template else "",
            "fmtkit.version": own_version(),
        }

    def _beside(self) -> dict[str, str]:
        """Return the file name and text of the metadata that readers of the target need."""
        rows = self.out / "data" if self.is_folder else self.out
        found = self.job.beside(PurePath(str(self.out)).stem, str(rows))
        return dict([found]) if found else {}

    def _manifest(self) -> dict[str, Any]:
        return {
            "type": self.job.options.type,
            "table": self.job.table.name(),
            "to": self.options.to,
            "losses": self.ledger.as_dict()["losses"],
            "no_place": self.ledger.as_dict()["no_place"],
            "sources": self._sources(),
        }

    def _state(self) -> dict[str, Any]:
        since, self._first_open = self._first_open, self.progress.next_block[0]
        return {
            "ledger": self.ledger.as_dict(),
            "progress": self.progress.since(since),
            "tiers": self.ledger.by_tier(),
        }

    def _finished(self, written: Sequence[Written]) -> Report:
        outputs = [str(file.path) for file in written]
        if self.ledger.quarantined:
            outputs.append(str(self.sink.quarantine_path))
        # The report as it was written, including its times.
        return Report(self.sink.report, tuple(outputs))


def fingerprint_of(jobs: Sequence[Job], options: ConvertOptions) -> dict[str, Any]:
    """Return what must be the same for a run to be resumed; `options` are those of its first job."""
    sources = [source for job in jobs for source in job.sources]
    templates = dict.fromkeys(job.text.template.sha256 for job in jobs if job.text.template)
    # User code that makes rows.
    functions = {s.function.file for s in sources if isinstance(s, TransformedSource)}
    code = sorted({*options.plugins, *(str(file) for file in functions)})
    others = [kept for job in jobs[1:] if (kept := _kept(job.options)) != _kept(options)]
    return {
        "sources": [_identity(s) for s in sources if not s.once],
        "options": _kept(options),
        "template": " ".join(templates) or None,
        "code": {path: sha256(Path(path).read_bytes()).hexdigest() for path in code},
        "fmtkit": own_version(),
        "version": journal.VERSION,
        **({"other_options": others} if others else {}),
    }


def _kept(options: RowOptions) -> dict[str, Any]:
    """Return the options that change the rows; code is hashed separately."""
    own = {"resume", "plugins", "folders", "function_config"}
    ignored = options.with_same_rows() | options.beside_options() | own
    return {k: _plain(v) for k, v in vars(options).items() if k not in ignored}


def _date_of(jobs: Sequence[Job]) -> dict[str, str]:
    """Return the date that the templates of a run write, under its key; empty if none writes it."""
    now = next((job.now for job in jobs if job.now is not None), None)
    return {} if now is None else {DATE: now.isoformat()}


def _format_of(job: Job, wanted: str | None) -> str:
    """Return the format of the files; raise OptionError for one that readers of the target do not support."""
    known = job.formats
    if known is None:
        return wanted or "parquet"
    if wanted is not None and wanted not in known:
        name = f"FILE.{known[0]} or a folder"
        raise OptionError(
            f"--to {job.options.to} is written as {', '.join(known)}; give OUT as {name}"
        )
    return wanted or known[0]


def _identity(source: AnySource) -> dict[str, Any]:
    """Return a source's identity: its hash, or its size with modification time or etag."""
    if source.hashed:
        return {"path": source.name, "sha256": source.sha256()}
    file = Path(source.name)
    changed = file.stat().st_mtime_ns if file.exists() else _mark(source)
    return {"path": source.name, "bytes": source.size, "changed": changed}


def _mark(source: AnySource) -> str | None:
    """Return the etag of a file at a URL, or a substitute."""
    reader = (source.source if isinstance(source, MadeSource) else source).reader
    location = getattr(reader, "location", None)
    return location.mark if isinstance(location, Location) and location.mark else None


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Split):
        return asdict(value)
    return list(value) if isinstance(value, tuple) else value
