"""Outputs on an object store: a folder of shards that can be resumed, or one file.

Nothing there is renamed or appended to. Each file is completed in a temporary file first and is one upload,
under its final name. A folder's shards are named for their tasks, `{split}-{task}-{number}`; its manifest
comes last and completes it. Until then it has

_fmtkit/run-000000.json          who writes here: created only if it does not exist; the highest number counts
_fmtkit/000000-000000.json       what a resumed run needs after a checkpoint: first run, checkpoint
_fmtkit/000000-000000.quarantine.jsonl   bad rows since the previous checkpoint
_fmtkit/000000-task-000000.json  what a worker did (`fmtkit.writing.task_output`)
_fmtkit/000000-task-000000.quarantine.jsonl

Beside one file stands, from before its upload until its report is there, the report that comes: by it the
next run knows, if this one is killed, that fmtkit wrote the file.

.STEM.report.json.partial
"""

import hashlib
import json
import re
import tempfile
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, field
from pathlib import Path, PurePosixPath
from typing import Any

from fmtkit.core.atomic import Written, json_document, writing
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OutputExistsError, ResumeError
from fmtkit.core.records import entries_of
from fmtkit.core.urls import ObjectPath
from fmtkit.writing import journal
from fmtkit.writing.formats import Encoded
from fmtkit.writing.object_store import Store
from fmtkit.writing.sinks import TRAIN, Closing, RowFile, RunState
from fmtkit.writing.task_output import ObjectPlace, TaskRecord, TaskShard, shard_name, tasks_in
from fmtkit.writing.working_folder import MANIFEST, QUARANTINE, REPORT

RUNS = "_fmtkit"
FAILED_RECORD = f".{REPORT}.partial"
"""In the folder of a run without rows: the report that comes."""
SHARD_BYTES = 256 * 2**20
"""The size from which a shard is closed after the block."""
_RUN = re.compile(rf"{RUNS}/run-(\d{{6,}})\.json")


@dataclass(frozen=True)
class Resumption:
    """Where an interrupted run to a folder continues."""

    fingerprint: Mapping[str, Any]
    first: int = 0
    """Number of the run that started it: its records have this number."""
    checkpoints: int = 0
    parts: tuple[TaskShard, ...] = ()
    tasks: frozenset[int] = frozenset()
    """Tasks that have a worker's record."""
    next_block: tuple[int, int] = (0, 0)
    state: Mapping[str, Any] = field(default_factory=dict)
    is_complete: bool = False
    """Whether nothing is left to do."""


def begun_with(path: ObjectPath) -> Mapping[str, Any]:
    """Return the fingerprint of the run that is unfinished at the folder; empty where there is none."""
    store = Store(path)
    newest = _newest(store.sizes(RUNS))
    found: Mapping[str, Any] = _json(store.read(newest)).get("fingerprint", {}) if newest else {}
    return found


def find_resumption(path: ObjectPath, fingerprint: Mapping[str, Any]) -> Resumption | None:
    """Find where a run to the folder stopped; None where there is nothing to resume.

    Raises:
        ResumeError: if input, options, template or version are not what they were, or a finished shard is
        missing or has changed.
    """
    store = Store(path)
    names = store.sizes(RUNS)
    manifest = _json(store.read(MANIFEST))
    run = _json(store.read(_newest(names))) if _newest(names) else {}
    if manifest and (not run or run["fingerprint"] == manifest["fingerprint"]):
        journal.check_fingerprint(path, manifest["fingerprint"], fingerprint)
        if run:
            store.delete(names)
        return Resumption(manifest["fingerprint"], is_complete=True)
    if not run:
        return None
    journal.check_fingerprint(path, run["fingerprint"], fingerprint)
    count = 0
    while _record(run["first"], count) in names:
        count += 1
    parts: list[TaskShard] = []
    state: dict[str, Any] = {}
    last: dict[str, Any] = {"next_block": (0, 0)}
    for number in range(count):
        last = _json(store.read(_record(run["first"], number)))
        parts += (TaskShard(**part) for part in last["parts"])
        journal.update(state, last["state"])
    there = store.sizes("data")
    for part in parts:
        if there.get(f"data/{part.name}") != part.bytes:
            raise ResumeError(
                f"{path}/data/{part.name} has {there.get(f'data/{part.name}', 0)} bytes where the "
                f"run's record says {part.bytes}; start again without --resume, with --overwrite"
            )
    source, block = last["next_block"]
    own = f"{RUNS}/{run['first']:06}-"
    tasks = tasks_in(name.removeprefix(own) for name in names if name.startswith(own))
    return Resumption(
        run["fingerprint"], run["first"], count, tuple(parts), tasks, (source, block), state
    )


