"""What a run's report and model card say of its data: rows, hashes, and what they were made of."""

import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from fmtkit.training.run.job import Job


def of(work: Job) -> Iterator[dict[str, object]]:
    """Yield the facts of each converted file: RUN/data/00/data/train-….parquet."""
    import pyarrow.parquet as pq

    for source in (*work.train, *work.evaluation):
        for path in map(Path, source.files):
            folder = path.parent.parent
            yield {
                "file": f"{folder.name}/{path.name}",
                "rows": pq.read_metadata(path).num_rows,
                "sha256": sha256(path.read_bytes()).hexdigest(),
                "sources": _sources(folder / "report.json"),
            }


def _sources(report: Path) -> object:
    """Return the sources that a conversion's report names, with their hashes."""
    return json.loads(report.read_text(encoding="utf-8"))["sources"] if report.is_file() else []
