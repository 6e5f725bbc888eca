"""The run folder: what a run writes there, and what keeps it from doing so.

A folder belongs to a run if it holds a plan of fmtkit. In any other folder, nothing may have a name that
a run writes or moves to earlier/; and in no folder may a source have such a name.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from fmtkit.core.atomic import writing
from fmtkit.core.errors import OutputExistsError
from fmtkit.core.records import read_json
from fmtkit.training.config import config
from fmtkit.training.planning import job
from fmtkit.training.planning.check import Run, check_run
from fmtkit.writing.outputs import refuse_sources

if TYPE_CHECKING:
    from fmtkit.training.planning.run_plan import Plan

PLAN = "plan.json"
SETTINGS = ("config.yaml", PLAN, "accelerate.yaml", job.FILE)
RESULTS = ("report.json", "model", "merged", "report.html", "curves.png")
"""What a run ends with; the report, which says that it ended, goes first."""
KEPT = (
    *RESULTS,
    "error.log",
    "checkpoints",
    "metrics.jsonl",
    "completions.parquet",
    "answers.html",
)
"""Everything that a run leaves; a resumed run continues with what is not a result."""
_OF_A_PLAN = {"source", "method", "config_class", "run", "launch"}
_MODELS = ("base_model", "tokenizer_config", "ref_model", "teacher_model")


@check_run("run_folder", "files", "an output_dir that contains other files, or inputs of the run")
def check(run: Run) -> None:
    """Look at the run folder before anything is written.

    Raises:
        OptionError: if the run would write over, or move, what it reads.
        OutputExistsError: if what it would write over, or move, is not of a run of fmtkit.
    """
    blocking = next((p for p in (run.plan.run, *run.plan.run.parents) if p.exists()), None)
    if blocking is not None and not blocking.is_dir():
        raise OutputExistsError(
            f"output_dir: {blocking} is a file, and a run writes a folder; choose another output_dir"
        )
    with writing(run.plan.run):
        _check(run.plan, RESULTS if run.resume else KEPT)


def _check(plan: "Plan", kept: tuple[str, ...]) -> None:
    folders = [plan.run / name for name in kept]
    files = [plan.run / name for name in SETTINGS if not _is_same(plan, plan.run / name)]
    refuse_sources(_sources(plan), files=files, folders=folders, option="output_dir")
    if read_json(plan.run / PLAN).keys() >= _OF_A_PLAN:
        return
    for name in (*SETTINGS, *kept, "data"):
        path = plan.run / name
        if os.path.lexists(path) and not (path.is_dir() and not any(path.iterdir())):
            raise OutputExistsError(
                f"{path} is there, and no run of fmtkit wrote it; choose another output_dir"
            )


def _is_same(plan: "Plan", path: Path) -> bool:
    """Return whether a run would write the same bytes again: a run's own config, run again."""
    if path.name != "config.yaml" or not path.is_file():
        return False
    return path.read_bytes() == config.dumps(plan.config).encode()


def _sources(plan: "Plan") -> Iterator[str]:
    """Yield the local files and folders that a run reads; names that are neither do no harm."""
    yield plan.source
    yield from filter(None, map(plan.config.text, _MODELS))
    for dataset in (*plan.datasets, *plan.test_datasets):
        files = dataset.entry.get("data_files")
        for name in (dataset.entry.get("path"), *(files if isinstance(files, list) else [files])):
            if isinstance(name, str):
                yield str(Path(name).expanduser())
