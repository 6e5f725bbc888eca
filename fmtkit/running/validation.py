"""Validation: the same reading and checking as a conversion, with nothing written."""

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import field, replace
from typing import Any

import pyarrow as pa

from fmtkit.core import notebook_html
from fmtkit.core.codes import Reject, found_among
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import NothingWrittenError
from fmtkit.core.escaping import counted
from fmtkit.core.tables import is_carried
from fmtkit.core.text_parts import plain_text
from fmtkit.formats.table_schemas import row_schema
from fmtkit.options.convert_options import RowOptions
from fmtkit.running.conversions import RowStream
from fmtkit.running.ledger import ErrorLimit, Ledger
from fmtkit.running.pipeline import Piece, Progress, stream
from fmtkit.running.preparation import Job
from fmtkit.running.progress_bar import Watch
from fmtkit.running.report_text import finding_line, findings_parts
from fmtkit.running.run_report import Report
from fmtkit.running.task_work import (
    counts_of,
    ledger_of,
    limited,
    limited_tasks,
    naming_lost_tasks,
    works_by_tasks,
)
from fmtkit.work.engine_choice import engine_of
from fmtkit.work.engines import Inline, session
from fmtkit.work.tasks import Task
from fmtkit.writing.task_output import Counts


@dataclass(frozen=True)
class Finding:
    """One bad row; `line` is None if the source has no lines."""

    file: str
    row: int
    line: int | None
    code: str
    column: str | None
    message: str


