"""Where encoded rows go: one file, or a folder of shards (`fmtkit.writing.folder_sink`).

A sink is called on one thread, in input order. Whatever happens, nothing stands under a final name
that is not whole.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from fmtkit.atomic import PartialFile, Written, sync_folder, write_json, writing
from fmtkit.errors import OptionError, OutputExistsError, WriteError
from fmtkit.writing.encoding import Encoded
from fmtkit.writing.quarantine import QuarantineFile
from fmtkit.writing.stitching import STITCHERS

TRAIN = "train"
"""The split of every row, unless some are set apart for validation."""


@dataclass(frozen=True)
class Closing:
    """What is known only once every row is written."""

    report: Callable[[Sequence[Written]], Mapping[str, Any]]
    """Makes the report, told what was written."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """Key-value metadata of Parquet and Arrow files."""
    manifest: Mapping[str, Any] = field(default_factory=dict)
    """Keys of a folder's manifest; its files and the fingerprint are added."""


@dataclass(frozen=True)
class Progress:
    """Where a run stands after a block."""

    next_block: tuple[int, int]
    """Index of the source and of the block in it that come next."""
    state: Mapping[str, Any]
    """What the pipeline needs to go on from there, as JSON; it comes back on resume."""
    metadata: Mapping[str, str]
    """Key-value metadata of files that end here."""


class Sink(Protocol):
    """What the pipeline does with an output.

    Every method raises WriteError where the operating system refuses.
    """

    def write(self, encoded: Encoded, split: str = TRAIN) -> None:
        """Append rows to a split."""

    def quarantine(self, lines: bytes) -> None:
        """Append lines made by `fmtkit.writing.quarantine.encode`."""

    def end_block(self, progress: Progress) -> None:
        """Say that all rows of a block are written: from here a killed run may be resumed."""

    def finish(self, closing: Closing) -> list[Written]:
        """Give everything its final name."""

    def reject(self, report: Mapping[str, Any]) -> None:
        """End without an output: keep only the quarantine and the report."""

    def suspend(self) -> None:
        """Stop so that a later run may resume; nothing stands under a final name."""

    def abort(self) -> None:
        """Leave nothing."""


class RowFile:
    """One file of rows, under its partial name until it is published."""

    def __init__(self, path: Path, format: str, *, hashed: bool) -> None:
        self.file = PartialFile(path, hashed=hashed)
        self.rows = 0
        self._stitcher = STITCHERS[format]()

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
    """One file, its quarantine (if any row was bad) and its report beside it.

    Raises:
        OutputExistsError: if the file is there and is not to be overwritten.
        WriteError: if it cannot be created.
    """

    def __init__(self, path: Path, format: str, *, overwrite: bool = False) -> None:
        if path.is_dir():
            raise OutputExistsError(f"{path} is a folder; choose another name")
        if path.exists() and not overwrite:
            raise OutputExistsError(f"{path} exists already; --overwrite replaces it")
        self.path = path
        self._report = path.with_suffix(".report.json")
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        self._quarantine = QuarantineFile(path.with_suffix(".quarantine.jsonl"))
        self._rows = RowFile(path, format, hashed=False)

    def write(self, encoded: Encoded, split: str = TRAIN) -> None:
        """Append rows; a file holds one split."""
        if split != TRAIN:
            raise OptionError(f"{self.path} is one file and holds one split; give a folder as OUT")
        self._rows.write(encoded)

    def quarantine(self, lines: bytes) -> None:
        """Append lines made by `fmtkit.writing.quarantine.encode`."""
        self._quarantine.write(lines)

    def end_block(self, progress: Progress) -> None:
        """Remember nothing: a single file starts again."""

    def finish(self, closing: Closing) -> list[Written]:
        """Give everything its final name, the rows last: where they are, the report is too."""
        written = self._rows.close(closing.metadata)
        self._quarantine.publish()
        write_json(self._report, closing.report([written]))
        self._rows.file.publish()
        sync_folder(self.path.parent)
        return [written]

    def reject(self, report: Mapping[str, Any]) -> None:
        """Keep only the quarantine and the report; an overwritten file goes too."""
        self._rows.discard()
        self._quarantine.publish()
        write_json(self._report, report)
        with writing(self.path):
            self.path.unlink(missing_ok=True)
        sync_folder(self.path.parent)

    def suspend(self) -> None:
        """Leave nothing: a single file starts again."""
        self.abort()

    def abort(self) -> None:
        """Leave nothing."""
        self._rows.discard()
        self._quarantine.discard()
