"""Notes on a run's data from the reports of conversions: rows that are left out, and facts for its report."""

import json
from collections.abc import Collection, Iterator
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fmtkit.core.errors import NothingWrittenError
from fmtkit.training.planning.job import Job

if TYPE_CHECKING:
    from fmtkit.training.planning.run_plan import Plan
    from fmtkit.training.planning.types import DatasetPlan


def data_remarks(plan: "Plan") -> list[str]:
    """Return lines on what the conversion of each dataset left out or split."""
    folders = [plan.run / "data" / f"{index:02}" for index in range(len(plan.datasets))]
    named = zip(plan.datasets, folders, strict=True)
    return [
        f"datasets: {dataset.source}: {line}"
        for dataset, folder in named
        if (folder / "report.json").is_file()
        for line in _lines(plan, dataset, folder)
    ]


def _lines(plan: "Plan", dataset: "DatasetPlan", folder: Path) -> Iterator[str]:
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    read = report["rows_read"]
    if report["overlong_dropped"]:
        what = "prompts" if report["table"] == "Prompt" else "rows"
        yield (
            f"{report['overlong_dropped']:,} of {read:,} {what} have more than {_limit(plan)} "
            "tokens and are not trained on; sequence_len sets the limit"
        )
    cut = report["warnings"].get("truncated", 0)
    if cut:
        yield f"{cut:,} of {read:,} rows have more than {_limit(plan)} tokens: the trainer cuts them"
    lossy = report["warnings"].get("content_dropped", 0)
    if lossy:
        yield (
            f"the template leaves out text or tools of {lossy:,} of {read:,} rows: the model does not "
            "see them"
        )
    thoughts = report["warnings"].get("reasoning_dropped", 0)
    if thoughts:
        yield (
            f"the template leaves out the reasoning of replies in {thoughts:,} of {read:,} rows: it is "
            "not trained on"
        )
    if report["quarantined"]:
        reasons = ", ".join(f"{code} {count:,}" for code, count in report["reasons"].items())
        yield (
            f"{report['quarantined']:,} of {read:,} rows are not valid and are not trained on "
            f"({reasons}); {folder / 'quarantine.jsonl'} lists them"
        )
    for column, rows in report["unread_columns"].items():
        yield (
            f"column {column} carries turns, answers or labels in {rows:,} rows that type "
            f"{report['type']} does not read: they are not trained on"
        )
    if report["unpaired"]:
        yield (
            f"{report['unpaired']:,} pairs were split for {plan.method}: a desirable and an undesirable "
            "row of each"
        )
    if report["filtered"]:
        is_chosen = "where" in dataset.entry or plan.config.get("where") is not None
        by = ["where"] * is_chosen + ["the type's own function"] * bool(dataset.reading.function)
        yield f"{report['filtered']:,} of {read:,} rows were left out by {' or '.join(by)}"


def _limit(plan: "Plan") -> Any:
    limit = plan.arguments.max_length
    return limit if limit is not None else "so many"


def facts(work: Job) -> Iterator[dict[str, object]]:
    """Yield the facts of each converted file: RUN/data/00/data/train-….parquet."""
    import pyarrow.parquet as pq

    for source in (*work.train, *work.evaluation):
        for path in map(Path, source.files):
            folder = path.parent.parent
            yield {
                "file": f"{folder.name}/{path.name}",
                "rows": pq.read_metadata(path).num_rows,
                "sha256": sha256(path.read_bytes()).hexdigest(),
                "sources": _sources_of(folder / "report.json"),
            }


def _sources_of(report: Path) -> object:
    """Return the sources that a conversion's report names, with their hashes."""
    return json.loads(report.read_text(encoding="utf-8"))["sources"] if report.is_file() else []


def why_empty(error: NothingWrittenError, length: object, cuts: Collection[str] = ()) -> str:
    """Return why no row of a dataset is left, and what to do.

    `length` is the run's longest row in tokens, `cuts` are the ends of a row that the trainer can cut.
    """
    file = error.report
    # A run's rows are on this machine.
    report = json.loads(file.read_text(encoding="utf-8")) if isinstance(file, Path) else {}
    dropped = report.get("overlong_dropped", 0)
    if dropped and dropped == report.get("rows_read"):
        way = min(cuts, default=None)
        advice = f", or set excess_length_strategy: {way}" if way else ""
        return f"all {dropped} rows are longer than {length} tokens; raise sequence_len{advice}"
    return f"{error}; {file} counts them"
