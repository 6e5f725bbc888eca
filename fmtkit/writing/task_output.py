"""The output of one task: its own shards under final names, its part of the quarantine, and its record.

A task may run more than once, also twice at a time if its node was taken for lost: whatever it writes appears
complete, under names of its own, with the same bytes. The record comes last and completes the task.
"""

import json
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, field
from pathlib import Path
from typing import Any, Protocol

from fmtkit.core.atomic import sync_folder, write_bytes, writing
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import ResumeError, WriteError
from fmtkit.core.urls import ObjectPath
from fmtkit.writing.formats import Encoded
from fmtkit.writing.object_store import Store
from fmtkit.writing.sinks import RowFile

_RECORD = re.compile(r"task-(\d{6,})\.json")
SHARD_BYTES = 256 * 2**20
"""The size from which a shard of a task is closed after the block."""


@dataclass(frozen=True, slots=True)
class TaskShard:
    """A finished shard of a folder."""

    name: str
    split: str
    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Counts:
    """What a task read; rows and lines are counted from its start in each source."""

    ledger: Mapping[str, Any] = field(default_factory=dict)
    tiers: Mapping[str, int] = field(default_factory=dict)
    rows: Mapping[int, int] = field(default_factory=dict)
    """Source -> rows read of it."""
    lines: Mapping[int, int] = field(default_factory=dict)
    """Source -> lines read of it."""
    ends: Mapping[int, int] = field(default_factory=dict)
    """Source -> the byte up to which it is read."""

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> "Counts":
        """Read the counts from JSON, where keys are texts."""
        by_source = {
            name: {int(source): count for source, count in value[name].items()}
            for name in ("rows", "lines", "ends")
        }
        return cls(value["ledger"], value["tiers"], **by_source)


@dataclass(frozen=True)
class Trace:
    """The bad rows of a block, which may end a run."""

    source: int
    counts: Counts
    """Of the task up to this block."""
    bad_bytes: int
    """Of the task's part of the quarantine up to this block."""
    first: tuple[int, int | None, str, str] | None = None
    """Row, line, code and message of the first bad row of the block, counted within the task."""


@dataclass(frozen=True)
class TaskRecord:
    """The result of a task."""

    task: int
    shards: tuple[TaskShard, ...] = ()
    counts: Counts = field(default_factory=Counts)
    bad: tuple[tuple[int, int], ...] = ()
    """The part of the quarantine: source, and bytes of its lines."""
    trace: tuple[Trace, ...] = ()

    def to_json(self) -> bytes:
        """Return the record as it is written."""
        return json.dumps(asdict(self), ensure_ascii=False).encode(errors="backslashreplace")

    @classmethod
    def from_json(cls, data: bytes) -> "TaskRecord":
        """Read what `to_json` wrote; ValueError, KeyError or TypeError for anything else."""
        value = json.loads(data)
        value["counts"] = Counts.from_dict(value["counts"])
        value["shards"] = tuple(TaskShard(**shard) for shard in value["shards"])
        value["bad"] = tuple((source, size) for source, size in value["bad"])
        value["trace"] = tuple(
            Trace(
                step["source"],
                Counts.from_dict(step["counts"]),
                step["bad_bytes"],
                tuple(step["first"]) if step["first"] else None,
            )
            for step in value["trace"]
        )
        return cls(**value)


class Place(Protocol):
    """Where the workers of a run put their output; it can be pickled."""

    def keep(self, file: Path, name: str) -> None:
        """Give a finished file its name in the folder of shards."""
        ...

    def finish(self, record: TaskRecord, bad: Path) -> None:
        """Keep the part of the quarantine, and then the record."""
        ...

    def folder(self) -> tempfile.TemporaryDirectory[str]:
        """Make a folder for files on their way."""
        ...


@dataclass(frozen=True)
class LocalPlace:
    """A folder of one run in its working folder, which all workers see under the same path."""

    tasks: Path

    def folder(self) -> tempfile.TemporaryDirectory[str]:
        """Make a folder on the same disk, where a rename is enough."""
        with writing(self.tasks):
            return tempfile.TemporaryDirectory(dir=self.tasks, prefix="making-")

    def keep(self, file: Path, name: str) -> None:
        """Rename the file."""
        with writing(self.tasks / name):
            file.replace(self.tasks / name)
        sync_folder(self.tasks)

    def finish(self, record: TaskRecord, bad: Path) -> None:
        """Keep both next to the output."""
        if record.bad:
            with writing(self.tasks):
                bad.replace(self.tasks / bad_name(record.task))
        write_bytes(self.tasks / record_name(record.task), record.to_json())

    def tasks_done(self) -> frozenset[int]:
        """Return the tasks that have a record."""
        files = self.tasks.iterdir() if self.tasks.exists() else ()
        return tasks_in(file.name for file in files)

    def record(self, task: int) -> TaskRecord | None:
        """Return the record of a task that is done; None if it is not, or its shards are missing."""
        path = self.tasks / record_name(task)
        record = read_record(path.read_bytes() if path.exists() else None)
        if record is None:
            return None
        sizes = {s.name: _size(self.tasks / s.name) for s in record.shards}
        bad = sum(size for _, size in record.bad)
        is_whole = not bad or _size(self.tasks / bad_name(task)) == bad
        return record if is_whole and all(sizes[s.name] == s.bytes for s in record.shards) else None

    def bad(self, record: TaskRecord) -> bytes:
        """Return a task's part of the quarantine."""
        return (self.tasks / bad_name(record.task)).read_bytes() if record.bad else b""