class ObjectFolderSink:
    """Shards of every split in `data/`, quarantine, report and manifest, on an object store.

    The quarantine and report of an earlier run that wrote no rows are replaced.

    Raises:
        OutputExistsError: if the folder exists and may not be overwritten, or fmtkit did not write it, or
        another run writes to it. WriteError: if the store refuses, or another run has taken the folder over.
    """

    def __init__(
        self,
        path: ObjectPath,
        format: str,
        fingerprint: Mapping[str, Any],
        *,
        overwrite: bool = False,
        resume: Resumption | None = None,
        shard_bytes: int = SHARD_BYTES,
    ) -> None:
        self.path, self._format, self._shard_bytes = path, format, shard_bytes
        self.report: Mapping[str, Any] = {}
        self._store = Store(path)
        names = self._store.sizes()
        if resume is None:
            refuse_folder(path, names, self._store, overwrite=overwrite)
        # What is to be overwritten is deleted before the first upload, the report last: while it
        # exists, nothing of this run does.
        is_untouched = resume is None or {MANIFEST, REPORT} & names.keys()
        self._old = [n for n in names if not n.startswith(f"{RUNS}/")] if is_untouched else []
        self._number = _number(_newest(names)) + 1
        self._first = resume.first if resume else self._number
        self._fingerprint = resume.fingerprint if resume else fingerprint
        self._checkpoints = resume.checkpoints if resume else 0
        self._parts = list(resume.parts) if resume else []
        self._recorded = len(self._parts)
        self._finished = resume.tasks if resume else frozenset()
        self._claim()
        self._folder = tempfile.TemporaryDirectory(prefix="fmtkit-")
        self._open: dict[str, RowFile] = {}
        self._task = 0
        self._closed = dict(map(_task_and_next, self._parts))
        """Task -> the number of its next shard; for the last task read and those before."""
        self._there = {n: s for n, s in names.items() if n.startswith("data/")} if resume else {}
        self._bad = Spool(Path(self._folder.name) / QUARANTINE)
        self._new_bad = Spool(Path(self._folder.name) / "new")
        for number in range(self._checkpoints):
            self._bad.write(self._store.read(_bad(self._first, number)) or b"")
        self._kept = path

    def _claim(self) -> None:
        """Claim the folder for this run: of two concurrent claims, one is first."""
        run = {"id": uuid.uuid4().hex, "first": self._first, "fingerprint": self._fingerprint}
        if not self._store.create(f"{RUNS}/run-{self._number:06}.json", _bytes(run)):
            raise OutputExistsError(
                f"another run has just started to write to {self.path}; wait for it, or choose another OUT"
            )

    def _check(self) -> None:
        """Raise WriteError if another run has claimed the folder."""
        self._place.check()

    @property
    def _place(self) -> ObjectPlace:
        return ObjectPlace(self.path, RUNS, self._first, self._number)

    @property
    def quarantine_path(self) -> ObjectPath:
        """Return where the quarantine is put."""
        return self._kept / QUARANTINE

    @property
    def report_path(self) -> ObjectPath:
        """Return where the report is put."""
        return self._kept / REPORT

    def write(self, encoded: Encoded, split: str = TRAIN) -> None:
        """Append rows to a split."""
        if not encoded.rows:
            return
        if split not in self._open:
            place = Path(self._folder.name) / f"{split}.{self._format}"
            self._open[split] = RowFile(place, self._format, hashed=True)
        self._open[split].write(encoded)

    def quarantine(self, lines: bytes) -> None:
        """Append lines made by `fmtkit.writing.quarantine.encode`."""
        self._bad.write(lines)
        self._new_bad.write(lines)

    def end_block(self, progress: RunState) -> None:
        """Upload the shards, and the record of it, after a task and where one of them is large enough."""
        self._task = progress.task
        is_full = any(rows.file.size >= self._shard_bytes for rows in self._open.values())
        if not (progress.ends_task or is_full):
            return
        self._check()
        self._upload(progress.metadata())
        number = self._checkpoints
        self._store.write(_bad(self._first, number), self._new_bad.take())
        record = {
            "next_block": progress.next_block,
            "parts": [asdict(part) for part in self._parts[self._recorded :]],
            "state": progress.state(),
        }
        self._store.write(_record(self._first, number), _bytes(record))
        self._recorded, self._checkpoints = len(self._parts), number + 1

    def workers_place(self) -> ObjectPlace:
        """Return where workers put the shards of tasks; what is to be overwritten is gone by then."""
        self._remove_old()
        return self._place

    def finished_tasks(self) -> frozenset[int]:
        """Return the tasks that have a record from a worker of an earlier run."""
        return self._finished

    def finished(self, task: int) -> TaskRecord | None:
        """Return the record of such a task; None if it cannot be read, or a shard of it is missing."""
        record = self._place.record(task)
        if record is None or any(
            self._there.get(f"data/{s.name}") != s.bytes for s in record.shards
        ):
            return None
        return record

    def adopt(self, record: TaskRecord, bad: bytes, progress: RunState) -> None:
        """Take over what a worker wrote of the next task; its record exists already. No request is made:
        workers check whether another run has claimed the folder, and so does `finish`.
        """
        del progress
        self._bad.write(bad)
        self._parts += record.shards

    def _upload(self, metadata: Mapping[str, str]) -> None:
        """Upload the open shards of all splits after the same block."""
        self._remove_old()
        count = self._closed.get(self._task, 0)
        for split, rows in sorted(self._open.items()):
            written = rows.close(metadata)
            assert written.sha256 is not None
            name = shard_name(split, self._task, count, self._format)
            self._store.put(rows.file.partial, f"data/{name}")
            rows.discard()
            self._parts.append(TaskShard(name, split, written.rows, written.bytes, written.sha256))
        if self._open:
            self._closed = {self._task: count + 1}
        self._open.clear()

    def _remove_old(self) -> None:
        # Without a manifest the folder that is being replaced is not taken for complete.
        self._store.delete([name for name in self._old if name == MANIFEST])
        self._store.delete([name for name in self._old if name not in (MANIFEST, REPORT)])
        self._store.delete([name for name in self._old if name == REPORT])
        self._old = []

    def finish(self, closing: Closing) -> list[Written]:
        """Upload what is open, further files, quarantine, report and manifest, which comes last."""
        self._check()
        self._upload(closing.metadata)
        self._there.clear()
        written = [
            Written(self.path / "data" / part.name, part.rows, part.bytes, part.sha256)
            for part in self._parts
        ]
        names = [
            {"path": f"data/{part.name}", "bytes": part.bytes, "sha256": part.sha256}
            for part in self._parts
        ]
        manifest = Path(self._folder.name) / MANIFEST
        names.append(self._made(manifest, self._manifest(closing.manifest)))
        for name, text in closing.beside.items():
            self._store.write(name, text.encode())
            names.append(_entry(name, text.encode()))
        self._put_quarantine_and_report(closing.report(written), names)
        self._store.put(manifest, MANIFEST)
        self._remove_failed()
        self._end(keep={part.name for part in self._parts})
        return written

    def _manifest(self, given: Mapping[str, Any]) -> dict[str, Any]:
        files = [
            {"path": f"data/{part.name}"} | {k: v for k, v in asdict(part).items() if k != "name"}
            for part in self._parts
        ]
        return {**given, "fingerprint": self._fingerprint, "files": files}

    def _made(self, path: Path, value: Mapping[str, Any]) -> dict[str, Any]:
        """Write a document to a temporary file, since it may be large; return how the report names it."""
        digest, size = hashlib.sha256(), 0
        with writing(path), path.open("wb") as file:
            for data in json_document(value):
                file.write(data)
                digest.update(data)
                size += len(data)
        return {"path": path.name, "bytes": size, "sha256": digest.hexdigest()}

    def _put_quarantine_and_report(
        self, report: Mapping[str, Any], names: list[dict[str, Any]]
    ) -> None:
        """Upload the quarantine, if there is one, and the report."""
        if self._bad.size:
            bad = {"path": QUARANTINE, "bytes": self._bad.size, "sha256": self._bad.sha256}
            names = [*names, bad]
        self.report = {**report, "output": self.path.name, "files": names}
        store, record = self._store, None
        if self._kept != self.path:  # where no claim tells whose the files are
            store = Store(self._kept)
            reports = (_json(store.read(name)) for name in (REPORT, FAILED_RECORD))
            record = _Record(store, REPORT, *reports)
            record.begin(self.report)
        if self._bad.size:
            store.put(self._bad.path, QUARANTINE)
        made = Path(self._folder.name) / REPORT
        self._made(made, self.report)
        store.put(made, REPORT)
        if record is not None:
            record.end()

    def reject(self, report: Mapping[str, Any]) -> None:
        """Keep only the quarantine and the report; next to an earlier folder, in one of their own."""
        self._check()
        if MANIFEST in self._old:
            self._kept = failed_folder(self.path)
        else:
            self._remove_old()
        self._put_quarantine_and_report(report, [])
        self._end(keep=None if MANIFEST in self._old else set())

    def _remove_failed(self) -> None:
        """Delete the quarantine and report of an earlier run that wrote no rows, if fmtkit wrote them."""
        failed = Store(failed_folder(self.path))
        names = failed.sizes()
        if names and _is_ours(*_failed_files(failed, names)):
            failed.delete(names)

    def _end(self, keep: set[str] | None) -> None:
        """Delete the records, and fmtkit's shards that no manifest names; None for none of them."""
        if keep is not None:
            shard = re.compile(r"data/.+-\d{6,}-\d{3}\.\w+")
            names = self._store.sizes("data")
            self._store.delete(
                [n for n in names if shard.fullmatch(n) and n.removeprefix("data/") not in keep]
            )
        self._store.delete(self._store.sizes(RUNS))
        self._forget()

    def _forget(self) -> None:
        for rows in self._open.values():
            rows.discard()
        self._open.clear()
        self._bad.close()
        self._new_bad.close()
        self._folder.cleanup()

    def suspend(self) -> None:
        """Stop so that a later run may resume."""
        self._forget()

    def abort(self) -> None:
        """Leave nothing of this run."""
        self._end(keep=set() if MANIFEST not in self._old else None)


