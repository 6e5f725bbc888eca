"""How long a guess takes: the type of a large file without --type, beside polars reading its first 64 MB.

The rows of each given layout (../shared/data/layouts) are repeated to a file of --gigabytes, as lines of
JSON. A round asks for the guess and its commands, as `convert FILE` does, and reads the first 64 MB by
`polars.read_ndjson`, one after the other; figures are medians over the rounds. Both sides are warm.

    .venv/bin/python benchmarks/guessing.py                  # 1 GB for each layout, some minutes
    .venv/bin/python benchmarks/guessing.py --only b038,b053 --gigabytes 0.1
"""

import argparse
import io
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import polars as pl

from fmtkit.core.errors import FmtkitError
from fmtkit.detection.untyped_sources import untyped
from fmtkit.options.convert_options import RowOptions
from fmtkit.running.conversions import open_named
from fmtkit.running.preparation import sample_of
from fmtkit.sources.opening import open_sources

LAYOUTS = Path(__file__).resolve().parents[2] / "shared/data/layouts"
FIRST = 64 << 20
"""Bytes that polars reads."""
PIECE = 8 << 20


def lines_of(path: Path) -> list[bytes]:
    """Return the rows of a layout as lines of JSON; none where no row can be read."""
    try:
        (source,) = open_sources([str(path)])
        rows = sample_of(source)
    except (FmtkitError, ValueError):
        return []
    return [json.dumps(row, default=str).encode() + b"\n" for row in rows]


def grow(path: Path, lines: list[bytes], size: int) -> None:
    """Write a file of some size that repeats the lines."""
    once = b"".join(lines)
    piece = once * max(1, PIECE // len(once))
    with path.open("wb") as file:
        while file.tell() < size:
            file.write(piece)


def guess(path: Path) -> str:
    """Return the line that `convert FILE` prints where the type is missing."""
    opened = open_named([str(path)], RowOptions())
    return untyped(opened, [sample_of(source) for source in opened], RowOptions())


def read(path: Path) -> pl.DataFrame | None:
    """Read the first 64 MB by polars; None for rows that it refuses."""
    with path.open("rb") as file:
        held = file.read(FIRST)
    try:
        return pl.read_ndjson(io.BytesIO(held[: held.rfind(b"\n") + 1]))
    except pl.exceptions.PolarsError:
        return None


def seconds(work: Callable[[Path], object], path: Path) -> tuple[float, object]:
    """Return how long work on a file takes, and what it returns."""
    begun = time.perf_counter()
    found = work(path)
    return time.perf_counter() - begun, found


WORK: dict[str, Callable[[Path], object]] = {"guess": guess, "read": read}


def warm(work: Callable[[Path], object], path: Path) -> float:
    """Return how long work on a file takes when it is done again."""
    work(path)
    return seconds(work, path)[0]


def main() -> None:
    """Print a line for each layout, and the worst ratio."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="b001,b002: the layouts to take")
    parser.add_argument("--make", help="write the file of the first layout here, and end")
    parser.add_argument("--files", nargs="*", default=[], help="with --time: time these alone")
    parser.add_argument("--time", choices=[*WORK], help="which side; its seconds as JSON")
    given = parser.parse_args()
    if given.time:
        print(json.dumps({Path(f).stem: warm(WORK[given.time], Path(f)) for f in given.files}))
        return
    only = tuple(given.only.split(",")) if given.only else ("b",)
    print(f"fmtkit {version('fmtkit')}, polars {pl.__version__}; seconds, and their ratio")
    ratios: dict[str, float] = {}
    for layout in sorted(LAYOUTS.glob("b*.*")):
        lines = lines_of(layout) if layout.name.startswith(only) else []
        if not lines:
            continue
        if given.make:
            grow(Path(given.make), lines, int(given.gigabytes * 2**30))
            return
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "rows.jsonl")
            grow(path, lines, int(given.gigabytes * 2**30))
            guess(path)
            times = [(seconds(guess, path), seconds(read, path)) for _ in range(given.rounds)]
        ours = statistics.median(our[0] for our, _ in times)
        theirs = statistics.median(their[0] for _, their in times)
        if times[0][1][1] is None:
            print(f"{layout.name:16} {ours:8.3f}        -         polars refuses the rows")
            continue
        ratios[layout.name] = ours / theirs
        print(f"{layout.name:16} {ours:8.3f} {theirs:8.3f}  {ours / theirs:6.2f}", flush=True)
    worst = max(ratios, key=lambda name: ratios[name])
    print(f"{len(ratios)} layouts: at most {ratios[worst]:.2f} ({worst})")


if __name__ == "__main__":
    main()
