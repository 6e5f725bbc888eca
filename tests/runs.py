"""Conversions of a test's own lines, and all that came of them."""

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fmtkit.core.errors import FmtkitError
from fmtkit.options.convert_options import ConvertOptions
from fmtkit.running.conversions import convert_to
from fmtkit.running.ledger import TERMS

Line = bytes | Mapping[str, Any]

INTEL = {"question": "What is 2 + 2?", "chosen": "4", "rejected": "5"}
KTO = {"question": "What is 2 + 2?", "completion": "4", "label": True}


@dataclass(frozen=True)
class Outcome:
    """What a conversion left behind."""

    rows: list[dict[str, Any]]
    quarantine: list[dict[str, Any]]
    report: dict[str, Any]
    error: FmtkitError | None = None

    @property
    def verdicts(self) -> list[tuple[int | None, str, str | None]]:
        """Return line, code and column of each bad row."""
        return [(bad["line"], bad["code"], bad["column"]) for bad in self.quarantine]


def line(row: Line) -> bytes:
    """Return a row as a line of JSON; bytes are a line already."""
    return row if isinstance(row, bytes) else json.dumps(row, ensure_ascii=False).encode()


def lines(rows: Iterable[Line]) -> bytes:
    """Return rows as JSON lines."""
    return b"".join(line(row) + b"\n" for row in rows)


def convert(folder: Path, data: bytes | list[Line], type: str, **options: Any) -> Outcome:
    """Convert a file of these bytes or rows to Parquet in a folder."""
    source = folder / options.pop("name", "source.jsonl")
    source.write_bytes(data if isinstance(data, bytes) else lines(data))
    return convert_file(source, folder / "out.parquet", type, **options)


def convert_file(source: object, out: Path, type: str, **options: Any) -> Outcome:
    """Convert a source; an error of ours is part of the outcome."""
    for name in (out, out.with_suffix(".quarantine.jsonl"), out.with_suffix(".report.json")):
        name.unlink(missing_ok=True)
    error = None
    try:
        convert_to(source, out, ConvertOptions(type=type, **{"overwrite": True, **options}))
    except FmtkitError as caught:
        error = caught
    rows = read_rows(out)
    quarantine = out.with_suffix(".quarantine.jsonl")
    bad = quarantine.read_bytes().split(b"\n")[:-1] if quarantine.exists() else []
    report = out.with_suffix(".report.json")
    data = json.loads(report.read_text()) if report.exists() else {}
    assert not data or data["rows_read"] == sum(data[term] for term in TERMS)
    return Outcome(rows, [json.loads(entry) for entry in bad], data, error)


def read_rows(out: Path) -> list[dict[str, Any]]:
    """Return the rows of a file, none where there is no file."""
    if not out.exists():
        return []
    if out.suffix == ".jsonl":
        return [json.loads(text) for text in out.read_bytes().split(b"\n")[:-1]]
    table = pa.ipc.open_file(out).read_all() if out.suffix == ".arrow" else pq.read_table(out)
    return table.to_pylist()


@dataclass(frozen=True)
class Command:
    """What a command printed, and how it ended."""

    code: int
    out: str
    err: str


def fmtkit(capsys: Any, *arguments: object) -> Command:
    """Run a command in this process."""
    from fmtkit import cli

    before, sys.argv = sys.argv, ["fmtkit", *map(str, arguments)]
    try:
        cli.main()
        code: Any = 0
    except SystemExit as stop:
        code = stop.code or 0
    finally:
        sys.argv = before
    printed = capsys.readouterr()
    assert "Traceback" not in printed.err
    return Command(code, printed.out, printed.err)
