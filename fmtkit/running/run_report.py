"""The report of a run: what was read, what became of every row, what was written."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, Self, TypeVar, overload

from fmtkit.core import notebook_html
from fmtkit.core.atomic import Written
from fmtkit.core.codes import REASONS, WARNINGS, found_among
from fmtkit.core.data_classes import dataclass
from fmtkit.core.distributions import own_version
from fmtkit.core.text_parts import plain_text
from fmtkit.running.ledger import TERMS, Ledger
from fmtkit.running.pipeline import Progress
from fmtkit.running.preparation import Job
from fmtkit.running.report_text import report_parts

Value = TypeVar("Value")


class Entry(Generic[Value]):
    """An entry of report.json as an attribute with a type: `report.rows_written`."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, report: None, owner: type) -> Self: ...
    @overload
    def __get__(self, report: "Report", owner: type) -> Value: ...
    def __get__(self, report: "Report | None", owner: type) -> "Self | Value":
        if report is None:
            return self
        if self._name not in report.data:
            raise AttributeError(f"this report has no {self._name!r}")
        value: Value = report.data[self._name]
        return value


@dataclass(frozen=True, repr=False)
class Report:
    """The result of a conversion; `as_dict` is report.json, and its entries are attributes.

    What the entries mean is in `fmtkit schema report`.
    """

    data: Mapping[str, Any]
    outputs: tuple[str, ...]
    """The files that were written, the quarantine last."""

    def as_dict(self) -> dict[str, Any]:
        """Return the report as it is written."""
        return dict(self.data)

    def found(self, codes: Iterable[str]) -> tuple[str, ...]:
        """Return which of these codes were found, among bad rows and warnings."""
        return found_among(codes, self.data["reasons"], self.data["warnings"])

    def __str__(self) -> str:
        """Return what `fmtkit convert` prints."""
        return plain_text(report_parts(self.data, self.outputs)).rstrip()

    def __repr__(self) -> str:
        """Return the counts of rows: `print` shows the rest."""
        counts = (f"{n}={self.data[n]}" for n in ("rows_read", "quarantined", "rows_written"))
        return f"<Report of {self.data['type']}: {', '.join(counts)}>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the counts of rows, codes, files."""
        data = self.data
        terms = ("rows_read", *(t for t in TERMS if data.get(t)), "rows_written")
        template = f", rendered with {data['template']}" if data["template"] else ""
        return notebook_html.card(
            f"{data['type']} -> {data['table']}{template}",
            notebook_html.facts({term.replace("_", " "): data[term] for term in terms}),
            notebook_html.table(
                ["bad rows", "code", "meaning"],
                ((n, code, REASONS.get(code, "")) for code, n in data["reasons"].items()),
            ),
            notebook_html.table(
                ["warnings", "code", "meaning"],
                ((n, code, WARNINGS.get(code, "")) for code, n in data["warnings"].items()),
            ),
            notebook_html.table(["wrote"], ((path,) for path in self.outputs)),
        )

    type = Entry[str]()
    table = Entry[str]()
    to = Entry[str | None]()
    template = Entry[str | None]()
    rows_read = Entry[int]()
    converted = Entry[int]()
    quarantined = Entry[int]()
    skipped = Entry[int]()
    filtered = Entry[int]()
    overlong_dropped = Entry[int]()
    no_pair = Entry[int]()
    joined = Entry[int]()
    unpaired = Entry[int]()
    rows_written = Entry[int]()
    blank_lines = Entry[int]()
    reasons = Entry[dict[str, int]]()
    warnings = Entry[dict[str, int]]()
    unread_columns = Entry[dict[str, int]]()
    open_columns = Entry[dict[str, str]]()
    open_keys = Entry[dict[str, str]]()
    losses = Entry[dict[str, int]]()
    no_place = Entry[dict[str, int]]()
    bytes_read = Entry[int]()
    bytes_written = Entry[int]()
    seconds = Entry[float]()
    sources = Entry[list[dict[str, Any]]]()
    ignored_columns = Entry[list[str]]()
    originals = Entry[list[dict[str, Any]]]()
    replayed = Entry[list[dict[str, Any]]]()
    beside = Entry[dict[str, Any]]()
    template_difference = Entry[str | None]()
    tiers = Entry[dict[str, Any]]()
    output = Entry[str]()
    files = Entry[list[dict[str, Any]]]()
    fingerprint = Entry[dict[str, Any]]()
    fmtkit = Entry[str]()
    schema = Entry[dict[str, str]]()


def report_of(
    job: Job,
    ledger: Ledger,
    progress: Progress,
    jobs: Sequence[Job] = (),
    *,
    written: Sequence[Written] = (),
    seconds: float = 0.0,
) -> Report:
    """Account for a run: the ledger, the sources with their hashes, and what was written.

    `jobs` are all of the run, where `job` is the last of several.
    """
    jobs = jobs or (job,)
    templates = (one.text.template for one in jobs if one.text.form != "messages")
    template = next(filter(None, templates), None)
    data = {
        "type": job.options.type,
        "table": job.table.name(),
        "to": job.options.to,
        "template": template.name if template else None,
        **ledger.as_dict(),
        "warnings": _with_extra_columns(ledger.warnings, jobs),
        "bytes_read": progress.bytes_of_sources(),
        "bytes_written": sum(file.bytes for file in written),
        "seconds": round(seconds, 3),
        "sources": sources_of(job, progress),
        "ignored_columns": list(dict.fromkeys(n for one in jobs for n in one.ignored_columns)),
        "open_columns": {
            column.name: column.could_be
            for one in jobs
            for column in one.open_columns
            if column.name in ledger.unread
        },
        "open_keys": {key.name: key.could_be for one in jobs for key in one.open_keys.found},
        "fmtkit": own_version(),
        "schema": {f.name: str(f.type) for f in job.schema},
    }
    return Report(data, ())


def _with_extra_columns(warnings: Mapping[str, int], jobs: Sequence[Job]) -> dict[str, int]:
    """Add the warnings that concern a source and not a row: they are counted once for each."""
    plans = ((plan, job.options.ignore) for job in jobs for plan in job.plans)
    sources = sum(bool({*plan.ignored} - {*ignored}) for plan, ignored in plans)
    keys = sum(job.open_keys.sources for job in jobs)
    extra = {"extra_columns": sources, "open_keys": keys}
    return dict(sorted({**warnings, **{code: n for code, n in extra.items() if n}}.items()))


def sources_of(job: Job, progress: Progress) -> list[dict[str, Any]]:
    """Return each source with its hash, where it was hashed, and the rows read of it."""
    return [
        {
            "path": source.name,
            "sha256": source.sha256() if source.hashed else None,
            "rows": progress.rows.get(i, 0),
        }
        for i, source in enumerate(job.sources)
    ]
