"""Why no row of a dataset is left to train on, from the report of its conversion."""

import json

from fmtkit.errors import NothingWrittenError


def why(error: NothingWrittenError, length: object) -> str:
    """Return what a user can do about it; `length` is the run's longest row in tokens."""
    file = error.report
    report = json.loads(file.read_text(encoding="utf-8")) if file is not None else {}
    dropped = report.get("overlong_dropped", 0)
    if dropped and dropped == report.get("rows_read"):
        return (
            f"all {dropped} rows are longer than {length} tokens; raise sequence_len, or set "
            "excess_length_strategy: truncate"
        )
    return f"{error}; {file} counts them"
