"""The working folder of an unfinished output, and how it replaces the output folder.

.OUT.partial/journal.json   what a resumed run needs
.OUT.partial/out/           the future OUT
.OUT.partial/tasks/ID/      what workers wrote for the run, and its records
.OUT.partial/old/           the previous OUT, while the two are exchanged
"""

import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fmtkit.core.atomic import Written, partial_name, sync_folder, writing
from fmtkit.core.errors import OutputExistsError, ResumeError
from fmtkit.core.records import entries_of, read_json
from fmtkit.writing.dataset_card import CARD
from fmtkit.writing.journal import Journal, Shard
from fmtkit.writing.outputs import is_old, old_report, refuse_unless_as_written
from fmtkit.writing.run_lock import LOCK, RunLock
from fmtkit.writing.task_output import LocalPlace

MANIFEST, REPORT, QUARANTINE = "manifest.json", "report.json", "quarantine.jsonl"
_FINAL = re.compile(r"(.+-\d{5,})-of-\d{5,}\.(\w+)")
"""The name of a shard once it is known how many there are."""
_WORKING = frozenset({LOCK, "journal.json", ".journal.json.partial", "out", "old", "tasks"})


class WorkingFolder:
    """The paths of an unfinished folder. Every method may raise OSError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.root = partial_name(path)
        self.journal = self.root / "journal.json"
        self.out = self.root / "out"
        self.data = self.out / "data"
        self.tasks = self.root / "tasks"
        self._old = self.root / "old"

    def restore(self) -> None:
        """Restore an overwritten folder's name, if a run was killed while they were exchanged."""
        if self._old.exists() and self.out.exists() and not self.path.exists():
            self._old.rename(self.path)

    def begin(self, journal: Journal) -> None:
        """Start with only a journal."""
        self._clear()
        self.data.mkdir(parents=True)
        journal.save(self.journal)
        sync_folder(self.root.parent)

    def take_back(self, journal: Journal, format: str) -> None:
        """Restore the folder to its state at the last checkpoint, whenever the run was killed.

        Raises:
            ResumeError: if a file of the journal is missing or has changed.
        """
        self.data.mkdir(exist_ok=True)
        for file in [*self.data.iterdir()]:
            if renamed := _FINAL.fullmatch(file.name):
                file.rename(self.data / f"{renamed[1]}.{renamed[2]}")
        self.move(journal.id, journal.moves)
        kept = set()
        for shard in journal.shards:
            working = self.data / working_name(shard.split, shard.index, format)
            _check_size(working, shard.bytes, exact=True)
            kept.add(working)
        quarantine = self.out / QUARANTINE
        partial = partial_name(quarantine)
        if quarantine.exists():
            quarantine.rename(partial)
        if journal.quarantine_bytes:
            _check_size(partial, journal.quarantine_bytes, exact=False)
            kept.add(partial)
        for file in files_of(self.out):
            if file not in kept:
                file.unlink()

    def give_names(self, shards: Sequence[Shard], format: str) -> list[Written]:
        """Rename shards so that names hold their number; return their final state."""
        totals = Counter(shard.split for shard in shards)
        final, written = self.path / "data", []
        for shard in shards:
            working = working_name(shard.split, shard.index, format)
            name = f"{working.removesuffix(f'.{format}')}-of-{totals[shard.split]:05}.{format}"
            # Of 200,000 shards, texts take 1 s where paths take 5.
            os.rename(f"{self.data}/{working}", f"{self.data}/{name}")  # noqa: PTH104
            written.append(Written(final / name, shard.rows, shard.bytes, shard.sha256))
        sync_folder(self.data)
        return written

    def place(self, run: str) -> LocalPlace:
        """Return where workers put their output for a run; their current folder may differ."""
        return LocalPlace((self.tasks / run).absolute())

    def move(self, run: str, moves: Mapping[str, str]) -> None:
        """Move shards that workers made for a run to the others, unless they have been moved already."""
        if not moves:
            return
        made = self.place(run).tasks
        for name, own in moves.items():
            with suppress(FileNotFoundError):
                os.rename(f"{made}/{name}", f"{self.data}/{own}")  # noqa: PTH104
        sync_folder(self.data)

    def put_in_place(self, path: Path | None = None) -> None:
        """Rename `out` to its final name, or to `path`; an earlier folder there is deleted."""
        target = path or self.path
        if target.exists():
            target.rename(self._old)
        self.out.rename(target)
        sync_folder(target.parent)
        self.remove()

    def remove(self) -> None:
        """Delete the working folder, if there is one."""
        if not self.root.exists():
            return
        self._clear()
        (self.root / LOCK).unlink(missing_ok=True)
        try:
            self.root.rmdir()
        except OSError:
            if not (self.root / LOCK).exists():  # else another run has begun there
                raise

    def _clear(self) -> None:
        for path in self.root.iterdir() if self.root.exists() else ():
            if path.name != LOCK:
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def refuse_foreign(self) -> None:
        """Raise OutputExistsError where something else has the name."""
        foreign = [path for path in self.root.glob("*") if path.name not in _WORKING]
        if foreign or (os.path.lexists(self.root) and not self.root.is_dir()):
            raise OutputExistsError(
                f"{self.root} is not what a run left; choose another OUT or move it away"
            )

    @contextmanager
    def claimed(self) -> Iterator[RunLock]:
        """Lock it for a run, and leave nothing but what was there if that cannot begin."""
        lock = RunLock(self.path, self.root)
        with writing(self.path):
            self.refuse_foreign()
            lock.take()
        try:
            yield lock
        except BaseException:
            if not self.journal.exists() and not self.out.exists():
                self.remove()
            lock.release()
            raise


