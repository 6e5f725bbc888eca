"""Parquet read in two ways: conversations and tools as JSON lines for the kernel, and by the typed reader.

The typed reader takes columns as they are, and rows whose columns do not say enough, such as those with
tools, one by one. Each conversion runs in a process of its own; CPU seconds include its start. `--write` puts
the table into README.md.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/reading.py --rows 40000 --rounds 5
    .venv/bin/python benchmarks/reading.py --only tokens --without-kernel
"""

import argparse
import hashlib
import itertools
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import peers
import pyarrow as pa
import pyarrow.parquet as pq
import samples
from convert import machine, write_table

from fmtkit.reading import block_parsing, native
from fmtkit.running import pipeline

GROUP_ROWS = 5000
TOKENS = 600


def use_typed_reader() -> None:
    """Make fmtkit read conversations in columns as all other columns, in this process."""
    pipeline.as_lines = lambda records, binding: records


def use_strict_parser() -> None:
    """Make fmtkit read columnar sources row by row, in this process."""
    use_typed_reader()
    block_parsing._parse_columns = lambda batch, plan: None


def child(contestant: str, source: str, out: str, type_name: str) -> None:
    """Convert once, and print what it took."""
    READERS[contestant]()
    peers.fmtkit_convert(source, out, 1, type=type_name)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    cpu = usage.ru_utime + usage.ru_stime
    digest = hashlib.sha256(Path(out).read_bytes()).hexdigest()
    # Not ru_maxrss, which begins with the peak of the process that started this one.
    peak = Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]
    print(json.dumps({"cpu": cpu, "peak": int(peak) / 1024, "digest": digest}))


READERS: dict[str, Callable[[], None]] = {
    "typed reader": use_typed_reader,
    "lines": lambda: None,
    "strict parser": use_strict_parser,
}
CASES = {
    "flat": ("flat pairs of 4 KB", 4200, 1, ("intel", "chatml.intel")),
    "escaped": ("the same, rich in escapes", 4200, 2, ("intel", "chatml.intel")),
    "messages": ("messages", 7400, 2, ("chat_template.default", "chatml.chat_template.default")),
    "openai": ("messages with tools", 3300, 2, ("openai", "qwen3.openai")),
    "ranked": ("seven ranked answers", 8000, 10, ("nectar", "zephyr.nectar")),
    "tokens": ("rows of 600 tokens", 0, 4, ("passthrough",)),
}
"""Shape -> its name, the bytes of a row, by what its rows are fewer, and the types that read it."""


def parquet(folder: Path, shape: str, rows: int, size: int) -> Path:
    """Write rows of a shape as Parquet, group by group."""
    made = folder / f"{shape}.parquet"
    groups = _tokens(rows) if shape == "tokens" else _rows(folder, shape, rows, size)
    first = next(groups)
    with pq.ParquetWriter(made, first.schema) as writer:
        for group in itertools.chain([first], groups):
            writer.write_table(group)
    return made


def _rows(folder: Path, shape: str, rows: int, size: int) -> Iterator[pa.Table]:
    lines = samples.write(folder / f"{shape}.jsonl", shape, rows, size)
    with lines.open("rb") as file:
        while group := [json.loads(line) for line in itertools.islice(file, GROUP_ROWS)]:
            yield pa.Table.from_pylist(group)


def _tokens(rows: int) -> Iterator[pa.Table]:
    rng, offsets = np.random.default_rng(0), np.arange(0, GROUP_ROWS * TOKENS + 1, TOKENS, np.int32)
    for _ in range(0, rows, GROUP_ROWS):
        ids = rng.integers(0, 150_000, GROUP_ROWS * TOKENS).astype(np.int32)
        columns = {"input_ids": ids, "attention_mask": np.ones_like(ids), "labels": ids}
        lists = {n: pa.ListArray.from_arrays(offsets, pa.array(c)) for n, c in columns.items()}
        yield pa.table(lists | {"prompt_length": pa.repeat(TOKENS // 2, GROUP_ROWS)})


def contest(source: Path, type_name: str, readers: Sequence[str], rounds: int) -> list[str]:
    """Convert in each way once a round, in a random order; return the cells of a table's line."""
    found: dict[str, list[dict[str, Any]]] = {reader: [] for reader in readers}
    rng, out = random.Random(0), source.with_name("out.parquet")
    for _ in range(rounds):
        for reader in rng.sample(readers, len(readers)):
            command = [
                sys.executable,
                __file__,
                "--child",
                reader,
                str(source),
                str(out),
                type_name,
            ]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                sys.exit(f"{reader} failed:\n{done.stderr[-3000:]}")
            found[reader].append(json.loads(done.stdout.splitlines()[-1]))
    first = found[readers[0]]
    if len({run["digest"] for runs in found.values() for run in runs}) > 1:
        sys.exit(f"{source.name} as {type_name}: the readers give different rows")
    cells = []
    for reader, runs in found.items():
        cpu, peak = (statistics.median(run[key] for run in runs) for key in ("cpu", "peak"))
        cells.append(f"{cpu:.2f} s, {peak:.0f} MiB")
        if reader != readers[0]:
            pairs = zip(runs, first, strict=True)
            cells.append(
                f"{statistics.median(own['cpu'] / base['cpu'] for own, base in pairs):.2f}"
            )
    return cells


def main() -> None:
    """Run the contests that were asked for and print their table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=40_000, help="rows of the flat pairs")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=[*CASES], choices=[*CASES])
    parser.add_argument(
        "--without-kernel", action="store_true", help="typed reader and strict parser, no kernel"
    )
    parser.add_argument("--write", action="store_true", help="put the table into README.md")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(*given.child)
        return
    readers = ["typed reader", "lines"]
    if given.without_kernel:
        readers, os.environ[native.VARIABLE] = ["typed reader", "strict parser"], native.OFF
    heads = [readers[0], *(head for reader in readers[1:] for head in (reader, "ratio of CPU"))]
    lines = [f"| Parquet of | type | {' | '.join(heads)} |", "|---" * (2 + len(heads)) + "|"]
    with tempfile.TemporaryDirectory(prefix="fmtkit-bench-") as name:
        folder = Path(name)
        for shape in given.only:
            title, size, fewer, types = CASES[shape]
            source = parquet(folder, shape, given.rows // fewer, size)
            for type_name in types:
                cells = contest(source, type_name, readers, given.rounds)
                lines.append(f"| {title} | `{type_name}` | {' | '.join(cells)} |")
                print(lines[-1], flush=True)
    lines += ["", f"{given.rounds} rounds, load {os.getloadavg()[1]:.0f}; {machine()}"]
    print("\n".join(lines))
    if given.write:
        write_table("reading-without-kernel" if given.without_kernel else "reading", lines)


if __name__ == "__main__":
    main()
