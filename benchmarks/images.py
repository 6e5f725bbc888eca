"""Rows with images: Parquet to Parquet, beside `cp`, `datasets.map` that does the same, and pyarrow.

pyarrow reads and writes the rows as they are, which is the least that can be done without copying a file's
pages unread.

`python benchmarks/images.py --rows 3000` writes images of 100 KB of noise, which no codec makes smaller, and
converts them. All are measured interleaved; `cp` is `dd` with fsync. Memory is that of the whole process.
"""

import argparse
import io
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FMTKIT = "import fmtkit; fmtkit.convert({source!r}, 'openai', {out!r}, overwrite=True)"
DATASETS = """
import datasets
datasets.disable_progress_bars()
rows = datasets.load_dataset('parquet', data_files={source!r}, split='train', cache_dir={cache!r})
rows = rows.cast_column('images', datasets.List(datasets.Image(decode=False)))

def parts(row):
    (image,) = row['images']
    assert image['bytes'] or image['path']
    turns = []
    for turn in row['messages']:
        said = [{{'type': 'text', 'text': turn['content']}}]
        shown = [{{'type': 'image', 'text': None}}] if turn['role'] == 'user' else []
        turns.append({{'role': turn['role'], 'content': shown + said}})
    return {{'messages': turns}}

rows.map(parts).to_parquet({out!r})
"""

PYARROW = """
import pyarrow.parquet as pq
file = pq.ParquetFile({source!r})
with pq.ParquetWriter({out!r}, file.schema_arrow) as writer:
    for batch in file.iter_batches(batch_size=50):
        writer.write_batch(batch)
"""


def write(path: Path, rows: int) -> None:
    """Write rows of one image of about 100 KB each, no two the same."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq
    from PIL import Image

    draw = np.random.default_rng(0)
    noise = []
    for _ in range(20):
        file = io.BytesIO()
        pixels = draw.integers(0, 255, (190, 190, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(file, "PNG")
        noise.append(file.getvalue())
    stored = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    writer = None
    for first in range(0, rows, 100):
        numbers = range(first, min(first + 100, rows))
        images = [[{"bytes": noise[i % 20] + os.urandom(64), "path": f"{i}.png"}] for i in numbers]
        messages = [
            [
                {"role": "user", "content": f"What is in picture {i}? {'word ' * 40}"},
                {"role": "assistant", "content": "A field of noise. " * 10},
            ]
            for i in numbers
        ]
        table = pa.table({"images": pa.array(images, pa.list_(stored)), "messages": messages})
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()


def measured(command: list[str]) -> tuple[float, float, float]:
    """Run a command; return its wall and CPU seconds and its peak memory in MiB."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"failed: {' '.join(command)[:200]}")
    return wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder, "in.parquet"), Path(folder, "out.parquet")
        write(source, given.rows)
        cache = str(Path(folder, "cache"))
        code = {"fmtkit": FMTKIT, "datasets.map": DATASETS, "pyarrow": PYARROW}
        commands = {
            name: [sys.executable, "-c", text.format(source=str(source), out=str(out), cache=cache)]
            for name, text in code.items()
        }
        commands["cp"] = ["dd", f"if={source}", f"of={folder}/copy", "bs=1M", "conv=fsync"]
        times: dict[str, list[tuple[float, float, float]]] = {name: [] for name in commands}
        for _ in range(given.rounds):
            for name in random.sample(sorted(commands), len(commands)):
                subprocess.run(["rm", "-rf", cache, f"{folder}/copy", str(out)], check=True)
                times[name].append(measured(commands[name]))
        size = source.stat().st_size / 1e6
        print(f"{given.rows:,} rows, {size:.0f} MB, {given.rounds} rounds, medians")
        print("| what | wall s | CPU s | peak MiB | MB/s |\n|---|---|---|---|---|")
        for name, found in times.items():
            wall, cpu, memory = (statistics.median(column) for column in zip(*found, strict=True))
            print(f"| {name} | {wall:.2f} | {cpu:.2f} | {memory:.0f} | {size / wall:.0f} |")


if __name__ == "__main__":
    main()