class ObjectFileSink:
    """One file on an object store, its quarantine (if any row was bad) and its report next to it.

    The quarantine and report of an earlier run that wrote no rows are replaced.

    Raises:
        OutputExistsError: if one of them exists and fmtkit did not write it, or may not overwrite it.
        WriteError: if the store refuses.
    """

    def __init__(self, path: ObjectPath, format: str, *, overwrite: bool = False) -> None:
        self.path = path
        self.report: Mapping[str, Any] = {}
        self._output = ObjectFile(path)
        self._overwrite = overwrite
        self._output.refuse(overwrite=overwrite)
        self._folder = tempfile.TemporaryDirectory(prefix="fmtkit-")
        self._rows = RowFile(Path(self._folder.name) / f"rows.{format}", format, hashed=True)
        self._bad = Spool(Path(self._folder.name) / QUARANTINE)

    @property
    def quarantine_path(self) -> ObjectPath:
        """Return where the quarantine is put."""
        return self.path.with_name(self._output.quarantine)

    @property
    def report_path(self) -> ObjectPath:
        """Return where the report is put."""
        return self.path.with_name(self._output.report)

    def write(self, encoded: Encoded, split: str = TRAIN) -> None:  # noqa: ARG002
        """Append rows; a file holds one split, as the run has made sure."""
        self._rows.write(encoded)

    def quarantine(self, lines: bytes) -> None:
        """Append lines made by `fmtkit.writing.quarantine.encode`."""
        self._bad.write(lines)

    def end_block(self, progress: RunState) -> None:
        """Remember nothing: a single file starts again."""

    def finish(self, closing: Closing) -> list[Written]:
        """Upload the quarantine, the rows and the report, in this order."""
        made = self._rows.close(closing.metadata)
        written = Written(self.path, made.rows, made.bytes, made.sha256)
        self._output.refuse(overwrite=self._overwrite)
        entry = {"path": self.path.name, "bytes": made.bytes, "sha256": made.sha256}
        rows = self._rows.file.partial
        self.report = self._output.replace(closing.report([written]), self._bad, [entry], rows)
        self._output.failed.remove_failed()
        self._forget()
        return [written]

    def reject(self, report: Mapping[str, Any]) -> None:
        """Keep only the quarantine and the report; next to an earlier output, under other names."""
        if self._output.holds_rows():
            self._output = self._output.failed
        self.report = self._output.replace(report, self._bad)
        self._forget()

    def _forget(self) -> None:
        self._rows.discard()
        self._bad.close()
        self._folder.cleanup()

    def suspend(self) -> None:
        """Leave nothing: a single file starts again."""
        self._forget()

    def abort(self) -> None:
        """Leave nothing."""
        self._forget()


