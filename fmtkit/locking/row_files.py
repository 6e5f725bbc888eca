"""The digest of every row in a file beside a lock: of many rows it names those that changed exactly."""

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fmtkit.core import atomic
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OptionError
from fmtkit.locking.row_digests import Hashes

Shorts = npt.NDArray[np.uint32]
SUFFIX = ".rows"


@dataclass(frozen=True)
class RowFile:
    """A file of digests, or why there is none to compare with."""

    digests: Shorts | None = None
    problem: str = ""


def short(hashes: Hashes) -> Shorts:
    """Return four bytes of each hash."""
    return (hashes & np.uint64(0xFFFFFFFF)).astype("<u4")


def write(lock: Path, number: int, state: dict[str, Any], hashes: Hashes) -> None:
    """Write the digests of a dataset beside a lock, whose state then names the file."""
    name = f"{lock.name}{f'.{number}' if number else ''}{SUFFIX}"
    data = short(hashes).tobytes()
    path = lock.with_name(name)
    if path.exists() and not (path.is_file() and lock.exists()):
        raise OptionError(f"{path} exists already, and is of no lock; choose another name")
    atomic.write_bytes(path, data)
    state["within"]["beside"] = {"path": f"./{name}", "sha256": sha256(data).hexdigest()}


def read(lock: Path, state: Mapping[str, Any]) -> RowFile:
    """Read the file that the state of a lock names."""
    named = state["within"].get("beside")
    if named is None:
        return RowFile()
    path = lock.parent / named["path"]
    if not path.is_file():
        return RowFile(problem=f"{path.name} is not beside the lock")
    data = path.read_bytes()
    if sha256(data).hexdigest() != named["sha256"]:
        return RowFile(problem=f"{path.name} is not the file that was written with the lock")
    return RowFile(np.frombuffer(data, "<u4"))
