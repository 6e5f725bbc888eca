"""A folder of shards that can be resumed.

The folder OUT is created as `.OUT.partial/out` and gets its name by one rename at the very end; the journal
is beside it. A checkpoint closes the open shards of all splits after the same block, so that where shards
begin is a function of the input alone, and an undisturbed run and a resumed one end in the same bytes.
"""

import hashlib
import shutil
import time
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from fmtkit.core.atomic import Written, sync_folder, write_bytes, write_json, writing
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OutputExistsError, WriteError
from fmtkit.core.records import entries_of, read_json
from fmtkit.writing import journal
from fmtkit.writing.dataset_card import CARD, kept_card
from fmtkit.writing.formats import Encoded
from fmtkit.writing.journal import Checkpoint, Journal, JournalFile, Shard
from fmtkit.writing.quarantine import QuarantineFile
from fmtkit.writing.run_lock import RunLock
from fmtkit.writing.sinks import TRAIN, Closing, RowFile, RunState
from fmtkit.writing.task_output import LocalPlace, TaskRecord
from fmtkit.writing.working_folder import (
    MANIFEST,
    QUARANTINE,
    REPORT,
    WorkingFolder,
    failed_name,
    is_whole,
    read_manifest,
    refuse_existing,
    refuse_folder,
    working_name,
)

SHARD_BYTES = 256 * 2**20
"""The size from which a shard is closed after the block."""
TASKS, SECONDS = 256, 5.0
"""Most worker tasks in one checkpoint; and how long the first of them waits for it."""


@dataclass(frozen=True)
class ResumePoint:
    """Where an interrupted run continues."""

    journal: Journal
    is_complete: bool = False
    """Whether nothing is left to do."""

    @property
    def next_block(self) -> tuple[int, int]:
        """Return the index of the source and of the block in it that come next."""
        return self.journal.next_block

    @property
    def state(self) -> Mapping[str, Any]:
        """Return the state that the pipeline saved at the last checkpoint; empty if there was none."""
        return self.journal.state


def find_resume(path: Path, fingerprint: Mapping[str, Any]) -> ResumePoint | None:
    """Find where a run to the folder `path` stopped; None where there is nothing to resume.

    `fingerprint` is JSON: all that the bytes of the output depend on.

    Raises:
        ResumeError: if input, options, template or version are not what they were.
        OutputExistsError: if another run writes there now.
    """
    work = WorkingFolder(path)
    RunLock(path, work.root).refuse_taken()
    with writing(path):
        work.restore()
    found = journal.load(work.journal)
    # A run renames `out` and then deletes the rest; killed in between, it is complete.
    is_complete = found is None or not work.out.exists()
    if is_complete:
        manifest = read_manifest(path)
        if not manifest:
            return None
        found = Journal(manifest["fingerprint"])
        with writing(path):
            work.remove()
    assert found is not None
    journal.check_fingerprint(path, found.fingerprint, fingerprint)
    return ResumePoint(found, is_complete)