def working_name(split: str, index: int, format: str) -> str:
    """Return the name of a shard while their number is not known."""
    return f"{split}-{index:05}.{format}"


def failed_name(path: Path) -> Path:
    """Return the folder for the quarantine and report of a run without rows while OUT holds earlier rows."""
    return path.with_name(f"{path.name}.failed")


def refuse_folder(path: Path, *, overwrite: bool) -> None:
    """Raise OutputExistsError unless `path` may be written; restore what a killed run moved aside.

    That no run writes there now is for the caller to know (`RunLock`).
    """
    work = WorkingFolder(path)
    with writing(path):
        work.refuse_foreign()
        work.restore()
        refuse_existing(path, overwrite=overwrite)
        if is_whole(path):
            refuse_existing(failed_name(path), overwrite=True)


def refuse_existing(path: Path, *, overwrite: bool) -> None:
    """Raise OutputExistsError unless `path` may become an output folder.

    It may if there are only empty folders, or only the quarantine and report of a run that wrote no rows;
    with `overwrite` also if each file is as the report in the folder says. A card is no obstacle: one
    that somebody wrote is kept.
    """
    if not os.path.lexists(path):
        return
    if path.is_symlink() or not path.is_dir():
        what = "a symbolic link" if path.is_symlink() else "a file"
        raise OutputExistsError(f"{path} is {what}; choose another name for the folder")
    if path.is_mount():
        raise OutputExistsError(f"{path} is a mount point; name a folder in it")
    found = [file for file in files_of(path) if file != path / CARD or file.is_symlink()]
    if not found:
        return
    report = read_json(path / REPORT)
    entries = entries_of(report)
    if entries is None and is_old(report):
        raise old_report(path / REPORT, [path])
    whole = is_whole(path)
    for file in found:
        name = file.relative_to(path).as_posix()
        if name == REPORT and entries is not None and not file.is_symlink():
            continue
        if entries is None or name not in entries:
            raise OutputExistsError(
                f"{path} exists already and holds {name}, which fmtkit did not write; "
                "choose another folder"
            )
        refuse_unless_as_written(file, entries[name], path / REPORT, hashed=overwrite or not whole)
    if whole and not overwrite:
        raise OutputExistsError(f"{path} exists already; --overwrite replaces it")


def is_whole(path: Path) -> bool:
    """Return whether a folder holds rows that fmtkit wrote."""
    return bool(read_manifest(path))


def files_of(folder: Path) -> list[Path]:
    """Return every file below a folder, in order of the names."""
    return sorted(path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of a folder that fmtkit wrote; an empty one where there is none."""
    manifest = read_json(folder / MANIFEST)
    return manifest if {"fingerprint", "files"} <= manifest.keys() else {}


def _check_size(path: Path, size: int, *, exact: bool) -> None:
    found = path.stat().st_size if path.exists() else 0
    if found < size or (exact and found != size):
        raise ResumeError(
            f"{path} has {found} bytes where the journal says {size}; start again without --resume"
        )
