"""Replay: quarantined rows are repaired, and the output is rewritten as if they had been valid.

The run is taken from the report that names the quarantine. Its sources are read again, with the repaired
rows in the places of the bad ones; the hashes of the sources must be unchanged.
"""

import gzip
import hashlib
import io
import json
import tempfile
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import field, replace
from datetime import datetime
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import IO, Any, cast

import pyarrow as pa

from fmtkit.core import user_modules
from fmtkit.core.arguments import checked
from fmtkit.core.atomic import write_json
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OptionError, ResumeError, SourceError
from fmtkit.core.options import refuse_empty
from fmtkit.core.records import entries_of, read_json
from fmtkit.formats import registry
from fmtkit.options.convert_options import ConvertOptions
from fmtkit.running.conversion_run import fingerprint_of
from fmtkit.running.conversions import open_named, with_split, write_jobs
from fmtkit.running.preparation import prepare_all
from fmtkit.running.progress_bar import Watch
from fmtkit.running.run_report import Report
from fmtkit.sources.compression import compression_of
from fmtkit.sources.jsonl import BOM
from fmtkit.sources.raw import READ_BYTES, RangeHash
from fmtkit.sources.readers import JsonReader
from fmtkit.sources.source import Source
from fmtkit.writing.journal import DATE
from fmtkit.writing.outputs import Destination
from fmtkit.writing.working_folder import MANIFEST, QUARANTINE, REPORT

Fix = Callable[[Any], Any]
_ENDING = ".quarantine.jsonl"


@dataclass(frozen=True)
class Run:
    """The run that wrote a quarantine: the place of its report, and its options."""

    quarantine: Path
    report_path: Path
    report: Mapping[str, Any]
    fingerprint: Mapping[str, Any]
    out: Destination

    @property
    def originals(self) -> list[dict[str, Any]]:
        """Return the sources without any repaired row."""
        return list(self.report.get("originals") or self.fingerprint["sources"])


@checked
def replay(
    quarantine: str | Path,
    *,
    fix: str | None = None,
    plugins: Sequence[str] = (),
    watch: Watch | None = None,
) -> Report:
    """Convert the rows of a quarantine again and rewrite the output that they were missing from.

    Args:
        quarantine: The file, in which `raw` may have been edited by hand.
        fix: `FILE.function`, called with each row: a dict, or the raw text of a line that is no object. It
            returns the repaired row, as a dict or a line of JSON, or None if the row stays bad.
        plugins: The plugins of the run.
        watch: Progress callback.

    Returns:
        The report of the new run; `quarantined` counts the rows that are still bad.

    Raises:
        OptionError: for a quarantine or a run that cannot be replayed, or a function that cannot be used.
        ResumeError: if a source, the version, a template or the user's code has changed.
        SourceError: if a source cannot be read.
        NothingWrittenError, LimitError: as `convert`; the output is left as it was.

    Example:
        >>> fmtkit.replay("pairs.quarantine.jsonl", fix="repair.mend")  # doctest: +SKIP
    """
    refuse_empty(quarantine, "QUARANTINE")
    run = _run_of(Path(quarantine))
    for plugin in plugins:
        registry.load_plugin(plugin)
    options = _options_of(run, plugins)
    repairs = _Repairs(_rows_of(run), None if fix is None else _function(fix))
    with ExitStack() as stack:
        names = [source["path"] for source in run.fingerprint["sources"]]
        opened = [_with_rows(run, name, repairs, stack, options) for name in names]
        jobs = [with_split(job, options) for job in prepare_all(opened, options)]
        _check_alike(run, fingerprint_of(jobs, options))
        _acknowledge(run)
        counts = {"originals": run.originals, "replayed": repairs.made}
        jobs = [replace(job, replayed=counts) for job in jobs]
        return write_jobs(jobs, run.out, options, watch, limit=options.limit)


def _run_of(quarantine: Path) -> Run:
    """Find the report of the run that wrote a quarantine."""
    if not quarantine.is_file():
        raise SourceError(f"{quarantine} cannot be opened: no such file")
    of_folder = quarantine.name == QUARANTINE
    if not of_folder and not quarantine.name.endswith(_ENDING):
        raise OptionError(
            f"{quarantine} is not a quarantine file: give OUT{_ENDING} or OUT/{QUARANTINE}"
        )
    stem = quarantine.name.removesuffix(_ENDING)
    path = quarantine.with_name(REPORT if of_folder else f"{stem}.report.json")
    report = read_json(path)
    if quarantine.name not in (entries_of(report) or {}):
        raise OptionError(
            f"{quarantine}: no {path.name} next to it names it; convert the source again"
        )
    if not report["rows_written"]:
        raise OptionError(
            f"{quarantine}: its run wrote no rows; repair the source and convert it again"
        )
    holder = read_json(quarantine.with_name(MANIFEST)) if of_folder else report
    fingerprint = holder.get("fingerprint", {})
    out = quarantine.parent if of_folder else quarantine.with_name(report["output"])
    made = None if of_folder else out.suffix.removeprefix(".")
    return Run(quarantine, path, report, fingerprint, Destination(out.absolute(), made))


