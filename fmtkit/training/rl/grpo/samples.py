"""Answers of a run with their rewards: a Parquet table in the run folder, written while it trains."""

import json
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

FILE = "completions.parquet"
ROWS = 16
"""Rows of a log, about: whole groups, and one at least."""
MOST = 4096
"""Rows of a run; where there would be more, every second log is dropped, and again."""
_ANSWERED = frozenset({"reward", "objective/scores"})
"""Metrics that TRL's trainers log for answers: GRPO and RLOO the one, online DPO the other."""
_PAUSE = 10.0
_SMALL = 256


class SampleTable:
    """The table of a run. It is written anew as it grows; what a crash takes is seconds old."""

    def __init__(self, file: Path, *, after: int = 0) -> None:
        """Begin a table, or go on with one after the step that a run resumes from."""
        self.file = file
        self.logs: dict[int, list[dict[str, Any]]] = {}
        self.stride = 1
        self._count = 0
        self._written = 0.0
        if after and file.is_file():
            for row in pq.read_table(file).to_pylist():
                if row["step"] <= after:
                    self.logs.setdefault(row["step"], []).append(row)
            self._count = len(self.logs)

    def add(self, step: int, rows: Sequence[dict[str, Any]]) -> None:
        """Take the rows of a log."""
        if self._count % self.stride == 0:
            self.logs[step] = [{"step": step, **row} for row in rows]
        self._count += 1
        if sum(map(len, self.logs.values())) > MOST:
            self.stride *= 2
            self.logs = dict(list(self.logs.items())[::2])
        if len(self.logs) * ROWS <= _SMALL or time.monotonic() - self._written > _PAUSE:
            self.write()

    def write(self) -> None:
        """Write the table; the file is whole at any time."""
        rows = [row for log in self.logs.values() for row in log]
        if not rows:
            return
        names = list(dict.fromkeys(name for row in rows for name in row))
        schema = pa.schema([(name, _kind(name)) for name in names])
        part = self.file.with_name(f".{self.file.name}.part")
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), part, compression="zstd")
        os.replace(part, self.file)  # noqa: PTH105 - one call for both systems
        self._written = time.monotonic()


def _kind(name: str) -> pa.DataType:
    if name == "step":
        return pa.int64()
    return pa.float64() if name == "advantage" or name.startswith("reward/") else pa.string()


def rows_of(logs: Mapping[str, Any], group: int) -> Iterator[dict[str, Any]]:
    """Yield rows of what TRL's trainers keep of the last generation: the first groups, each whole."""
    count = min(max(1, ROWS // group) * group, len(logs["prompt"]))
    for index in range(count):
        yield {
            "prompt": _text(logs["prompt"][index]),
            "completion": _text(logs["completion"][index]),
            **{
                f"reward/{name}": _number(values[index]) for name, values in logs["rewards"].items()
            },
            **({"advantage": _number(logs["advantages"][index])} if "advantages" in logs else {}),
            **{
                f"extra/{name}": _text(values[index])
                for name, values in logs.get("extra", {}).items()
                if index < len(values)
            },
        }


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def keeper(table: SampleTable, trainer: Any) -> Any:
    """Return a callback that adds rows whenever the trainer logs answers that it made since."""
    from transformers import TrainerCallback

    class KeepSamples(TrainerCallback):
        """Watches a trainer that keeps `_logs`, as TRL's GRPO and RLOO trainers do, and ours."""

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            del args, control
            if (
                state.is_world_process_zero
                and "loss" in (logs or {})
                and not _ANSWERED.isdisjoint(logs)
            ):
                rows = list(rows_of(trainer._logs, trainer.num_generations))
                table.add(state.global_step, rows)

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            del args, control
            if state.is_world_process_zero:
                table.write()

        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            # A run of fewer steps than one log takes has answers all the same.
            if state.is_world_process_zero and not table.logs and len(trainer._logs["prompt"]):
                table.add(state.global_step, list(rows_of(trainer._logs, trainer.num_generations)))
            self.on_save(args, state, control)

    return KeepSamples()