class FolderSink:
    """Shards of every split in `data/`, quarantine, manifest and report.

    The quarantine and report of an earlier run that wrote no rows are replaced.

    Raises:
        OutputExistsError: if the folder exists and may not be overwritten, or fmtkit did not write it.
        ResumeError: if the shards of the run to be resumed are not what its journal says.
    """

    def __init__(
        self,
        path: Path,
        format: str,
        fingerprint: Mapping[str, Any],
        *,
        overwrite: bool = False,
        resume: ResumePoint | None = None,
        shard_bytes: int = SHARD_BYTES,
    ) -> None:
        self.path = path
        self._format = format
        self._shard_bytes = shard_bytes
        self._work = WorkingFolder(path)
        begun = Journal(fingerprint, overwrite=overwrite, id=uuid.uuid4().hex)
        self._journal = resume.journal if resume else begun
        self._overwrite = overwrite or self._journal.overwrite
        self._shards = [*self._journal.shards]
        self._recorded = len(self._shards)
        self._counts = Counter(shard.split for shard in self._shards)
        self._open: dict[str, RowFile] = {}
        self.report: Mapping[str, Any] = {}
        self._kept = path
        """Where the report and the quarantine end up."""
        with self._work.claimed() as self._lock:
            refuse_folder(path, overwrite=self._overwrite)
            with writing(path):
                if resume is None:
                    self._begin()
                else:
                    self._work.take_back(self._journal, format)
        self._journal_file = JournalFile(self._work.journal, is_new=resume is None)
        self._moves: dict[str, str] = {}
        """Shards that no checkpoint names yet: the worker's name of each, and its final name."""
        self._adopted = 0
        """How many tasks no checkpoint names yet, and the state of the run after them."""
        self._checkpoint_due: RunState | None = None
        self._waiting = 0.0
        self._quarantine = QuarantineFile(
            self._work.out / QUARANTINE, resume_at=self._journal.quarantine_bytes
        )

    def _begin(self) -> None:
        try:
            self._work.begin(self._journal)
        except BaseException:
            self._work.remove()
            raise

    @property
    def quarantine_path(self) -> Path:
        """Return where the quarantine is put."""
        return self._kept / QUARANTINE

    @property
    def report_path(self) -> Path:
        """Return where the report is put."""
        return self._kept / REPORT

    def write(self, encoded: Encoded, split: str = TRAIN) -> None:
        """Append rows to a split."""
        if not encoded.rows:
            return
        if split not in self._open:
            self._journal_file.check()
            name = working_name(split, self._counts[split], self._format)
            self._open[split] = RowFile(self._work.data / name, self._format, hashed=True)
        self._open[split].write(encoded)

    def quarantine(self, lines: bytes) -> None:
        """Append lines made by `fmtkit.writing.quarantine.encode`."""
        self._quarantine.write(lines)

    def end_block(self, progress: RunState) -> None:
        """Make a checkpoint after a task, and if a shard is full."""
        if progress.ends_task or any(
            shard.file.size >= self._shard_bytes for shard in self._open.values()
        ):
            self._close_shards(progress.metadata())
            self._checkpoint(progress)

    def _checkpoint(self, progress: RunState) -> None:
        """Write all shards since the previous checkpoint to the journal, and then move those of workers."""
        bad = self._quarantine.sync()
        sync_folder(self._work.out)
        shards, moves = tuple(self._shards[self._recorded :]), self._moves
        # First, so that a run that is interrupted below does not enter them twice.
        self._recorded, self._moves, self._adopted = len(self._shards), {}, 0
        self._journal_file.append(
            Checkpoint(progress.next_block, shards, bad, progress.state(), moves)
        )
        with writing(self.path):
            self._work.move(self._journal.id, moves)

    def _close_shards(self, metadata: Mapping[str, str]) -> None:
        for split, rows in sorted(self._open.items()):
            written = rows.close(metadata)
            rows.file.publish()
            assert written.sha256 is not None
            self._add(split, written.rows, written.bytes, written.sha256)
        self._open.clear()
        sync_folder(self._work.data)

    def _add(self, split: str, rows: int, bytes: int, sha256: str) -> None:
        """Enter a finished shard after those of its split."""
        self._shards.append(Shard(split, self._counts[split], rows, bytes, sha256))
        self._counts[split] += 1

    def workers_place(self) -> LocalPlace:
        """Return where workers put the shards of tasks."""
        place = self._work.place(self._journal.id)
        with writing(self.path):
            place.tasks.mkdir(parents=True, exist_ok=True)
            for making in place.tasks.glob("making-*"):
                shutil.rmtree(making)
        return place

    def finished_tasks(self) -> frozenset[int]:
        """Return the tasks that have a record from a worker of an earlier run."""
        return self._made.tasks_done()

    def finished(self, task: int) -> TaskRecord | None:
        """Return the record of such a task; None if it cannot be read, or a shard of it is missing."""
        return self._made.record(task)

    @property
    def _made(self) -> LocalPlace:
        return self._work.place(self._journal.id)

    def adopt(self, record: TaskRecord, bad: bytes, progress: RunState) -> None:
        """Take over a worker's output of the next task; `bad` is counted from the start of its sources.

        Until a checkpoint names its shards, they stay with its record, from which a run resumes as well:
        forcing each task to the disk once more would take longer than everything else that is done for it.
        """
        self._journal_file.check()
        self._quarantine.write(bad)
        for shard in record.shards:
            own = working_name(shard.split, self._counts[shard.split], self._format)
            self._moves[shard.name] = own
            self._add(shard.split, shard.rows, shard.bytes, shard.sha256)
        if not self._adopted:
            self._waiting = time.monotonic()
        self._adopted, self._checkpoint_due = self._adopted + 1, progress
        if self._adopted == TASKS or time.monotonic() - self._waiting > SECONDS:
            self._checkpoint(progress)

    def finish(self, closing: Closing) -> list[Written]:
        """Give shards their final names, write manifest and report, put the folder in place."""
        self._journal_file.check()
        self._close_shards(closing.metadata)
        if self._adopted and self._checkpoint_due is not None:
            self._checkpoint(self._checkpoint_due)
        self._journal_file.close()
        with writing(self.path):
            written = self._work.give_names(self._shards, self._format)
        names = [_named(file) for file in written]
        manifest = self._work.out / MANIFEST
        listed = self._manifest(closing.manifest, written)
        write_json(manifest, listed)
        further = [self._work.out / name for name in closing.beside]
        for path in further:
            write_bytes(path, closing.beside[path.name].encode())
        names += [_entry_of(path) for path in (manifest, *further)]
        report = closing.report(written)
        if closing.card is not None:
            card = closing.card(report, listed)
            write_bytes(self._work.out / CARD, card.encode("utf-8", "replace"))
        self._put_in_place(report, names)
        self._remove_failed()
        self._lock.release()
        return written

    def _manifest(self, given: Mapping[str, Any], written: Sequence[Written]) -> dict[str, Any]:
        files = [
            {
                "path": f"data/{file.path.name}",
                "split": shard.split,
                "rows": shard.rows,
                "bytes": shard.bytes,
                "sha256": shard.sha256,
            }
            for shard, file in zip(self._shards, written, strict=True)
        ]
        return {**given, "fingerprint": self._journal.fingerprint, "files": files}

    def reject(self, report: Mapping[str, Any]) -> None:
        """Keep only the quarantine and the report; next to an earlier folder, in one of their own."""
        self._journal_file.check()
        self._discard_shards()
        self._journal_file.close()
        # If it is killed after this, a resumed run starts again and ends in the same way.
        Journal(self._journal.fingerprint, overwrite=self._overwrite).save(self._work.journal)
        with writing(self.path):
            shutil.rmtree(self._work.data)
            if is_whole(self.path):
                self._kept = failed_name(self.path)
        self._put_in_place(report, [])
        self._lock.release()

    def _put_in_place(self, report: Mapping[str, Any], files: list[dict[str, Any]]) -> None:
        self._quarantine.publish()
        quarantine = self._work.out / QUARANTINE
        if quarantine.exists():
            files = [*files, _entry_of(quarantine)]
        self.report = {**report, "output": self.path.name, "files": files}
        write_json(self._work.out / REPORT, self.report)
        sync_folder(self._work.out)
        with writing(self.path):
            refuse_existing(self._kept, overwrite=self._overwrite)
            if (card := kept_card(self._kept)) is not None:
                shutil.copyfile(card, self._work.out / CARD)
            self._work.put_in_place(self._kept)

    def _remove_failed(self) -> None:
        """Delete the quarantine and report of an earlier run that wrote no rows, if fmtkit wrote them."""
        failed = failed_name(self.path)
        if entries_of(read_json(failed / REPORT)) is None:
            return
        with writing(failed):
            try:
                refuse_existing(failed, overwrite=True)
            except OutputExistsError:
                return
            shutil.rmtree(failed)

    def suspend(self) -> None:
        """Stop so that a later run may resume."""
        if self._adopted and self._checkpoint_due is not None:
            # For threads, which continue from the journal. If it cannot be written, workers' records have it.
            with suppress(WriteError):
                self._checkpoint(self._checkpoint_due)
        self._journal_file.close()
        self._discard_shards()
        self._quarantine.leave()
        self._lock.release()

    def _discard_shards(self) -> None:
        for rows in self._open.values():
            rows.discard()
        self._open.clear()

    def abort(self) -> None:
        """Leave nothing."""
        self._journal_file.close()
        self._discard_shards()
        self._quarantine.discard()
        with writing(self.path):
            self._work.remove()
        self._lock.release()


def _named(file: Written) -> dict[str, Any]:
    """Return a finished shard as the report names it."""
    return {"path": f"data/{file.path.name}", "bytes": file.bytes, "sha256": file.sha256}


def _entry_of(path: Path) -> dict[str, Any]:
    """Return a small finished file as the report next to it names it."""
    with writing(path), path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return {"path": path.name, "bytes": path.stat().st_size, "sha256": digest}
