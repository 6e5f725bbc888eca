"""The rows and completions on which `fmtkit rewards test` runs reward functions, without a model."""

import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import NothingWrittenError, OptionError, SourceError
from fmtkit.core.message_keys import for_template
from fmtkit.reading.keeping import JSON_FIELD
from fmtkit.reading.where_filter import keep_where
from fmtkit.rewards.answers import text_of
from fmtkit.rewards.correctness import REFERENCES
from fmtkit.running.conversions import convert_to
from fmtkit.sources.blocks import ArrowRows, Records, plain_json
from fmtkit.sources.canonical_json import canonical
from fmtkit.sources.opening import open_sources
from fmtkit.training.data import datasets
from fmtkit.training.planning.run_plan import Plan
from fmtkit.training.planning.types import DatasetPlan

_UNMEASURED: dict[str, Any] = {
    "tokenizer": None,
    "chat_template": None,
    "max_length": None,
    "on_overlong": "keep",
}
"""Options of rows whose lengths do not matter."""


@dataclass(frozen=True)
class Tried:
    """A row with one completion; `kind` is its origin: reference, empty, echo or given."""

    row: int
    prompt: Any
    kind: str
    completion: Any
    columns: Mapping[str, Any]

    @property
    def text(self) -> str:
        """The completion as text."""
        return text_of(self.completion)


def first_rows(plan: Plan, count: int) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the first rows of each dataset, as reward functions get them, and remarks on rows left out."""
    rows: list[dict[str, Any]] = []
    remarks: list[str] = []
    for dataset in plan.datasets:
        with tempfile.TemporaryDirectory() as folder:
            converted, lines = _converted(plan, dataset, count, Path(folder))
        rows += converted
        remarks += [f"{dataset.source}: {line}" for line in lines]
    return rows, remarks


def own_completions(rows: Sequence[Mapping[str, Any]]) -> list[Tried]:
    """Pair rows with completions: the reference if it exists, an empty one, and the question repeated."""
    out = []
    for number, row in enumerate(rows):
        answers = {"reference": _reference(row), "empty": "", "echo": _question(row["prompt"])}
        out += [
            Tried(number, row["prompt"], kind, _shaped(text, row["prompt"]), row)
            for kind, text in answers.items()
            if text is not None
        ]
    return out


def read_completions(rows: Sequence[Mapping[str, Any]], path: str) -> list[Tried]:
    """Pair the completions of a file with rows: line by line, or by their own `row`."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"--completions: {path}: {error}") from error
    out = []
    for number, line in enumerate(line for line in lines if line.strip()):
        row, completions = _line(line, number, path, len(rows))
        prompt = rows[row]["prompt"]
        out += [Tried(row, prompt, "given", _shaped(c, prompt), rows[row]) for c in completions]
    if not out:
        raise OptionError(f"--completions: {path} holds no completion")
    return sorted(out, key=lambda one: one.row)


def _line(line: str, number: int, path: str, count: int) -> tuple[int, list[Any]]:
    """Read TEXT, [MESSAGE, ...] or {"completion": ..., "row": N} ("completions": a list of such)."""
    where = f"--completions: {path}:{number + 1}"
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise OptionError(f"{where}: {error}; write a JSON text, or an object") from error
    row, completions = number, [value]
    if isinstance(value, dict):
        row = value.get("row", number)
        completions = value.get(
            "completions", [value["completion"]] if "completion" in value else []
        )
    if not isinstance(row, int) or not 0 <= row < count:
        raise OptionError(f"{where}: row {row!r}: there are rows 0 to {count - 1}; see --n")
    if (
        not isinstance(completions, list)
        or not completions
        or not all(map(_is_completion, completions))
    ):
        raise OptionError(f"{where}: takes a string or messages under `completion`")
    return row, completions


def _is_completion(value: Any) -> bool:
    return isinstance(value, str) or (
        isinstance(value, list) and all(isinstance(m, dict) and "role" in m for m in value)
    )


def _converted(
    plan: Plan, dataset: DatasetPlan, count: int, folder: Path
) -> tuple[list[dict[str, Any]], list[str]]:
    selection = plan.slice_of(dataset)
    specs, _ = datasets.specs_of(dataset, selection)
    options = replace(
        datasets.options_of(plan, dataset, selection, local=False, split=False),
        limit=count,
        hash="never",
        **_UNMEASURED,
    )
    out = folder / "rows.parquet"
    try:
        head = _head(specs, count, folder, options.where)
        if head:
            # Its rows are those that the condition takes.
            options = replace(options, where=None)
        report = convert_to(head or specs, out, options)
    except NothingWrittenError as error:
        raise NothingWrittenError(f"datasets: {dataset.source}: {error}") from error
    bad = report.as_dict()["reasons"]
    counts = ", ".join(f"{code} {n}" for code, n in bad.items())
    return _plain(out), [f"rows that are not valid are left out: {counts}"] if bad else []


def _head(specs: Sequence[object], count: int, folder: Path, where: str | None) -> list[object]:
    """Write the first rows of the sources as JSON lines, since a transform runs over complete sources."""
    path = folder / "head.jsonl"
    written = 0
    with path.open("w", encoding="utf-8", errors="surrogatepass") as file:
        for source in keep_where(open_sources(specs, hashed=False), where):
            block = source.first_block()
            if block is None:
                continue
            records = block.records()
            if not isinstance(records, Records | ArrowRows):
                return []
            for value, fault in islice(records.values(written=True), count):
                if fault is None and written < count:
                    file.write(canonical(plain_json(value)) + "\n")
                    written += 1
    return [str(path)] if written else []


def _plain(path: Path) -> list[dict[str, Any]]:
    """Read converted rows as Python values, without absent keys of messages, JSON decoded."""
    table = pq.read_table(path)
    (key, mark), *_ = JSON_FIELD.items()
    coded = [f.name for f in table.schema if f.metadata and f.metadata.get(key) == mark]
    rows: list[dict[str, Any]] = table.to_pylist()
    for row in rows:
        row |= {name: json.loads(row[name]) for name in coded if row[name] is not None}
        if isinstance(row.get("prompt"), list):
            row["prompt"] = [for_template(message) for message in row["prompt"]]
    return rows


def _reference(row: Mapping[str, Any]) -> str | None:
    reference = next((row[name] for name in REFERENCES if row.get(name) not in (None, "")), None)
    return (
        None
        if reference is None
        else reference
        if isinstance(reference, str)
        else json.dumps(reference)
    )


def _question(prompt: Any) -> str:
    return prompt if isinstance(prompt, str) else str(prompt[-1].get("content") or "")


def _shaped(completion: Any, prompt: Any) -> Any:
    """Give a string the form that TRL gives completions: messages where the prompt is messages."""
    if isinstance(prompt, str):
        return completion if isinstance(completion, str) else text_of(completion)
    if isinstance(completion, str):
        return [{"role": "assistant", "content": completion}]
    return completion


def columns_of(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the columns that any row has, without prompt and completion."""
    standard = {"prompt", "completion", "completion_ids"}
    return list(dict.fromkeys(name for row in rows for name in row if name not in standard))
