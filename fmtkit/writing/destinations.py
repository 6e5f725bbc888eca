"""Sinks of an OUT: files of this machine, or of an object store."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from fmtkit.core import storage
from fmtkit.core.atomic import partial_name
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OptionError
from fmtkit.core.records import read_json
from fmtkit.core.urls import ObjectPath
from fmtkit.writing import folder_sink, journal, object_sinks, working_folder
from fmtkit.writing.file_output import FileOutput, refuse_file
from fmtkit.writing.folder_sink import FolderSink, ResumePoint
from fmtkit.writing.object_sinks import ObjectFile, ObjectFileSink, ObjectFolderSink, Resumption
from fmtkit.writing.object_store import Store
from fmtkit.writing.outputs import Destination, refuse_sources
from fmtkit.writing.run_lock import RunLock
from fmtkit.writing.sinks import FileSink, Sink


@dataclass(frozen=True)
class EarlierRun:
    """What an earlier run left of an output, for `--resume`."""

    report: Mapping[str, Any] | None = None
    """The report of a finished run: nothing is left to do."""
    fingerprint: Mapping[str, Any] | None = None
    """The fingerprint of a finished file."""
    point: ResumePoint | Resumption | None = None
    """Where a folder continues."""


def find(out: Destination, fingerprint: Mapping[str, Any]) -> EarlierRun:
    """Find what a run with `--resume` need not repeat.

    Raises:
        ResumeError: if input, options, template or version are not what they were.
        OutputExistsError: if the output exists and fmtkit did not write it.
    """
    path = out.path
    if out.format is not None:
        report = _report_of_file(out)
        return EarlierRun(report, report["fingerprint"]) if report is not None else EarlierRun()
    if isinstance(path, ObjectPath):
        found = object_sinks.find_resumption(path, fingerprint)
        done = found is not None and found.is_complete
        return EarlierRun(object_sinks.read_report(path)) if done else EarlierRun(point=found)
    point = folder_sink.find_resume(path, fingerprint)
    if point is not None and point.is_complete:
        return EarlierRun(read_json(path / working_folder.REPORT))
    return EarlierRun(point=point)


def begun_at(outputs: Iterable[Destination]) -> datetime | None:
    """Return the date that the templates of an interrupted run write, for `--resume`.

    With several outputs of one run, the first that knows it; None if none does.

    Raises:
        ResumeError: if a journal cannot be read.
    """
    for out in outputs:
        if (date := _begun_with(out).get(journal.DATE)) is not None:
            return datetime.fromisoformat(date)
    return None


def _begun_with(out: Destination) -> Mapping[str, Any]:
    if out.format is not None:
        # A single file is never resumed.
        return {}
    if isinstance(out.path, ObjectPath):
        return object_sinks.begun_with(out.path)
    unfinished = journal.begun_with(working_folder.WorkingFolder(out.path).journal)
    finished: Mapping[str, Any] = working_folder.read_manifest(out.path).get("fingerprint", {})
    return unfinished or finished


def _report_of_file(out: Destination) -> Mapping[str, Any] | None:
    if isinstance(out.path, ObjectPath):
        return ObjectFile(out.path).own_report()
    return FileOutput(out.path).own_report() if out.path.exists() else None


def open_sink(
    out: Destination,
    format: str,
    fingerprint: Mapping[str, Any],
    *,
    overwrite: bool,
    point: ResumePoint | Resumption | None = None,
) -> Sink:
    """Start an output, or continue a folder from where `find` found it.

    Raises:
        OutputExistsError: if it exists and may not be overwritten, or fmtkit did not write it.
        WriteError: if it cannot be created.
    """
    if isinstance(out.path, ObjectPath):
        if out.format is not None:
            return ObjectFileSink(out.path, format, overwrite=overwrite)
        assert not isinstance(point, ResumePoint)
        return ObjectFolderSink(out.path, format, fingerprint, resume=point, overwrite=overwrite)
    if out.format is not None:
        return FileSink(out.path, format, overwrite=overwrite)
    assert not isinstance(point, Resumption)
    return FolderSink(out.path, format, fingerprint, resume=point, overwrite=overwrite)


def refuse(out: Destination, sources: Iterable[str], *, overwrite: bool, resume: bool) -> None:
    """Raise, before anything is read or written, if OUT or a file next to it may not be written.

    The sinks check again before they put anything in place.

    Raises:
        OptionError: if it is, or holds, a source.
        OutputExistsError: if there is a file that fmtkit did not write, or may not replace.
    """
    path = out.path
    if isinstance(path, ObjectPath):
        _refuse_object(path, out.format, sources, overwrite=overwrite, resume=resume)
    elif out.format is None:
        folders = (path, partial_name(path), working_folder.failed_name(path))
        refuse_sources(sources, folders=folders)
        RunLock(path, partial_name(path)).refuse_taken()
        if not (resume and working_folder.is_whole(path)):
            working_folder.refuse_folder(path, overwrite=overwrite)
    else:
        output = FileOutput(path)
        refuse_sources(sources, files=[*output.names, *output.failed.names])
        refuse_file(path, overwrite=overwrite, resume=resume)


def _refuse_object(
    path: ObjectPath, format: str | None, sources: Iterable[str], *, overwrite: bool, resume: bool
) -> None:
    own = storage.place_of(str(path))
    for name in sources:
        host, place = storage.place_of(name)
        is_below = format is None and place.startswith(f"{own[1]}/")
        if host == own[0] and (place == own[1] or is_below):
            raise OptionError(f"{path} is, or holds, the source {name}; choose another OUT")
    if format is not None:
        output = ObjectFile(path)
        if not (resume and output.own_report() is not None):
            output.refuse(overwrite=overwrite)
        return
    store = Store(path)
    names = store.sizes()
    # The rest of an unfinished run is checked by --resume.
    if not (resume and (working_folder.MANIFEST in names or object_sinks.is_begun(names))):
        object_sinks.refuse_folder(path, names, store, overwrite=overwrite)