class ObjectFile:
    """The three names of an output that is one file on an object store, and whether fmtkit wrote it."""

    def __init__(self, path: ObjectPath) -> None:
        self.path, self.store = path, Store(path.parent)
        name = PurePosixPath(path.name)
        self.rows = name.name
        self.quarantine = name.with_suffix(".quarantine.jsonl").name
        self.report = name.with_suffix(".report.json").name
        self.record = f".{self.report}.partial"

    @property
    def failed(self) -> "ObjectFile":
        """Return where the quarantine and report of a run without rows go while OUT holds earlier rows."""
        name = PurePosixPath(self.rows)
        return ObjectFile(self.path.with_name(f"{name.stem}.failed{name.suffix}"))

    def own_report(self) -> Mapping[str, Any] | None:
        """Return the report of a finished OUT; None if there is none; OutputExistsError if fmtkit did not
        write it.
        """
        there = self._sizes()
        if self.rows not in there:
            return None
        report, record = self._reports(there)
        _refuse_foreign(self.path.parent, {self.rows: there[self.rows]}, report, record)
        return report if self.rows in (entries_of(report) or {}) else None

    def holds_rows(self) -> bool:
        """Return whether rows of an earlier run are there, not only those of one that was killed."""
        there = self._sizes()
        return self.rows in there and not self._is_unfinished(*self._reports(there))

    def _sizes(self) -> dict[str, int]:
        names = (self.rows, self.quarantine, self.report, self.record)
        found = {name: self.store.size(name) for name in names}
        return {name: size for name, size in found.items() if size is not None}

    def _reports(self, there: Mapping[str, int]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the report, and the record of a run that has not come to it; empty where there is none."""
        names = (self.report, self.record)
        report, record = (_json(self.store.read(n)) if n in there else {} for n in names)
        return report, record

    def _is_unfinished(self, report: Mapping[str, Any], record: Mapping[str, Any]) -> bool:
        """Return whether a run that replaced no rows was killed after its record."""
        if entries_of(record) is None or record["output"] != self.rows:
            return False
        return not record.get("replaces_rows") and self.rows not in (entries_of(report) or {})

    def refuse(self, *, overwrite: bool) -> None:
        """Raise OutputExistsError unless fmtkit wrote what exists, and it may be replaced.

        What a run left that was killed before its report may be, if there were no rows before it.
        """
        if not self._refuse(overwrite=overwrite):
            return
        failed = self.failed
        if failed._refuse(overwrite=True):
            raise OutputExistsError(
                f"{failed.path.with_name(failed.report)} would be the report of {failed.rows} and of a "
                f"failed run to {self.path}; choose another OUT"
            )

    def _refuse(self, *, overwrite: bool) -> bool:
        """Return whether there are rows, which may be replaced."""
        there = self._sizes()
        if not there:
            return False
        report, record = self._reports(there)
        for name, found in ((self.report, report), (self.record, record)):
            self._refuse_report(name, found, there)
        files = {name: there[name] for name in (self.rows, self.quarantine) if name in there}
        _refuse_foreign(self.path.parent, files, report, record)
        is_whole = self.rows in there and not self._is_unfinished(report, record)
        if is_whole and not overwrite:
            raise OutputExistsError(f"{self.path} exists already; --overwrite replaces it")
        return is_whole

    def _refuse_report(self, name: str, report: dict[str, Any], there: Mapping[str, int]) -> None:
        """Raise OutputExistsError for a report of rows under another name, or that fmtkit did not write."""
        if name not in there:
            return
        path, entries = self.path.with_name(name), entries_of(report)
        if entries is None:
            raise OutputExistsError(
                f"{path} exists already, and fmtkit did not write it; choose another OUT or move it away"
            )
        # What a run without rows left is no reason for another name.
        other = report["output"]
        if other in entries.keys() - {self.rows} and self.store.size(other) is not None:
            raise OutputExistsError(
                f"{path} is the report of {other}, and would be that of {self.rows} too; give OUT "
                "another name"
            )

    def replace(
        self,
        report: Mapping[str, Any],
        bad: "Spool",
        files: Sequence[Mapping[str, Any]] = (),
        rows: Path | None = None,
    ) -> Mapping[str, Any]:
        """Upload rows (if any), quarantine and report in place of what is there; return the report.

        Raises OutputExistsError if another run has written rows since `refuse`.
        """
        there = self._sizes()
        reports = self._reports(there)
        replaces_rows = self.rows in there and not self._is_unfinished(*reports)
        record = _Record(self.store, self.report, *reports, replaces_rows=replaces_rows)
        if bad.size:
            entry = {"path": self.quarantine, "bytes": bad.size, "sha256": bad.sha256}
            files = [*files, entry]
        whole = {**report, "output": self.rows, "files": [*files]}
        record.begin(whole)
        # The previous report is deleted first, so that an existing report is true.
        self.store.delete([name for name in (self.report, self.quarantine) if name in there])
        if rows is not None:
            try:
                self.store.put(rows, self.rows, new=self.rows not in there)
            except FileExistsError as error:
                record.take_back()
                raise OutputExistsError(
                    f"{self.path} was written by another run meanwhile; --overwrite replaces it"
                ) from error
        elif self.rows in there:
            self.store.delete([self.rows])
        if bad.size:
            self.store.put(bad.path, self.quarantine)
        self.store.write(self.report, _document(whole))
        record.end()
        return whole

    def remove_failed(self) -> None:
        """Delete the quarantine and report of an earlier run that wrote no rows, if fmtkit wrote them."""
        there = self._sizes()
        if self.rows in there or not there:
            return
        reports = self._reports(there)
        told = zip((self.report, self.record), reports, strict=True)
        known = {name for name, report in told if entries_of(report) is not None}
        if _is_ours({n: s for n, s in there.items() if n not in known}, *reports):
            self.store.delete(there)


class _Record:
    """The report that comes, while the files are exchanged, with what it replaces."""

    def __init__(
        self,
        store: Store,
        report: str,
        before: Mapping[str, Any],
        left: Mapping[str, Any],
        *,
        replaces_rows: bool = False,
    ) -> None:
        self._store, self.name = store, f".{report}.partial"
        known = [entries_of(found) or {} for found in (before, left, _replaced(left))]
        files = [file for entries in known for file in entries.values()]
        self._more = {"replaces": files, "replaces_rows": replaces_rows}
        self._data = b""

    def begin(self, report: Mapping[str, Any]) -> None:
        """Write it."""
        self._data = _document({**report, **self._more})
        self._store.write(self.name, self._data)

    def take_back(self) -> None:
        """Delete it, unless it is another run's."""
        if self._store.read(self.name) == self._data:
            self.end()

    def end(self) -> None:
        """Delete it."""
        self._store.delete([self.name])


def _replaced(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record as the report of what the run replaces."""
    return {**record, "files": record.get("replaces")}


class Spool:
    """Lines for an upload, in a temporary file that is created with the first of them."""

    def __init__(self, path: Path) -> None:
        self.path, self.size = path, 0
        self._hash = hashlib.sha256()
        self._file = path.open("wb", buffering=0)

    @property
    def sha256(self) -> str:
        """Return the hash of all lines."""
        return self._hash.hexdigest()

    def write(self, lines: bytes) -> None:
        """Append lines."""
        self._file.write(lines)
        self._hash.update(lines)
        self.size += len(lines)

    def take(self) -> bytes:
        """Return all lines, and reset."""
        lines = self.path.read_bytes()
        self._file.seek(0)
        self._file.truncate()
        self.size = 0
        return lines

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def refuse_folder(
    path: ObjectPath,
    names: Mapping[str, int],
    store: Store,
    *,
    overwrite: bool,
) -> None:
    """Raise OutputExistsError unless fmtkit wrote the files of a folder, and they may be replaced.

    Compared by names and sizes: to compare hashes, all would have to be fetched.
    """
    if not names:
        return
    is_unfinished = is_begun(names)
    if is_unfinished and not overwrite:
        raise OutputExistsError(
            f"{path} holds a run that is not finished, or is still under way; --resume continues "
            "it, --overwrite starts again"
        )
    found = {
        name: size
        for name, size in names.items()
        if not name.startswith(f"{RUNS}/") and not (is_unfinished and name.startswith("data/"))
    }
    report = _json(store.read(REPORT))
    if not is_unfinished or REPORT in found:
        _refuse_foreign(path, {n: s for n, s in found.items() if n != REPORT}, report)
    if MANIFEST in found and not overwrite:
        raise OutputExistsError(f"{path} exists already; --overwrite replaces it")
    if MANIFEST in found:
        failed = Store(failed_folder(path))
        _refuse_foreign(failed.folder, *_failed_files(failed, failed.sizes()))


def _failed_files(
    failed: Store, names: Mapping[str, int]
) -> tuple[dict[str, int], dict[str, Any], dict[str, Any]]:
    """Return the files in the folder of a run without rows, its report and its record.

    One of the two that fmtkit did not write is among the files.
    """
    report, record = (_json(failed.read(n)) if n in names else {} for n in (REPORT, FAILED_RECORD))
    reports = {REPORT: report, FAILED_RECORD: record}
    told = {name for name, found in reports.items() if entries_of(found) is not None}
    return {n: s for n, s in names.items() if n not in told}, report, record


def is_begun(names: Mapping[str, int]) -> bool:
    """Return whether the files of a folder are of a run that is not finished."""
    return _newest(names) != ""


def read_report(path: ObjectPath) -> dict[str, Any]:
    """Read the report of a finished folder."""
    return _json(Store(path).read(REPORT))


def failed_folder(path: ObjectPath) -> ObjectPath:
    """Return the folder for the quarantine and report of a run without rows while OUT holds earlier rows."""
    return ObjectPath(f"{path.url.rstrip('/')}.failed")


def _refuse_foreign(
    folder: ObjectPath, sizes: Mapping[str, int], *reports: Mapping[str, Any]
) -> None:
    """Raise OutputExistsError for a file that neither a report names nor a record of a killed run."""
    for name, size in sizes.items():
        known = _sizes_of(name, reports)
        if not known:
            raise OutputExistsError(
                f"{folder / name} exists already, and no report next to it names it: fmtkit did not "
                "write it; choose another OUT or move it away"
            )
        if size not in known:
            raise OutputExistsError(
                f"{folder / name} exists already and was changed since fmtkit wrote it; choose "
                "another OUT or move it away"
            )


def _sizes_of(name: str, reports: Iterable[Mapping[str, Any]]) -> set[int]:
    """Return the sizes that a file has by reports, and by what they replace."""
    known = (entries_of(each) or {} for report in reports for each in (report, _replaced(report)))
    return {entries[name]["bytes"] for entries in known if name in entries}


def _is_ours(sizes: Mapping[str, int], *reports: Mapping[str, Any]) -> bool:
    return all(size in _sizes_of(name, reports) for name, size in sizes.items())


def _newest(names: Mapping[str, int]) -> str:
    """Return the name of the highest run; empty where there is none."""
    return max((name for name in names if _RUN.fullmatch(name)), key=_number, default="")


def _number(name: str) -> int:
    found = _RUN.fullmatch(name)
    return int(found[1]) if found else -1


def _task_and_next(shard: TaskShard) -> tuple[int, int]:
    """Return the task of a shard, and the number of the one that comes next."""
    task, number = shard.name.rpartition(".")[0].rsplit("-", 2)[1:]
    return int(task), int(number) + 1


def _record(first: int, checkpoint: int) -> str:
    return f"{RUNS}/{first:06}-{checkpoint:06}.json"


def _bad(first: int, checkpoint: int) -> str:
    return f"{RUNS}/{first:06}-{checkpoint:06}.quarantine.jsonl"


def _json(data: bytes | None) -> dict[str, Any]:
    try:
        value = json.loads(data or b"{}")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _bytes(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode(errors="backslashreplace")


def _document(value: Mapping[str, Any]) -> bytes:
    text = json.dumps(value, ensure_ascii=False, indent=2)
    return text.encode(errors="backslashreplace") + b"\n"


def _entry(name: str, data: bytes) -> dict[str, Any]:
    return {"path": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
