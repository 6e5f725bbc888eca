"""Sinks of encoded rows: one file, or a folder of shards (`fmtkit.writing.folder_sink`).

A sink is called on one thread, in input order. Whatever happens, a file that is not complete never has a
final name.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Protocol

from fmtkit.core.atomic import PartialFile, Written, partial_name, writing
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OptionError, WriteError
from fmtkit.core.urls import ObjectPath
from fmtkit.writing import formats
from fmtkit.writing.file_output import FileOutput, refuse_file
from fmtkit.writing.formats import Encoded
from fmtkit.writing.quarantine import QuarantineFile

TRAIN = "train"
"""The split of every row without validation rows."""


@dataclass(frozen=True)
class Closing:
    """What is known only after the last row."""

    report: Callable[[Sequence[Written]], Mapping[str, Any]]
    """Makes the report, given what was written."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """Key-value metadata of Parquet and Arrow files."""
    manifest: Mapping[str, Any] = field(default_factory=dict)
    """Keys of a folder's manifest; its files and the fingerprint are added."""
    beside: Mapping[str, str] = field(default_factory=dict)
    """Name and text of further files of a folder."""
    card: Callable[[Mapping[str, Any], Mapping[str, Any]], str] | None = None
    """Makes the card of a local folder, given the report and the manifest."""


@dataclass(frozen=True)
class RunState:
    """The state of a run after a block."""

    next_block: tuple[int, int]
    """Index of the source and of the block in it that come next."""
    state: Callable[[], Mapping[str, Any]]
    """Returns what the pipeline needs to continue from there, as JSON; it is passed back on resume. Only what
    has changed since the last call, key by key of nested objects.
    """
    metadata: Callable[[], Mapping[str, str]]
    """Returns the key-value metadata of files that end here."""
    task: int = 0
    """The task of the block."""
    ends_task: bool = False
    """Whether it is the last block of its task: shards end with tasks."""


class Sink(Protocol):
    """The interface of an output, for the pipeline.

    Every method raises WriteError where the operating system refuses.
    """

    report: Mapping[str, Any]
    """The report as it was written, once the run has ended."""

    @property
    def quarantine_path(self) -> Path | ObjectPath:
        """Return where the quarantine is put."""

    @property
    def report_path(self) -> Path | ObjectPath:
        """Return where the report is put."""

    def write(self, encoded: Encoded, split: str = TRAIN) -> None:
        """Append rows to a split."""

    def quarantine(self, lines: bytes) -> None:
        """Append lines made by `fmtkit.writing.quarantine.encode`."""

    def end_block(self, progress: RunState) -> None:
        """Note that all rows of a block are written: from here a killed run may be resumed."""

    def finish(self, closing: Closing) -> list[Written]:
        """Give everything its final name."""

    def reject(self, report: Mapping[str, Any]) -> None:
        """End without an output: keep only the quarantine and the report, and what existed before."""

    def suspend(self) -> None:
        """Stop so that a later run may resume; nothing is under a final name."""

    def abort(self) -> None:
        """Leave nothing."""


class RowFile:
    """One file of rows, under its partial name until it is published."""

    def __init__(self, path: Path, format: str, *, hashed: bool) -> None:
        self.file = PartialFile(path, hashed=hashed)
        self.rows = 0
        self._stitcher = formats.find(format).stitcher()

    def write(self, encoded: Encoded) -> None:
        """Append rows.

        Raises:
            WriteError: also if their schema is not that of the rows before.
        """
        try:
            buffers = self._stitcher.add(encoded, self.file.size)
        except ValueError as error:
            raise WriteError(f"cannot write {self.file.path}: {error}") from error
        self.rows += encoded.rows
        for buffer in buffers:
            self.file.write(buffer)

    def close(self, metadata: Mapping[str, str]) -> Written:
        """Write the end of the file and force all to the disk."""
        self.file.write(self._stitcher.end(metadata))
        self.file.sync()
        return self.file.written(self.rows)

    def discard(self) -> None:
        """Close and delete."""
        self.file.discard()


class FileSink:
    """One file, its quarantine (if any row was bad) and its report next to it.

    The quarantine and report of an earlier run that wrote no rows are replaced.

    Raises:
        OutputExistsError: if one of them exists and fmtkit did not write it, or may not overwrite it.
        WriteError: if it cannot be created.
    """

    def __init__(self, path: Path, format: str, *, overwrite: bool = False) -> None:
        self.path = path
        self.report: Mapping[str, Any] = {}
        self._output = FileOutput(path)
        self._overwrite = overwrite
        refuse_file(path, overwrite=overwrite)
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._output.undo()
            partial_name(self._output.quarantine).unlink(missing_ok=True)
        self._decision: PartialFile | None = None
        self._quarantine = QuarantineFile(self._output.quarantine)
        self._rows = RowFile(path, format, hashed=True)

    @property
    def quarantine_path(self) -> Path:
        """Return where the quarantine is put."""
        return self._output.quarantine

    @property
    def report_path(self) -> Path:
        """Return where the report is put."""
        return self._output.report

    def write(self, encoded: Encoded, split: str = TRAIN) -> None:
        """Append rows; a file holds one split."""
        if split != TRAIN:
            raise OptionError(f"{self.path} is one file and holds one split; give a folder as OUT")
        self._rows.write(encoded)

    def quarantine(self, lines: bytes) -> None:
        """Append lines made by `fmtkit.writing.quarantine.encode`."""
        if lines and not self._quarantine.has_begun:
            # If another run has taken over the output, its files are left alone, so that one of the two ends.
            self._rows.file.check()
        self._quarantine.write(lines)

    def end_block(self, progress: RunState) -> None:
        """Do nothing: a single file starts again."""

    def finish(self, closing: Closing) -> list[Written]:
        """Give everything its final name, the report last."""
        written = self._rows.close(closing.metadata)
        bad = self._quarantine.written()
        self._decide(closing.report([written]), [written, *([bad] if bad else [])])
        self._rows.file.leave()
        self._quarantine.leave()
        self._put_in_place()
        with writing(self.path):
            self._output.failed.remove()
        return [written]

    def reject(self, report: Mapping[str, Any]) -> None:
        """Keep only the quarantine and the report; next to an earlier output, under other names."""
        self._rows.discard()
        bad = self._quarantine.written()
        if self.path.exists():
            self._output = self._output.failed
        if bad is not None and bad.path != self._output.quarantine:
            self._quarantine.leave()
            assert isinstance(bad.path, Path)
            with writing(self.path):
                partial_name(bad.path).replace(partial_name(self._output.quarantine))
            bad = replace(bad, path=self._output.quarantine)
        self._decide(report, [bad] if bad else [])
        self._quarantine.leave()
        self._put_in_place()

    def _decide(self, report: Mapping[str, Any], files: Sequence[Written]) -> None:
        """Check again what exists, and write the complete report."""
        with writing(self.path):
            self._output.refuse(overwrite=self._overwrite)
            self._output.undo()
        self.report, self._decision = self._output.decide(report, files)

    def _put_in_place(self) -> None:
        assert self._decision is not None
        self._decision.leave()
        with writing(self.path):
            self._output.put_in_place()

    def suspend(self) -> None:
        """Leave nothing: a single file starts again."""
        self.abort()

    def abort(self) -> None:
        """Leave nothing."""
        if self._decision is not None:
            self._decision.discard()
        self._rows.discard()
        self._quarantine.discard()
