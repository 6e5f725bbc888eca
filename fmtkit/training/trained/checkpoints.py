"""Checkpoints of a run: which of them are complete, judged from their files without loading them.

A checkpoint is written file by file, weights first and `trainer_state.json` last. A run that is killed
meanwhile, or whose disk is full, leaves an incomplete one: files are missing, or are cut short.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from fmtkit.core.data_classes import dataclass
from fmtkit.training.planning.weight_files import fault_of_file, missing_shard

_NAME = re.compile(r"checkpoint-(\d+)")
_STATE = "trainer_state.json"
_WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "adapter_model.safetensors",
    "adapter_model.bin",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "pytorch_model_fsdp*",
    "global_step*",
    "*/adapter_model.safetensors",
)
_OPTIMIZERS = ("optimizer.pt", "optimizer.bin", "optimizer_*", "global_step*")
_SCHEDULERS = ("scheduler.pt", "global_step*")


@dataclass(frozen=True)
class Incomplete:
    """A checkpoint that cannot be resumed, and its fault."""

    path: Path
    fault: str

    @property
    def step(self) -> int:
        """The step that its name says."""
        return step_of(self.path)

    def __str__(self) -> str:
        """Return the folder's name and the fault."""
        return f"{self.path.name} is incomplete ({self.fault})"


@dataclass(frozen=True)
class Expected:
    """What a checkpoint must contain besides its weights: random states, and the optimizer's."""

    processes: int | None = None
    optimizer: bool = True


def latest(folder: Path, expected: Expected) -> tuple[Path | None, tuple[Incomplete, ...]]:
    """Return the last complete checkpoint of a folder, and incomplete ones, newest first."""
    incomplete: list[Incomplete] = []
    complete: Path | None = None
    folders = [path for path in folder.glob("checkpoint-*") if _NAME.fullmatch(path.name)]
    for path in sorted(folders, key=step_of, reverse=True):
        fault = fault_of(path, expected)
        if fault is not None:
            incomplete.append(Incomplete(path, fault))
        elif complete is None:
            complete = path
    return complete, tuple(incomplete)


def fault_of(folder: Path, expected: Expected) -> str | None:
    """Return what keeps a checkpoint from being resumed, or None if it is complete."""
    if not folder.is_dir():
        return "it is not a folder"
    return next(_faults(folder, expected), None)


def _faults(folder: Path, expected: Expected) -> Iterator[str]:
    if not any(folder.iterdir()):
        yield "it is empty"
    for file in sorted(folder.rglob("*")):
        fault = fault_of_file(file) if file.is_file() else None
        if fault is not None:
            yield fault
    for index in sorted(folder.glob("*.index.json")):
        fault = missing_shard(index)
        if fault is not None:
            yield fault
    yield from _absences(folder, expected)
    state = json.loads((folder / _STATE).read_text(encoding="utf-8"))
    step = state.get("global_step") if isinstance(state, dict) else None
    if _NAME.fullmatch(folder.name) and step != step_of(folder):
        yield f"{_STATE} is of step {step}"


def _absences(folder: Path, expected: Expected) -> Iterator[str]:
    """Yield missing files; `trainer_state.json` is the last one to be written."""
    if not _holds(folder, *_WEIGHTS):
        yield "its weights are missing"
    if _holds(folder, "adapter_model.*") and not _holds(folder, "adapter_config.json"):
        yield "adapter_config.json is missing"
    if expected.optimizer:
        if not _holds(folder, *_OPTIMIZERS):
            yield "optimizer.pt is missing"
        if not _holds(folder, *_SCHEDULERS):
            yield "scheduler.pt is missing"
        yield from _missing_states(folder, expected.processes)
    if not _holds(folder, _STATE):
        yield f"{_STATE} is missing"


def _missing_states(folder: Path, processes: int | None) -> Iterator[str]:
    if processes is None:
        if not _holds(folder, "rng_state*.pth"):
            yield "rng_state.pth is missing"
        return
    numbers = [f"_{number}" for number in range(processes)] if processes > 1 else [""]
    for number in numbers:
        if not _holds(folder, f"rng_state{number}.pth"):
            yield f"rng_state{number}.pth is missing"


def _holds(folder: Path, *patterns: str) -> bool:
    return any(True for pattern in patterns for _ in folder.glob(pattern))


def step_of(folder: Path) -> int:
    """Return the step in a checkpoint's name; -1 for other names."""
    match = _NAME.fullmatch(folder.name)
    return int(match[1]) if match else -1
