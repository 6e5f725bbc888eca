"""Why no row of a dataset is left to train on, from the report of its conversion."""

import json
from collections.abc import Collection
from pathlib import Path

from fmtkit.core.errors import NothingWrittenError


def why(error: NothingWrittenError, length: object, cuts: Collection[str] = ()) -> str:
    """Return what a user can do about it; `length` is the run's longest row in tokens.

    `cuts` are the ends of a row that the trainer can cut.
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
