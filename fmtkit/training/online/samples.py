"""Answers of a run with their rewards: a Parquet table in the run folder, written while it trains."""

import sys
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fmtkit.core import atomic

Row = dict[str, Any]

FILE = "completions.parquet"
ROWS = 16
"""Approximate rows of a log: complete groups, at least one."""
MOST = 4096
MOST_TEXT = 32_000_000
"""Rows of a run, and characters of their texts; beyond these, earlier logs are dropped."""
NEWEST = 8
"""The newest logs, which are kept in full; earlier ones are thinned evenly."""
REWARD = "reward/"
_PAUSE = 10.0
_SHARE = 0.01
"""Share of a run's time that may be spent on writing its answers."""
_SMALL = 256


class SampleTable:
    """The table of a run. It is rewritten as it grows; a crash loses some seconds of it."""

    def __init__(self, file: Path, *, after: int = 0) -> None:
        """Begin a table, or continue with one after the step that a run resumes from."""
        self.file = file
        self.logs: dict[int, list[Row]] = {}
        self._texts: dict[int, int] = {}
        self._next = 0.0
        for row in _kept(file) if after and file.is_file() else ():
            if row["step"] <= after:
                self.logs.setdefault(row["step"], []).append(row)
        self._texts = {step: _characters(rows) for step, rows in self.logs.items()}

    @property
    def rows(self) -> list[Row]:
        """The rows, oldest first."""
        return [row for log in self.logs.values() for row in log]

    def add(self, step: int, rows: Sequence[Row]) -> None:
        """Add the rows of a log."""
        self.logs.pop(step, None)
        self.logs[step] = [{"step": step, **row} for row in rows]
        self._texts[step] = _characters(rows)
        while len(self.logs) > 1 and self._is_full():
            self._drop(self._least_missed())
        if len(self.logs) * ROWS <= _SMALL or time.monotonic() > self._next:
            self.write()

    def _is_full(self) -> bool:
        return sum(map(len, self.logs.values())) > MOST or sum(self._texts.values()) > MOST_TEXT

    def _least_missed(self) -> int:
        """Return the step whose removal leaves the smallest gap; the first and the newest logs stay."""
        steps = list(self.logs)
        gaps = zip(steps, steps[1:-NEWEST], islice(steps, 2, None), strict=False)
        narrowest = min(((after - before, step) for before, step, after in gaps), default=None)
        # Without any between them the answers are long: only the newest log is always kept.
        return steps[0] if narrowest is None else narrowest[1]

    def _drop(self, step: int) -> None:
        del self.logs[step], self._texts[step]

    def write(self) -> None:
        """Write the table; the file is complete at any time."""
        rows = self.rows
        if not rows:
            return
        begun = time.monotonic()
        names = list(dict.fromkeys(name for row in rows for name in row))
        schema = pa.schema([(name, _kind(name)) for name in names])
        part = self.file.with_name(f".{self.file.name}.part")
        with atomic.writing(self.file):
            pq.write_table(pa.Table.from_pylist(rows, schema=schema), part, compression="zstd")
            part.replace(self.file)
        self._next = following(begun)

    @property
    def how(self) -> str:
        """A description of which answers of the run these are."""
        newest = min(NEWEST, len(self.logs))
        if newest == len(self.logs):
            return f"of each of {newest} logs" if newest > 1 else "of one log"
        return f"of the {newest} newest logs, and of {len(self.logs) - newest} before them"


def _kept(file: Path) -> list[Row]:
    """Return the rows of a resumed run; a table damaged by a crash does not stop it."""
    try:
        rows: list[Row] = pq.read_table(file).to_pylist()
    except pa.ArrowException as error:
        aside = file.with_name(f"damaged-{file.name}")
        with atomic.writing(aside):
            file.replace(aside)
        why = str(error).partition("\n")[0]
        print(  # noqa: T201
            f"warning: {file} cannot be read ({why}) and is {aside.name} now; the answers before this "
            "are not in the new one",
            file=sys.stderr,
        )
        return []
    return rows


def following(begun: float) -> float:
    """Return the earliest time of the next write, after one that started at `begun` and ends now."""
    now = time.monotonic()
    return now + max(_PAUSE, (now - begun) / _SHARE)


def _characters(rows: Sequence[Row]) -> int:
    return sum(len(value) for row in rows for value in row.values() if isinstance(value, str))


_KINDS = {"step": pa.int64(), "tokens": pa.int64(), "cut": pa.bool_()}


def _kind(name: str) -> pa.DataType:
    if name in {"reward", "advantage"} or name.startswith(REWARD):
        return pa.float64()
    return _KINDS.get(name, pa.string())