def _options_of(run: Run, plugins: Sequence[str]) -> ConvertOptions:
    """Return the options of the run."""
    kept = run.fingerprint.get("options", {})
    if kept.get("config") or kept.get("split") or kept.get("cut_in_training"):
        raise OptionError(
            f"{run.report_path}: its run read a config; repair the source and convert it again"
        )
    if len(run.report["sources"]) != len(run.fingerprint["sources"]):
        raise OptionError(f"{run.report_path}: a source of its run can be read only once")
    code = run.fingerprint.get("code", {})
    missing = [
        path for path in code if Path(path).resolve() not in {Path(p).resolve() for p in plugins}
    ]
    if missing:
        raise OptionError(f"the run was given --plugin {missing[0]}: give it to replay too")
    known = ConvertOptions.declared()
    given = {name: value for name, value in kept.items() if name in known and value is not None}
    options = ConvertOptions(**given, plugins=tuple(plugins), overwrite=True)
    date = run.fingerprint.get(DATE)
    return options if date is None else replace(options, begun=datetime.fromisoformat(date))


@dataclass(frozen=True)
class _Row:
    """The new text of a line of a source: `raw`, or the line itself if `raw` is only its beginning."""

    raw: bytes
    is_cut: bool = False
    is_final: bool = False
    """Whether an earlier replay repaired it."""


@dataclass(frozen=True)
class _Repairs:
    """The rows to put into each source, by line, and their outcome."""

    rows: Mapping[str, Mapping[int, _Row]]
    fix: Fix | None
    made: list[dict[str, Any]] = field(default_factory=list)

    def line(self, name: str, number: int, there: bytes) -> bytes:
        """Return the current text of a line of a source, without its line end."""
        row = self.rows[name][number]
        raw = row.raw
        if row.is_cut:
            if not there.startswith(raw):
                raise OptionError(
                    f"{name}:{number}: the quarantine holds only the beginning of this row, which was "
                    "edited; repair it with --fix, or in the source"
                )
            raw = there
        if self.fix is not None and not row.is_final:
            raw = _fixed(raw, self.fix)
        if raw != there:
            text = raw.decode("utf-8", "surrogateescape")
            self.made.append({"file": name, "line": number, "raw": text})
        return raw


def _rows_of(run: Run) -> dict[str, dict[int, _Row]]:
    """Return, by source and line, the rows of the quarantine, and the rows repaired before."""
    found: dict[str, dict[int, _Row]] = {}
    for entry in run.report.get("replayed", ()):
        raw = entry["raw"].encode("utf-8", "surrogateescape")
        found.setdefault(entry["file"], {})[entry["line"]] = _Row(raw, is_final=True)
    with run.quarantine.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                name, place, row = _entry(line, f"{run.quarantine}:{number}")
                found.setdefault(name, {})[place] = row
    return found


