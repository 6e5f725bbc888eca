"""What an unfinished folder remembers, so that a killed run can go on where it was."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fmtkit.atomic import sync_folder, write_json
from fmtkit.errors import ResumeError

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Shard:
    """A finished shard, the `index`-th of its split."""

    split: str
    index: int
    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Journal:
    """The state at the last checkpoint, at which every shard was closed."""

    fingerprint: Mapping[str, Any]
    overwrite: bool = False
    next_block: tuple[int, int] = (0, 0)
    """Index of the source and of the block in it that come next."""
    shards: tuple[Shard, ...] = ()
    quarantine_bytes: int = 0
    state: Mapping[str, Any] = field(default_factory=dict)
    """What the pipeline wants back: its ledger. Empty before the first checkpoint."""

    def save(self, path: Path) -> None:
        """Replace the journal on the disk."""
        write_json(path, {"version": _VERSION, **asdict(self)})
        sync_folder(path.parent)


def load(path: Path) -> Journal | None:
    """Read a journal; None where there is none.

    Raises:
        ResumeError: if it cannot be read.
    """
    try:
        data = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ResumeError(f"{path}: {error}; start again without --resume") from error
    if data.pop("version", None) != _VERSION:
        raise ResumeError(f"{path} is of another fmtkit; start again without --resume")
    data["next_block"] = tuple(data["next_block"])
    data["shards"] = tuple(Shard(**shard) for shard in data["shards"])
    return Journal(**data)


def check_fingerprint(path: object, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Compare two fingerprints.

    Raises:
        ResumeError: naming what changed, and from what to what.
    """
    begun, own = before.get("fmtkit"), now.get("fmtkit")
    if begun != own:
        # Options may have other names there: a list of those would tell of nothing that the user changed.
        raise ResumeError(
            f"cannot resume {path}: it was begun by fmtkit {begun}, this is {own}; --overwrite "
            "starts again"
        )
    # As JSON has it: tuples are lists, keys are text.
    changes = [*_changes("", before, json.loads(json.dumps(now)))]
    if changes:
        listed = "; ".join(changes[:3]) + ("; ..." if len(changes) > 3 else "")
        raise ResumeError(f"cannot resume {path}: {listed}; --overwrite starts again")


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
