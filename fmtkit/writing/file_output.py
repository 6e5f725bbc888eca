"""The files of a single-file output (OUT, quarantine, report) and how they are put in place.

All files are complete under hidden names before the first gets its final name. The complete hidden report is
the decision, and the proof that fmtkit wrote what has its name already. If a run is killed after it, the next
one begins again where OUT did not exist before, and finishes it where rows were being replaced. The report of
the previous run is removed first and the new one comes last, so that an existing report is true.

.OUT.partial  .STEM.quarantine.jsonl.partial  .STEM.report.json.partial
.STEM.report.json.replaced   the report of the previous run, while the files are exchanged
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fmtkit.core.atomic import PartialFile, Written, partial_name, sync_folder, whole_json, writing
from fmtkit.core.errors import OutputExistsError, WriteError
from fmtkit.core.records import entries_of, read_json
from fmtkit.writing import formats
from fmtkit.writing.outputs import (
    entry,
    hidden_names,
    is_as_written,
    is_old,
    old_report,
    refuse_unless_as_written,
)


class FileOutput:
    """The three names of an output, and whether fmtkit wrote the files there. Methods may raise OSError."""

    def __init__(self, path: Path) -> None:
        self.rows = path
        self.quarantine = path.with_suffix(".quarantine.jsonl")
        self.report = path.with_suffix(".report.json")
        self.replaced = self.report.with_name(f".{self.report.name}.replaced")

    @property
    def failed(self) -> "FileOutput":
        """Return where the reports of a run without rows go while OUT holds an earlier output."""
        return FileOutput(self.rows.with_suffix(f".failed{self.rows.suffix}"))

    @property
    def names(self) -> list[Path]:
        """Return every name that is written to, hidden ones too."""
        return [*hidden_names((self.rows, self.quarantine, self.report)), self.replaced]

    def refuse(self, *, overwrite: bool) -> None:
        """Raise OutputExistsError unless fmtkit wrote what is there, and it may be replaced.

        The quarantine and report of a run that wrote no rows always may be, and what a killed run has put
        in place; other rows only with `overwrite`.
        """
        there = [p for p in (self.rows, self.quarantine, self.report) if os.path.lexists(p)]
        if not there:
            return
        for path in there:
            if path.is_symlink() or not path.is_file():
                what = "a symbolic link" if path.is_symlink() else "a folder or no plain file"
                raise OutputExistsError(f"{path} is {what}; choose another name")
        files = [path for path in there if path != self.report]
        entries = self._entries(files)
        if self._is_unfinished():
            there = files = [path for path in files if not self._is_ours(path)]
        is_whole = self.rows in there
        for path in files:
            hashed = overwrite or not is_whole
            refuse_unless_as_written(path, entries.get(path.name), self.report, hashed=hashed)
        if is_whole and not overwrite:
            raise OutputExistsError(f"{there[0]} exists already; --overwrite replaces it")

    def _entries(self, files: Sequence[Path]) -> Mapping[str, Any]:
        """Return what the report says of the files; OutputExistsError if it is not this output's."""
        report = read_json(self.report)
        entries = entries_of(report)
        # What a run without rows left is no reason for another name.
        if entries is not None and report["output"] in entries.keys() - {self.rows.name}:
            raise OutputExistsError(
                f"{self.report} is the report of {report['output']}, and would be that of "
                f"{self.rows.name} too; give OUT another name"
            )
        if entries is None and is_old(report):
            raise old_report(self.report, [*files, self.report])
        if entries is None and os.path.lexists(self.report):
            raise OutputExistsError(
                f"{self.report} exists already, and fmtkit did not write it; choose another OUT or "
                "move it away"
            )
        return entries or {}

    def own_report(self) -> Mapping[str, Any]:
        """Return the report of a finished OUT; raise OutputExistsError if fmtkit did not write it so."""
        entries = self._entries([self.rows])
        refuse_unless_as_written(self.rows, entries.get(self.rows.name), self.report)
        return read_json(self.report)

    def decide(
        self, report: Mapping[str, Any], written: Sequence[Written]
    ) -> tuple[dict[str, Any], PartialFile]:
        """Write the report, which names the files, under its hidden name: return it and its file."""
        files = [entry(file, self.rows.parent) for file in written]
        whole = {**report, "output": self.rows.name, "files": files}
        return whole, whole_json(self.report, whole)

    def recover(self, *, resume: bool = False) -> None:
        """Finish what a killed run had decided, if all its files exist and nothing else is in the way.

        Where it was to be the first output here, only with `resume`: other runs begin again.
        """
        decided = read_json(partial_name(self.report))
        others = (self.rows.with_suffix(f".{suffix}") for suffix in formats.names())
        found = [path for path in others if path.name == decided.get("output")]
        output = FileOutput(found[0]) if found else self
        begins_again = not resume and self._is_unfinished()
        if not begins_again and output._is_complete(decided):
            output.put_in_place()
        elif not begins_again and self.replaced.exists() and not self.report.exists():
            self.replaced.rename(self.report)

    def _is_complete(self, decided: Mapping[str, Any]) -> bool:
        """Return whether all that was decided is there, and fmtkit wrote what it replaces."""
        entries = entries_of(decided)
        if entries is None or not entries.keys() <= {self.rows.name, self.quarantine.name}:
            return False
        places = [self.rows.with_name(name) for name in entries]
        return all(self._is_there(place, entries[place.name]) for place in places) and all(
            self._is_ours(path) for path in (self.rows, self.quarantine)
        )

    def _is_unfinished(self) -> bool:
        """Return whether a run that replaced no rows was killed after its decision."""
        decided = read_json(partial_name(self.report))
        if entries_of(decided) is None or decided["output"] != self.rows.name:
            return False
        before = (entries_of(read_json(report)) or {} for report in (self.report, self.replaced))
        return not any(self.rows.name in entries for entries in before)

    def undo(self) -> None:
        """Delete what an unfinished run has put in place, and last the decision, by which it is known."""
        if not self._is_unfinished():
            return
        if not self.report.exists():  # the report of an earlier run is the first file that is moved
            for path in (self.rows, self.quarantine):
                if self._is_ours(path):
                    path.unlink(missing_ok=True)
            sync_folder(self.rows.parent)
        self.replaced.unlink(missing_ok=True)
        partial_name(self.report).unlink(missing_ok=True)

    def _is_there(self, place: Path, entry: Mapping[str, Any]) -> bool:
        return is_as_written(partial_name(place), entry) or is_as_written(place, entry)

    def _is_ours(self, path: Path) -> bool:
        """Return whether no file has this name, or a report of fmtkit names it."""
        if not os.path.lexists(path):
            return True
        reports = (self.report, self.replaced, partial_name(self.report))
        known = (entries_of(read_json(report)) or {} for report in reports)
        return any(is_as_written(path, e[path.name]) for e in known if path.name in e)

    def put_in_place(self) -> None:
        """Give the files their names, once the report is decided; the earlier output is removed.

        Raises:
            WriteError: if another run has taken the hidden names.
        """
        try:
            self._exchange()
        except FileNotFoundError as error:
            raise WriteError(
                f"{self.rows} is being written by another run; this one stops"
            ) from error

    def _exchange(self) -> None:
        entries = entries_of(read_json(partial_name(self.report))) or {}
        if self.report.exists():
            self.report.replace(self.replaced)
        for path in (self.quarantine, self.rows):
            if path.name not in entries:
                if os.path.lexists(path) and self._is_ours(path):
                    path.unlink()
            elif partial_name(path).exists():
                partial_name(path).replace(path)
        sync_folder(self.rows.parent)
        partial_name(self.report).replace(self.report)
        sync_folder(self.rows.parent)
        self.replaced.unlink(missing_ok=True)

    def remove(self) -> None:
        """Delete the quarantine and report of an earlier run that wrote no rows, if fmtkit wrote them."""
        if os.path.lexists(self.rows):
            return
        self.undo()
        partial_name(self.quarantine).unlink(missing_ok=True)
        if entries_of(read_json(self.report)) is None:
            return
        if self._is_ours(self.quarantine):
            self.quarantine.unlink(missing_ok=True)
            self.report.unlink()


def refuse_file(path: Path, *, overwrite: bool, resume: bool = False) -> None:
    """Raise OutputExistsError unless an output may be made at `path`; WriteError where nobody can look.

    What a killed run had decided is put in place first, if it replaced rows or is to be resumed.
    """
    output = FileOutput(path)
    with writing(path):
        if not path.parent.is_dir():
            return
        output.recover(resume=resume)
        if resume and output.rows.exists():
            return
        output.refuse(overwrite=overwrite)
        if output.rows.exists():
            failed = output.failed
            failed.recover()
            if os.path.lexists(failed.rows):
                raise OutputExistsError(
                    f"{failed.report} would be the report of {failed.rows} and of a failed run to "
                    f"{path}; choose another OUT"
                )
            failed.refuse(overwrite=overwrite)
