"""The hand-written cases of fixtures/: how one is found, run and written.

A case is `[CASE.]source.jsonl` in fixtures/NAME, with what it becomes beside it: `canonical.jsonl`
(null keys of messages left out), `chatml.jsonl` (rendered), `quarantine.jsonl` and
`chatml.quarantine.jsonl` (line, code, column), `warnings.json`; `settings.json` says how to run it.

A target of `--to` has `TABLE.source.jsonl`, canonical rows, in fixtures/targets/NAME; beside it is what is
`written` (without nulls) and `rejected` (row, code, column, message). `make fixtures NAME=...` prints what differs.
"""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import fmtkit
from fmtkit.core.image_columns import data_uri
from fmtkit.core.tables import TABLES, final_rows, has_images
from fmtkit.formats import target_registry
from fmtkit.options.convert_options import RowOptions
from fmtkit.running.conversions import open_named
from fmtkit.running.pipeline import stream
from fmtkit.running.preparation import Job, prepare
from fmtkit.work.engines import Threads

FIXTURES = Path(__file__).parents[1] / "fixtures"
MODEL_TEMPLATE = ("chat_template.", "bradley_terry.")


@dataclass(frozen=True)
class Case:
    """One case of one converter."""

    name: str
    case: str

    def path(self, ending: str) -> Path:
        return FIXTURES / self.name / (f"{self.case}.{ending}" if self.case else ending)

    @property
    def source(self) -> Path:
        return self.path("source.jsonl")

    @property
    def settings(self) -> dict[str, Any]:
        path = self.path("settings.json")
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

    def lines(self, ending: str) -> list[Any]:
        path = self.path(ending)
        return [json.loads(line) for line in read_lines(path)] if path.exists() else []

    def __str__(self) -> str:
        return f"{self.name}/{self.case}" if self.case else self.name


@dataclass(frozen=True)
class Outcome:
    """What a case became."""

    rows: list[dict[str, Any]]
    rejects: list[dict[str, Any]]
    warnings: dict[str, int]


def read_lines(path: Path) -> list[bytes]:
    """Cut at newlines only: `str.splitlines` cuts at U+2028 too."""
    held = path.read_bytes().removesuffix(b"\n")
    return held.split(b"\n") if held else []


def cases() -> list[Case]:
    sources = sorted(FIXTURES.glob("*/*source.jsonl"))
    ending = "source.jsonl"
    return [Case(p.parent.name, p.name.removesuffix(ending).rstrip(".")) for p in sources]


def job_of(case: Case, source: Path, *, template: str | None = None, **more: Any) -> Job:
    """Bind a case's type to a source, as messages or rendered with a template."""
    settings, kind = case.settings | more, case.name
    if template is None:
        if source.parent != case.source.parent and b"pictures/" in source.read_bytes():
            settings |= {"image_folder": str(case.source.parent)}
        return prepare(open_named(str(source)), RowOptions(type=kind, **settings))
    if kind.startswith(MODEL_TEMPLATE):
        settings |= {"chat_template": template}
    else:
        kind = f"{template}.{kind}"
    return prepare(open_named(str(source)), RowOptions(type=kind, as_="text", **settings))


def run(
    case: Case, source: Path | None = None, *, template: str | None = None, **more: Any
) -> Outcome:
    """Convert a case, or another source as that; `more` are further options."""
    rows: list[dict[str, Any]] = []
    rejects: list[dict[str, Any]] = []
    warnings: Counter[str] = Counter()
    job = job_of(case, source or case.source, template=template, **more)
    for piece in stream(job, engine=Threads(1)):
        made = final_rows(piece.table)
        rows += [pictured(without_nulls(row), made.schema) for row in made.to_pylist()]
        rejects += [{"line": r.line, "code": r.code, "column": r.column} for r in piece.rejects]
        warnings += piece.counts.warnings
    return Outcome(rows, rejects, dict(sorted(warnings.items())))


def pictured(row: dict[str, Any], schema: pa.Schema) -> dict[str, Any]:
    """Return a row with its images as texts: bytes as a data URI, a path as it is beside the source."""
    if not has_images(schema):
        return row
    texts = [
        Path(image["path"]).name if image["bytes"] is None else data_uri(image["bytes"])
        for image in row["images"]
    ]
    return {**row, "images": texts}


def without_nulls(value: Any) -> Any:
    """Leave out what a message does not have; a null column of the row stays."""
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "role" in value:
        return {key: item for key, item in value.items() if item is not None}
    return {key: without_nulls(item) for key, item in value.items()}


METHODS = {
    "Prompt": "grpo",
    "Unpaired": "kto",
    "Preference": "dpo",
    "Completion": "sft",
    "Conversation": "sft",
}
"""Table -> a method that trains on it, for sources that leave it open."""


def target_file(to: str, table: str, what: str) -> Path:
    """Return the file of a target with its `source`, or with what is `written` or `rejected`."""
    return FIXTURES / "targets" / to / f"{table.lower()}.{what}.jsonl"


def write_target(to: str, table: str, folder: Path) -> tuple[list[Any], list[Any]]:
    """Write the source of a target's fixtures in its layout; return the rows and the rejects."""
    kind = {name.lower(): found for name, found in TABLES.items()}[table.lower()]
    out = folder / f"out.{target_registry.find(to, kind, text=False).formats[0]}"
    rows = [json.loads(line) for line in read_lines(target_file(to, table, "source"))]
    fmtkit.convert(rows, "passthrough", out, to=to, method=METHODS[kind.name()], overwrite=True)
    if out.suffix == ".jsonl":
        made = [json.loads(line) for line in read_lines(out)]
    else:
        made = [without_any_null(row) for row in pq.read_table(out).to_pylist()]
    found = out.with_suffix(".quarantine.jsonl")
    rejects = [json.loads(line) for line in read_lines(found)] if found.exists() else []
    return made, [[r["row"], r["code"], r["column"], r["message"]] for r in rejects]


def without_any_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_any_null(v) for k, v in value.items() if v is not None}
    return [without_any_null(item) for item in value] if isinstance(value, list) else value


def renders(case: Case) -> bool:
    """Return whether a case's table has conversations that a template can render."""
    job = job_of(case, case.source)
    made = job.converter
    return not made.text and job.table.name() not in ("Stepwise", "Tokens", "Ranking", "Reference")
