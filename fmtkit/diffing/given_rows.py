"""The rows of a config in the format of another trainer, each with the number of its row."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import NothingWrittenError, OptionError
from fmtkit.diffing.own_rows import OwnRows
from fmtkit.options.convert_options import ConvertOptions
from fmtkit.running.conversions import convert_to

ROW = "fmtkit_row"
"""The column that the recorder reads back."""


@dataclass(frozen=True)
class GivenRows:
    """A file of rows for a trainer, and the rows that its format has no place for."""

    file: Path
    columns: tuple[str, ...]
    refused: Mapping[int, str] = field(default_factory=dict)


def as_they_are(own: OwnRows, folder: Path, *, numbered: bool = True) -> GivenRows:
    """Write the rows as fmtkit's trainers get them: TRL's dataset types."""
    file = folder / "rows.jsonl"
    columns: dict[str, None] = {}
    with file.open("w", encoding="utf-8") as out:
        for number, row in enumerate(_every(own)):
            kept = {name: value for name, value in row.items() if value is not None}
            columns |= dict.fromkeys(kept)
            if not numbered:
                # Which turns are trained on is a key of the other trainer's own.
                kept.pop("turn_rule", None)
            out.write(_line({**kept, ROW: number} if numbered else kept))
    return GivenRows(file, tuple(columns))


def converted(own: OwnRows, folder: Path, target: str, allow_loss: Iterable[str] = ()) -> GivenRows:
    """Write the rows in the format of a target, without those that it has no place for.

    Raises OptionError if it has a place for none.
    """
    plain = as_they_are(own, folder, numbered=False)
    out = folder / target
    options = ConvertOptions(type="passthrough", to=target, allow_loss=tuple(allow_loss))
    try:
        convert_to([str(plain.file)], str(out), options)
    except NothingWrittenError as error:
        raise OptionError(f"--against {target}: {error}") from error
    refused = _refused(out / "quarantine.jsonl")
    numbers = (n for n in range(_lines(plain.file)) if n not in refused)
    file = folder / f"{target}.jsonl"
    columns: dict[str, None] = {}
    with file.open("w", encoding="utf-8") as written:
        for part in sorted((out / "data").glob("*.jsonl")):
            for line in part.open(encoding="utf-8"):
                row = json.loads(line)
                columns |= dict.fromkeys(row)
                written.write(_line({**row, ROW: next(numbers)}))
    return GivenRows(file, tuple(columns), refused)


def _every(own: OwnRows) -> Iterable[dict[str, Any]]:
    for dataset in own.mixed():
        yield from dataset


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False) + "\n"


def _lines(file: Path) -> int:
    with file.open("rb") as lines:
        return sum(1 for _ in lines)


def _refused(quarantine: Path) -> dict[int, str]:
    if not quarantine.is_file():
        return {}
    with quarantine.open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return {int(row["row"]): str(row["message"]) for row in rows}