def _entry(line: bytes, where: str) -> tuple[str, int, _Row]:
    try:
        record = json.loads(line)
        name, place = record["file"], record["line"]
        raw = record["raw"].encode() if "raw" in record else b64decode(record["raw_base64"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise OptionError(
            f"{where}: not a line of a quarantine file ({error}); edit only `raw`"
        ) from error
    if not isinstance(place, int):
        raise OptionError(
            f"{where}: {name} is not JSON lines, which replay needs: repair it and convert it again"
        )
    raw = raw.rstrip(b"\r\n")
    if b"\n" in raw:
        raise OptionError(f"{where}: raw is more than one line; a row is one line of JSON")
    return name, place, _Row(raw, is_cut="raw_bytes" in record)


def _function(fix: str) -> Fix:
    """Load FILE.function, with or without the suffix of the file."""
    stem, _, name = fix.replace(".py:", ".").replace(".py.", ".").rpartition(".")
    file = Path(f"{stem}.py")
    spec = spec_from_file_location(file.stem, file) if stem and file.is_file() else None
    if spec is None or spec.loader is None:
        raise OptionError(f"--fix {fix}: no file {file}; give FILE.function")
    module = module_from_spec(spec)
    user_modules.serve([file.parent], module.__name__)
    run_file = spec.loader.exec_module
    found = _call_user_code(fix, file, lambda: run_file(module) or vars(module).get(name))
    if not callable(found):
        raise OptionError(f"--fix {fix}: {file} has no function {name!r}")
    return lambda row: _call_user_code(fix, file, lambda: found(row))


def _call_user_code(fix: str, file: Path, call: Callable[[], Any]) -> Any:
    """Call user code; an exception becomes a one-line error."""
    try:
        return call()
    except Exception as error:
        raise OptionError(f"--fix {fix}: {user_modules.describe(error, file)}") from error


def _fixed(raw: bytes, fix: Fix) -> bytes:
    """Return a repaired row as a line, or the unchanged row if the function returns None."""
    text = raw.decode("utf-8", "replace")
    try:
        row = json.loads(text)
    except (ValueError, RecursionError):
        row = None
    made = fix(row if isinstance(row, dict) else text)
    if made is None:
        return raw
    if isinstance(made, Mapping):
        made = json.dumps(made, ensure_ascii=False, allow_nan=False)
    if not isinstance(made, str) or "\n" in made:
        raise OptionError("--fix: the function returned neither a dict, a line of JSON nor None")
    return made.encode("utf-8", "surrogatepass")


def _with_rows(
    run: Run, name: str, repairs: _Repairs, stack: ExitStack, options: ConvertOptions
) -> Source:
    """Open a source with the repaired lines in place of its own; the source must be unchanged."""
    path = Path(name)
    if not path.is_file():
        raise SourceError(f"{name} cannot be opened: it is no longer there, and the run read it")
    known = next(source for source in run.originals if source["path"] == name)
    _check_source(path, known)
    (source,) = open_named([name], options)
    if not repairs.rows.get(name):
        return source
    if not isinstance(source.reader, JsonReader):
        raise OptionError(
            f"{name}: only JSON lines can be replayed; repair it and convert it again"
        )
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fmtkit-replay-")))
    place = folder / "rows.jsonl"
    with _text_of(path) as lines, place.open("wb") as file:
        for number, line in enumerate(lines, 1):
            if number == 1 and line.lstrip(BOM).lstrip().startswith(b"["):
                raise OptionError(
                    f"{name}: a JSON array cannot be replayed; repair it and convert it again"
                )
            file.write(_new_line(name, number, line, repairs))
    (mended,) = open_named([place], options)
    mended.name = name
    return mended


def _new_line(name: str, number: int, line: bytes, repairs: _Repairs) -> bytes:
    if number not in repairs.rows[name]:
        return line
    begin = BOM if number == 1 and line.startswith(BOM) else b""
    there = line.removeprefix(begin).rstrip(b"\r\n")
    end = line[len(begin) + len(there) :]
    return begin + repairs.line(name, number, there) + end


def _text_of(path: Path) -> IO[bytes]:
    """Open the text of a file, which may be compressed."""
    with path.open("rb") as file:
        kind = compression_of(file.read(8))
    if kind == "gzip":
        return cast("IO[bytes]", gzip.open(path))
    if kind == "zstd":
        return io.BufferedReader(pa.CompressedInputStream(pa.OSFile(str(path)), "zstd"))
    return path.open("rb")


def _check_source(path: Path, known: Mapping[str, Any]) -> None:
    """Raise ResumeError unless a source is unchanged since the run."""
    if known.get("sha256") is not None:
        is_same = _hash_of(path, in_ranges="-" in known["sha256"]) == known["sha256"]
    else:
        found = path.stat()
        is_same = (found.st_size, found.st_mtime_ns) == (known["bytes"], known["changed"])
    if not is_same:
        raise ResumeError(f"{path} was changed since the run read it; convert it again")


def _hash_of(path: Path, *, in_ranges: bool) -> str:
    """Return the hash of a file: by ranges as now, or of the whole file as in 0.1."""
    digest = RangeHash() if in_ranges else hashlib.sha256()
    with path.open("rb") as file:
        while data := file.read(READ_BYTES):
            digest.update(data)
    return digest.hexdigest()


_ALIKE = {
    "fmtkit": "fmtkit",
    "version": "the version of outputs",
    "template": "the template",
    "code": "the code",
}


def _check_alike(run: Run, now: Mapping[str, Any]) -> None:
    """Raise ResumeError if version, template or code has changed."""
    added = sorted(set(now["code"]) - set(run.fingerprint.get("code", {})))
    if added:
        raise ResumeError(
            f"the run of {run.quarantine} did not use {', '.join(added)}; replay it with the plugins "
            "that it had"
        )
    for key, what in _ALIKE.items():
        if now[key] != run.fingerprint.get(key):
            raise ResumeError(
                f"{what} has changed since the run of {run.quarantine}; convert again"
            )


def _acknowledge(run: Run) -> None:
    """Record the edited quarantine in the report, so that it may be replaced."""
    data = run.quarantine.read_bytes()
    own = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    files = [
        {**file, **own} if file["path"] == run.quarantine.name else file
        for file in run.report["files"]
    ]
    if files != run.report["files"]:
        write_json(run.report_path, {**run.report, "files": files})
