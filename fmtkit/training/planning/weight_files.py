"""Files of weights, checked without loading them: which are cut short, or missing, and what is in them.

torch is not imported: its files are ZIP archives, whose directory is at the end, and the header of a
safetensors file says how long the file is.
"""

import json
from pathlib import Path
from zipfile import BadZipFile, ZipFile

_LARGEST_HEADER = 100_000_000
"""Bytes; the maximum that the safetensors library takes."""


def fault_of_file(file: Path) -> str | None:
    """Return what is wrong with a file of weights or states, by the length in its header."""
    try:
        if file.suffix == ".safetensors":
            return _safetensors_fault(file)
        if file.suffix in {".pt", ".pth", ".bin"}:
            return _archive_fault(file)
        if file.suffix == ".json":
            json.loads(file.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError):
        return f"{file.name} is cut short or is not JSON"
    except OSError as error:
        return f"{file.name} cannot be read: {error.strerror or error}"
    return None


def missing_shard(index: Path) -> str | None:
    """Return the fault of a sharded model: a file in its index is missing."""
    try:
        content = json.loads(index.read_text(encoding="utf-8"))
        names = sorted(set(content["weight_map"].values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return f"{index.name} is cut short or lists no files"
    absent = [str(name) for name in names if not (index.parent / str(name)).is_file()]
    return f"{absent[0]}, which {index.name} names, is missing" if absent else None


def _safetensors_fault(file: Path) -> str | None:
    """Compare a file's length with its header: 8 bytes of length, the JSON header, and the tensors."""
    size = file.stat().st_size
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        if size < 8 or length > min(size - 8, _LARGEST_HEADER):
            return f"{file.name} is cut short: {size:,} bytes do not hold its header"
        header = json.loads(opened.read(length))
    if not isinstance(header, dict):
        return f"{file.name} has no header"
    ends = [
        entry["data_offsets"][1]
        for name, entry in header.items()
        if name != "__metadata__" and isinstance(entry, dict) and "data_offsets" in entry
    ]
    needed = 8 + length + max(ends, default=0)
    if size == needed:
        return None
    how = "is cut short" if size < needed else "is too long"
    return f"{file.name} {how}: it has {size:,} of {needed:,} bytes"


def shapes_of(file: Path) -> dict[str, list[int]]:
    """Return the shapes of the tensors in a complete file by their names, from its header."""
    with file.open("rb") as opened:
        header = json.loads(opened.read(int.from_bytes(opened.read(8), "little")))
    return {name: entry["shape"] for name, entry in header.items() if name != "__metadata__"}


def _archive_fault(file: Path) -> str | None:
    try:
        with ZipFile(file) as archive:
            return None if archive.namelist() else f"{file.name} is empty"
    except BadZipFile:
        return f"{file.name} is cut short"
