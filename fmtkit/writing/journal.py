"""The journal of an unfinished folder, from which a killed run continues."""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, field
from pathlib import Path
from typing import Any

from fmtkit.core.atomic import PartialFile, sync_folder, write_bytes, writing
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import ResumeError, WriteError

VERSION = 3
"""Of outputs: raised where rows, options or files no longer mean what they did. 0.2 wrote 2, or none."""

DATE = "date"
"""Key of a fingerprint: the date that the run's template renders, kept when the run is resumed."""


@dataclass(frozen=True, slots=True)
class Shard:
    """A finished shard, the `index`-th of its split."""

    split: str
    index: int
    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Checkpoint:
    """What was added since the previous checkpoint; every shard was closed."""

    next_block: tuple[int, int]
    shards: tuple[Shard, ...]
    quarantine_bytes: int
    """Of the whole quarantine."""
    state: Mapping[str, Any]
    """The part of the state that has changed."""
    moves: Mapping[str, str] = field(default_factory=dict)
    """Shards that workers made: the worker's name -> the final name. They move once this is written."""


@dataclass(frozen=True)
class Journal:
    """The state at the last checkpoint, at which every shard was closed.

    On the disk it is a line with the fingerprint and one for each checkpoint, so that the cost of a
    checkpoint does not grow with their number.
    """

    fingerprint: Mapping[str, Any]
    overwrite: bool = False
    id: str = ""
    """Of the run that started it: names the folder of its workers' output."""
    next_block: tuple[int, int] = (0, 0)
    """Index of the source and of the block in it that come next."""
    shards: tuple[Shard, ...] = ()
    quarantine_bytes: int = 0
    state: Mapping[str, Any] = field(default_factory=dict)
    """The state of the pipeline: its ledger. Empty before the first checkpoint."""
    moves: Mapping[str, str] = field(default_factory=dict)
    """Of the last checkpoint, at which a run may have ended before all were moved."""

    def save(self, path: Path) -> None:
        """Write the start of the journal, replacing an old one."""
        begun = {"version": VERSION, "fingerprint": self.fingerprint}
        begun |= {"overwrite": self.overwrite, "id": self.id}
        write_bytes(path, _line(begun))
        sync_folder(path.parent)


class JournalFile:
    """A journal on the disk, of the run that opened it last.

    Raises:
        WriteError: where the system refuses.
    """

    def __init__(self, path: Path, *, is_new: bool) -> None:
        self.path = path
        if not is_new:
            # A new file, without the incomplete line of a killed run: a process that still writes to
            # the old one notices that it is no longer the journal.
            _copy_lines(path)
        with writing(path):
            self._file = path.open("r+b", buffering=0)
            self._file.seek(0, os.SEEK_END)

    def append(self, checkpoint: Checkpoint) -> None:
        """Add a checkpoint; WriteError also where another run has taken the output."""
        self.check()
        with writing(self.path):
            self._file.write(_line(asdict(checkpoint)))
            os.fsync(self._file.fileno())

    def check(self) -> None:
        """Raise WriteError where another run has taken the output."""
        with writing(self.path):
            try:
                is_ours = os.path.samestat(os.fstat(self._file.fileno()), self.path.stat())
            except FileNotFoundError:
                is_ours = False
            if not is_ours:
                raise WriteError(
                    f"{self.path.parent} is being written by another run; this one stops"
                )

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _copy_lines(path: Path) -> None:
    """Rewrite a journal with its complete lines."""
    file = PartialFile(path)
    try:
        with writing(path), path.open("rb") as lines:
            for line in lines:
                if line.endswith(b"\n"):
                    file.write(line)
        file.publish()
    finally:
        file.discard()


def update(state: dict[str, Any], change: Mapping[str, Any]) -> None:
    """Update a state with its changes, key by key."""
    for key, value in change.items():
        held = state.get(key)
        if isinstance(held, dict) and isinstance(value, Mapping):
            update(held, value)
        else:
            state[key] = dict(value) if isinstance(value, Mapping) else value


def _line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode(errors="backslashreplace") + b"\n"


def load(path: Path) -> Journal | None:
    """Read a journal; None where there is none.

    Raises:
        ResumeError: if it cannot be read.
    """
    shards: list[Shard] = []
    state: dict[str, Any] = {}
    last: dict[str, Any] = {}
    try:
        with path.open("rb") as file:
            begun = json.loads(file.readline())
            begun_by = begun.pop("version", None)
            if begun_by != VERSION:
                raise ResumeError(
                    f"{path} was written by a different version of fmtkit (outputs of version {begun_by}; "
                    f"this one writes {VERSION}); start again without --resume"
                )
            for line in file:
                if not line.endswith(b"\n"):
                    break  # incomplete: the run was killed here
                last = json.loads(line)
                shards += (Shard(**shard) for shard in last.pop("shards"))
                update(state, last.pop("state"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ResumeError(f"{path}: {error}; start again without --resume") from error
    if not last:
        return Journal(**begun)
    first, second = last["next_block"]
    return Journal(
        **begun,
        next_block=(first, second),
        shards=tuple(shards),
        quarantine_bytes=last["quarantine_bytes"],
        state=state,
        moves=last.get("moves", {}),
    )


def begun_with(path: Path) -> Mapping[str, Any]:
    """Return the fingerprint of a journal, from its first line; empty where there is none.

    Raises:
        ResumeError: if it cannot be read.
    """
    try:
        with path.open("rb") as file:
            found: Mapping[str, Any] = json.loads(file.readline()).get("fingerprint", {})
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError) as error:
        raise ResumeError(f"{path}: {error}; start again without --resume") from error
    return found


def check_fingerprint(path: object, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Compare two fingerprints.

    Raises:
        ResumeError: naming what changed, and from what to what.
    """
    begun, own = _writer(before), _writer(now)
    if begun != own:
        # Options may have other names there: a list of those would not show what the user changed.
        raise ResumeError(
            f"cannot resume {path}: it was started by {begun}, this is {own}; --overwrite starts again"
        )
    # As JSON has it: tuples are lists, keys are text.
    # The date is kept from the run that started, unless an option sets it, and options are compared.
    before, now = ({k: v for k, v in one.items() if k != DATE} for one in (before, now))
    changes = [*_changes("", before, json.loads(json.dumps(now)))]
    if changes:
        listed = "; ".join(changes[:3]) + ("; ..." if len(changes) > 3 else "")
        raise ResumeError(f"cannot resume {path}: {listed}; --overwrite starts again")


def _writer(fingerprint: Mapping[str, Any]) -> str:
    """Return which fmtkit made an output, as errors name it."""
    version = fingerprint.get("version", "2 or older")
    return f"fmtkit {fingerprint.get('fmtkit')} (outputs of version {version})"


def _changes(name: str, before: Any, now: Any) -> Iterator[str]:
    if before == now:
        return
    if isinstance(before, dict) and isinstance(now, dict):
        for key in dict.fromkeys((*before, *now)):
            yield from _changes(f"{name}.{key}".lstrip("."), before.get(key), now.get(key))
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for index, pair in enumerate(zip(before, now, strict=True)):
            yield from _changes(f"{name}[{index}]", *pair)
    else:
        yield f"{name} changed from {_short(before)} to {_short(now)}"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."
