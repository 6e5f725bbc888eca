"""The report of a run: what was read, what became of every row, what was written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from fmtkit.converting.ledger import TERMS, Ledger
from fmtkit.converting.pipeline import Progress
from fmtkit.converting.preparation import Job
from fmtkit.core import notebook_html
from fmtkit.core.atomic import Written
from fmtkit.core.codes import REASONS, WARNINGS


@dataclass(frozen=True)
class Report:
    """The result of a conversion; `as_dict` is report.json."""

    data: Mapping[str, Any]
    outputs: tuple[str, ...]
    """The files that were written, the quarantine last."""

    def as_dict(self) -> dict[str, Any]:
        """Return the report as it is written."""
        return dict(self.data)

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

    def __getattr__(self, name: str) -> Any:
        """Make every entry of the report an attribute: `report.rows_written`."""
        try:
            return self.__dict__["data"][name]
        except KeyError:
            raise AttributeError(name) from None


def report_of(
    job: Job,
    ledger: Ledger,
    progress: Progress,
    *,
    written: Sequence[Written] = (),
    seconds: float = 0.0,
) -> Report:
    """Account for a run: the ledger, the sources with their hashes, and what was written."""
    template = job.text.template
    data = {
        "type": job.options.type,
        "table": job.table.name(),
        "to": job.options.to,
        "template": template.name if template and job.text.form != "messages" else None,
        **ledger.as_dict(),
        "warnings": _with_extra_columns(ledger.warnings, job),
        "bytes_read": progress.bytes_of_sources(),
        "bytes_written": sum(file.bytes for file in written),
        "seconds": round(seconds, 3),
        "sources": sources_of(job, progress),
        "ignored_columns": list(job.ignored_columns),
        "open_columns": {
            one.name: one.could_be for one in job.open_columns if one.name in ledger.unread
        },
        "fmtkit": version("fmtkit"),
        "schema": {f.name: str(f.type) for f in job.schema},
    }
    return Report(data, ())


def _with_extra_columns(warnings: Mapping[str, int], job: Job) -> dict[str, int]:
    """Add the one warning that concerns a source and not a row: it is counted once for each."""
    sources = sum(bool({*plan.ignored} - {*job.options.ignore}) for plan in job.plans)
    extra = {"extra_columns": sources} if sources else {}
    return dict(sorted({**warnings, **extra}.items()))


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