@dataclass(frozen=True)
class ObjectPlace:
    """A folder on an object store, with the numbers of the run that began it and of this one."""

    path: ObjectPath
    runs: str
    first: int
    number: int

    def check(self) -> None:
        """Raise WriteError if another run has claimed the folder."""
        if Store(self.path).size(f"{self.runs}/run-{self.number + 1:06}.json") is not None:
            raise WriteError(f"{self.path} is being written by another run; this one stops")

    def folder(self) -> tempfile.TemporaryDirectory[str]:
        """Make a folder on this machine."""
        return tempfile.TemporaryDirectory(prefix="fmtkit-")

    def _name(self, name: str) -> str:
        return f"{self.runs}/{self.first:06}-{name}"

    def keep(self, file: Path, name: str) -> None:
        """Upload the file."""
        self.check()
        Store(self.path).put(file, f"data/{name}")
        file.unlink()

    def finish(self, record: TaskRecord, bad: Path) -> None:
        """Upload both, the record last."""
        store = Store(self.path)
        if record.bad:
            store.put(bad, self._name(bad_name(record.task)))
        store.write(self._name(record_name(record.task)), record.to_json())

    def record(self, task: int) -> TaskRecord | None:
        """Return the record of a task; None where there is none that can be read."""
        return read_record(Store(self.path).read(self._name(record_name(task))))

    def bad(self, record: TaskRecord) -> bytes:
        """Return a task's part of the quarantine."""
        if not record.bad:
            return b""
        name = self._name(bad_name(record.task))
        found = Store(self.path).read(name)
        if found is None:
            raise ResumeError(f"{self.path}/{name} is gone; start again with --overwrite")
        return found


def record_name(task: int) -> str:
    """Return the name of a task's record."""
    return f"task-{task:06}.json"


def bad_name(task: int) -> str:
    """Return the name of a task's part of the quarantine."""
    return f"task-{task:06}.quarantine.jsonl"


def tasks_in(names: Iterable[str]) -> frozenset[int]:
    """Return the tasks whose records are among the names of files."""
    return frozenset(int(found[1]) for name in names if (found := _RECORD.fullmatch(name)))


def shard_name(split: str, task: int, number: int, format: str) -> str:
    """Return the name of a shard, the `number`-th that a task made of a split."""
    return f"{split}-{task:06}-{number:03}.{format}"


def read_record(data: bytes | None) -> TaskRecord | None:
    """Return the record in a file; None if there is none, or only a part of one."""
    try:
        return TaskRecord.from_json(data) if data else None
    except (ValueError, KeyError, TypeError):
        return None


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else -1


class TaskWriter:
    """Writes the shards of one task.

    Raises:
        WriteError: from every method, where the place refuses.
    """

    def __init__(
        self,
        place: Place,
        task: int,
        format: str,
        metadata: Mapping[str, str],
        shard_bytes: int = SHARD_BYTES,
    ) -> None:
        self._place, self._task, self._format = place, task, format
        self._metadata, self._shard_bytes = metadata, shard_bytes
        self._folder = place.folder()
        self._open: dict[str, RowFile] = {}
        self._shards: list[TaskShard] = []
        self._closed = 0
        self._bad: list[list[int]] = []
        self._bad_path = Path(self._folder.name) / "quarantine"
        self._bad_file = self._bad_path.open("wb")
        self.bad_bytes = 0

    def write(self, encoded: Encoded, split: str) -> None:
        """Append rows to a split."""
        if split not in self._open:
            path = Path(self._folder.name) / f"{split}-{uuid.uuid4().hex}.{self._format}"
            self._open[split] = RowFile(path, self._format, hashed=True)
        self._open[split].write(encoded)

    def quarantine(self, source: int, lines: bytes) -> None:
        """Append bad rows of a source."""
        if not lines:
            return
        with writing(self._bad_path):
            self._bad_file.write(lines)
        if not self._bad or self._bad[-1][0] != source:
            self._bad.append([source, 0])
        self._bad[-1][1] += len(lines)
        self.bad_bytes += len(lines)

    def end_block(self) -> None:
        """Close the shards after a block, where one of them is large enough."""
        if any(rows.file.size >= self._shard_bytes for rows in self._open.values()):
            self._close()

    def _close(self) -> None:
        for split, rows in sorted(self._open.items()):
            name = shard_name(split, self._task, self._closed, self._format)
            written = rows.close(self._metadata)
            rows.file.leave()
            assert written.sha256 is not None
            self._place.keep(rows.file.partial, name)
            self._shards.append(TaskShard(name, split, written.rows, written.bytes, written.sha256))
        self._open.clear()
        self._closed += 1

    def finish(self, counts: Counts, trace: Sequence[Trace] = ()) -> TaskRecord:
        """Close what is open and write the record."""
        if self._open:
            self._close()
        with writing(self._bad_path):
            self._bad_file.close()
        bad = tuple((source, size) for source, size in self._bad)
        record = TaskRecord(self._task, tuple(self._shards), counts, bad, tuple(trace))
        self._place.finish(record, self._bad_path)
        self._folder.cleanup()
        return record

    def discard(self) -> None:
        """Delete what is not finished."""
        for rows in self._open.values():
            rows.discard()
        self._bad_file.close()
        shutil.rmtree(self._folder.name, ignore_errors=True)
