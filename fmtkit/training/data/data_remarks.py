"""What became of a run's rows before training: a count and a reason for rows that are left out."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fmtkit.training.planning.plan import Plan


def data_remarks(plan: Plan) -> list[str]:
    """Return a line for each dataset of what its conversion left out or took apart."""
    folders = [plan.run / "data" / f"{index:02}" for index in range(len(plan.datasets))]
    named = zip(plan.datasets, folders, strict=True)
    return [
        f"datasets: {dataset.source}: {line}"
        for dataset, folder in named
        if (folder / "report.json").is_file()
        for line in _lines(plan, folder)
    ]


def _lines(plan: Plan, folder: Path) -> Iterator[str]:
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    read = report["rows_read"]
    if report["overlong_dropped"]:
        what = "prompts" if report["table"] == "Prompt" else "rows"
        yield (
            f"{report['overlong_dropped']:,} of {read:,} {what} have more than {_limit(plan)} "
            "tokens and do not train; sequence_len sets the limit"
        )
    cut = report["warnings"].get("truncated", 0)
    if cut:
        yield f"{cut:,} of {read:,} rows have more than {_limit(plan)} tokens: the trainer cuts them"
    if report["quarantined"]:
        reasons = ", ".join(f"{code} {count:,}" for code, count in report["reasons"].items())
        yield (
            f"{report['quarantined']:,} of {read:,} rows are not sound and do not train "
            f"({reasons}); {folder / 'quarantine.jsonl'} lists them"
        )
    for column, rows in report["unread_columns"].items():
        yield (
            f"column {column} carries turns, answers or labels in {rows:,} rows that type "
            f"{report['type']} does not read: they do not train"
        )
    if report["unpaired"]:
        yield (
            f"{report['unpaired']:,} pairs were taken apart for {plan.method}: a liked and a disliked "
            "row of each"
        )
    if report["filtered"]:
        yield f"{report['filtered']:,} of {read:,} rows were left out by the type's own function"


def _limit(plan: Plan) -> Any:
    resolution = plan.resolution
    limit = resolution.trainer.get("max_length") or resolution.own.get("max_length")
    return limit.value if limit is not None else "so many"