@dataclass(frozen=True, repr=False)
class Findings:
    """Every finding of a validation, and its ledger."""

    items: tuple[Finding, ...]
    ledger: Ledger
    report: Report
    limit: ErrorLimit = field(default_factory=ErrorLimit)

    @property
    def exit_code(self) -> int:
        """Return 0 if nothing was found (or no more than is allowed), 4 if there are no rows, else 1."""
        if not self.ledger.rows_read:
            return NothingWrittenError.exit_code
        if not self.items:
            return 0
        if self.limit.rows is None and self.limit.share is None:
            return 1
        return int(self.limit.is_exceeded(self.ledger))

    def found(self, codes: Iterable[str]) -> tuple[str, ...]:
        """Return which of these codes were found, among bad rows and warnings."""
        bad = (item.code for item in self.items)
        return found_among(codes, bad, self.report.data["warnings"])

    def __str__(self) -> str:
        """Return what `fmtkit validate` prints."""
        bad = "".join(f"{finding_line(item)}\n" for item in self.items)
        return (bad + plain_text(findings_parts(self.as_dict()))).rstrip()

    def __repr__(self) -> str:
        """Return how many rows are sound: `print` shows the findings."""
        rows = f"{self.ledger.converted:,} of {counted(self.ledger.rows_read, 'row')} sound"
        return f"<Findings: {rows}, {counted(len(self.items), 'bad row')}>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: how many rows are sound, and the findings."""
        title = f"{self.ledger.converted:,} of {counted(self.ledger.rows_read, 'row')} sound"
        rows = (
            (i.file, i.row if i.line is None else i.line, i.code, i.message) for i in self.items
        )
        return notebook_html.card(
            title,
            notebook_html.table(["file", "line", "code", "message"], rows),
            severity="error" if self.items else "fine",
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the findings as JSON-able data."""
        counts = Counter(item.code for item in self.items)
        return {
            "type": self.report.data["type"],
            "table": self.report.data["table"],
            "rows_read": self.ledger.rows_read,
            "filtered": self.ledger.filtered,
            "sound": self.ledger.converted,
            "reasons": dict(sorted(counts.items())),
            "warnings": self.report.data["warnings"],
            "unread_columns": self.report.data["unread_columns"],
            "findings": [vars(item) for item in self.items],
        }


def validate_sources(
    sources: Sequence[object] | object,
    options: RowOptions,
    *,
    schema: bool = False,
    watch: Watch | None = None,
) -> Findings:
    """Check sources; without a type they must be rows in TRL's formats (`passthrough`).

    Raises what `convert` raises before the first row, and SourceError.
    """
    # The limit is applied at the end: validation lists every finding and does not stop at one.
    limited = options.words(["max_errors"])
    unlimited = replace(options, command="validate", on_error="quarantine", max_errors=None)
    unlimited = replace(unlimited, beside=(*limited, *options.beside))
    with session():
        rows = RowStream(sources, unlimited, watch)
        items = (_by_tasks if works_by_tasks(rows.job) else _by_blocks)(rows, schema=schema)
    limit = ErrorLimit.parse(options.max_errors)
    return Findings(tuple(items), rows.ledger, rows.report(), limit)


def _by_blocks(rows: RowStream, *, schema: bool) -> list[Finding]:
    """Check blocks as they come to this process."""
    check = _SchemaCheck(rows.job) if schema else None
    return [f for piece in rows for f in _findings(rows.job, piece, check)]


def _by_tasks(rows: RowStream, *, schema: bool) -> list[Finding]:
    """Have workers check the tasks, and number their findings by the rows and lines of the sources."""
    job, items = rows.job, []
    tasks = limited_tasks(job)
    mapped = engine_of(job.options).map(CheckOfTask(job, schema), iter(tasks))
    with closing(naming_lost_tasks(mapped, job.sources)) as checked:
        for task, (counts, found) in zip(tasks, checked, strict=True):
            source = task.parts[0][0]
            # Only the first of its sources may have been started by the tasks before.
            first = rows.progress.rows.get(source, 0), rows.progress.lines.get(source, 1) - 1
            items += [_shifted(f, *first) if own == source else f for own, f in found]
            rows.ledger.merge(ledger_of(counts))
            rows.progress.jump(task, counts)
            rows.report_progress()
    rows.ledger.check()
    return items


@dataclass(frozen=True)
class CheckOfTask:
    """Checks the rows of a task; it can be pickled."""

    job: Job
    schema: bool

    def __call__(self, task: Task) -> tuple[Counts, list[tuple[int, Finding]]]:
        """Read and convert a task; return its counts, and each finding with the index of its source."""
        check = _SchemaCheck(self.job) if self.schema else None
        ledger, progress = Ledger(), Progress()
        found = []
        for piece in stream(limited(self.job, task), engine=Inline(), tasks=[task]):
            found += [(piece.source, finding) for finding in _findings(self.job, piece, check)]
            ledger.add(piece, skipped=False)
            progress.add(piece)
        return counts_of(ledger, progress), found


def _findings(job: Job, piece: Piece, check: "_SchemaCheck | None") -> list[Finding]:
    """Return the findings of a block, by row."""
    name = job.sources[piece.source].name
    found = [finding_of(name, reject) for reject in piece.rejects]
    if check is not None:
        found += check.findings(piece, name)
    return sorted(found, key=lambda finding: finding.row)


def _shifted(finding: Finding, rows: int, lines: int) -> Finding:
    line = None if finding.line is None else finding.line + lines
    return replace(finding, row=finding.row + rows, line=line)


def finding_of(name: str, reject: Reject) -> Finding:
    """Return the finding for a bad row of the named source."""
    return Finding(name, reject.row, reject.line, reject.code, reject.column, reject.message)


class _SchemaCheck:
    """Canonical rows against their JSON Schema, as JSON lines would hold them without what is carried."""

    def __init__(self, job: Job) -> None:
        from jsonschema import Draft202012Validator

        self.validator = Draft202012Validator(row_schema(job.table))

    def findings(self, piece: Piece, name: str) -> list[Finding]:
        found = []
        for i, row in enumerate(_rows(piece.table)):
            for error in self.validator.iter_errors(row):
                path = error.json_path
                found.append(
                    Finding(
                        name,
                        int(piece.records[i]),
                        piece.line(i),
                        "value_error",
                        path,
                        f"{path}: {error.message}",
                    )
                )
        return found


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    made = table.select([name for name in table.schema.names if not is_carried(name)])
    return [_without_nulls(row) for row in made.to_pylist()]


def _without_nulls(value: Any) -> Any:
    """Drop null keys of messages, as JSON lines are written without them."""
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    if isinstance(value, dict):
        return {k: _without_nulls(v) for k, v in value.items() if v is not None or k == "content"}
    return value
