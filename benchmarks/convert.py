"""Conversion, end to end from JSON lines to Parquet: fmtkit beside its peers, interleaved in one run.

Every contestant runs in a fresh process; a round runs each of them once, in a random order. The table
gives medians over the rounds: wall seconds, CPU seconds, peak memory, and the ratio of each round's
times (so that a slow minute of a noisy machine counts for both). `--write` puts it into README.md.

    make bench                                   # sizes that fit ten minutes
    .venv/bin/python benchmarks/convert.py --rows 200000 --rounds 9
"""

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import samples

HERE = Path(__file__).parent
PACKAGES = ("fmtkit", "pyarrow", "polars", "datasets", "transformers", "trl", "orjson")


def run(
    name: str, source: Path, out: Path, processes: int, options: dict[str, object]
) -> dict[str, float]:
    """Run a contestant once in a process of its own."""
    command = [
        sys.executable,
        str(HERE / "peers.py"),
        name,
        str(source),
        str(out),
        str(processes),
        json.dumps(options),
    ]
    environment = os.environ | {
        "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
        "TRL_EXPERIMENTAL_SILENCE": "1",
    }
    begun = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    wall = time.monotonic() - begun
    if done.returncode:
        sys.exit(f"{name} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1]) | {"wall": wall}


def contest(
    title: str,
    source: Path,
    contestants: dict[str, tuple[str, int, dict[str, object]]],
    rounds: int,
) -> list[str]:
    """Run all contestants in turn; return the lines of a table. The first is the one compared."""
    results: dict[str, list[dict[str, float]]] = {label: [] for label in contestants}
    rng = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(rounds):
            for label in rng.sample(list(contestants), len(contestants)):
                name, processes, options = contestants[label]
                out = Path(folder) / f"{name}.parquet"
                results[label].append(run(name, source, out, processes, options))
                out.unlink(missing_ok=True)
    ours = next(iter(contestants))
    size = source.stat().st_size / 1e6
    lines = [
        f"**{title}** ({size:,.0f} MB, {results[ours][0]['rows']:,.0f} rows, {rounds} rounds)",
        "",
    ]
    lines += [
        "| what | wall s | CPU s | rows/s | peak MiB | fmtkit is, by wall | by CPU |",
        "|---|---|---|---|---|---|---|",
    ]
    for label, runs in results.items():
        wall, cpu = (statistics.median(r[key] for r in runs) for key in ("wall", "cpu"))
        ratio = {
            key: statistics.median(
                theirs[key] / mine[key] for theirs, mine in zip(runs, results[ours], strict=True)
            )
            for key in ("wall", "cpu")
        }
        rows = runs[0]["rows"] / wall
        peak = max(r["rss"] for r in runs)
        faster = "" if label == ours else f"{ratio['wall']:.1f} x | {ratio['cpu']:.1f} x"
        lines.append(
            f"| {label} | {wall:.2f} | {cpu:.2f} | {rows:,.0f} | {peak:,.0f} | {faster or ' | '} |"
        )
        print(lines[-1], flush=True)
    return [*lines, ""]


def flat(folder: Path, rows: int, rounds: int) -> list[str]:
    """Flat pairs of about 4 KB and of about 1 KB."""
    out = []
    for size in (4200, 1050):
        source = samples.write(folder / f"flat{size}.jsonl", "flat", rows, size)
        run("fmtkit_convert", source, Path(f"{source}.parquet"), 2, {})
        contestants: dict[str, tuple[str, int, dict[str, object]]] = {
            "fmtkit, 2 threads": ("fmtkit_convert", 2, {}),
            "fmtkit, 1 thread": ("fmtkit_convert", 1, {}),
            "axolotl's way, 1 process": ("axolotl_flat", 1, {}),
            "axolotl's way, 2 processes": ("axolotl_flat", 2, {}),
            "plain loop, orjson": ("loop_flat", 1, {}),
            "floor: parse only": ("floor_parse", 2, {}),
            "floor: write only": ("floor_write", 1, {}),
        }
        out += contest(f"Flat pairs of {size / 1000:.0f} KB", source, contestants, rounds)
    return out


def messages(folder: Path, rows: int, rounds: int) -> list[str]:
    """Message lists of about 7 KB with the qwen3 template."""
    source = samples.write(folder / "messages.jsonl", "messages", rows // 2, 7400)
    ours = {"type": "chat_template.default", "chat_template": "qwen3"}
    contestants: dict[str, tuple[str, int, dict[str, object]]] = {
        "fmtkit, 2 threads": ("fmtkit_convert", 2, ours),
        "axolotl's way, 1 process": ("axolotl_messages", 1, {}),
        "TRL's way, 1 process": ("trl_messages", 1, {}),
    }
    return contest("Message lists through the qwen3 template", source, contestants, rounds)


def ranked(folder: Path, rows: int, rounds: int) -> list[str]:
    """Seven ranked answers a row, the best against the worst and all pairs."""
    source = samples.write(folder / "ranked.jsonl", "ranked", rows // 10, 8000)
    contestants: dict[str, tuple[str, int, dict[str, object]]] = {
        "fmtkit, best-worst": ("fmtkit_convert", 2, {"type": "zephyr.nectar"}),
        "fmtkit, all pairs": (
            "fmtkit_convert",
            2,
            {"type": "zephyr.nectar", "option": "pairs=all"},
        ),
    }
    return contest("Ranked answers", source, contestants, rounds)


def dirty(folder: Path, rows: int, rounds: int) -> list[str]:
    """The price of one bad row in a thousand."""
    out = []
    for every, label in ((1000, "one bad row in 1,000"), (0, "no bad row")):
        source = samples.write(folder / f"dirty{every}.jsonl", "flat", rows, 4200, bad_every=every)
        out.append((label, source))
    results: dict[str, list[dict[str, float]]] = {label: [] for label, _ in out}
    for _ in range(rounds):
        for label, source in out:
            results[label].append(run("fmtkit_convert", source, folder / "dirty.parquet", 2, {}))
    bad, clean = (results[label] for label, _ in out)
    ratio = {
        key: statistics.median(b[key] / c[key] for b, c in zip(bad, clean, strict=True))
        for key in ("wall", "cpu")
    }
    line = f"One bad row in 1,000 costs {ratio['wall'] - 1:+.0%} of wall time, {ratio['cpu'] - 1:+.0%} of CPU time."
    print(line, flush=True)
    return [line, ""]


def memory(folder: Path, sizes: list[int]) -> list[str]:
    """Peak memory by the size of the input."""
    lines = ["| input MB | peak MiB | rows/s |", "|---|---|---|"]
    for size in sizes:
        source = samples.write(folder / "memory.jsonl", "flat", size * 1_000_000 // 4200, 4200)
        done = run("fmtkit_convert", source, folder / "memory.parquet", 2, {})
        lines.append(
            f"| {source.stat().st_size / 1e6:,.0f} | {done['rss']:,.0f} | {done['rows'] / done['wall']:,.0f} |"
        )
        print(lines[-1], flush=True)
        source.unlink()
    return ["**Peak memory**", "", *lines, ""]


def small_files(folder: Path, counts: list[int]) -> list[str]:
    """Folders of files of one row each: what a file costs beside its rows."""
    lines = ["| files of one row | wall s | CPU s | ms of CPU a file |", "|---|---|---|---|"]
    for count in counts:
        source = folder / f"files{count}"
        source.mkdir()
        row = {"system": "", "chosen": "good", "rejected": "bad"}
        for i in range(count):
            (source / f"{i:06}.jsonl").write_text(json.dumps(row | {"question": f"q {i}"}) + "\n")
        done = run("fmtkit_convert", source, folder / "files.parquet", 2, {})
        lines.append(
            f"| {count:,} | {done['wall']:.1f} | {done['cpu']:.1f} | {done['cpu'] / count * 1000:.2f} |"
        )
        print(lines[-1], flush=True)
        (folder / "files.parquet").unlink()
    return ["**Many small files**", "", *lines, ""]


def starts() -> list[str]:
    """CPU seconds to start: --help, and a conversion of ten rows."""
    with tempfile.TemporaryDirectory() as folder:
        source = samples.write(Path(folder) / "ten.jsonl", "flat", 10, 1000)
        commands = {
            "fmtkit --help": ["--help"],
            "convert of ten rows": [
                "convert",
                str(source),
                "--type",
                "chatml.intel",
                "-o",
                f"{folder}/o.parquet",
                "--overwrite",
            ],
        }
        lines = ["| start | CPU s |", "|---|---|"]
        for label, arguments in commands.items():
            times = []
            for _ in range(9):
                before = os.times()
                subprocess.run(
                    [sys.executable, "-m", "fmtkit", *arguments], capture_output=True, check=True
                )
                after = os.times()
                times.append(
                    after.children_user
                    + after.children_system
                    - before.children_user
                    - before.children_system
                )
            lines.append(f"| {label} | {statistics.median(times):.2f} |")
            print(lines[-1], flush=True)
    return [*lines, ""]


def main() -> None:
    """Run the contests that were asked for and print their tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=40_000, help="rows of the flat pairs")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", type=int, nargs="*", default=[200], help="input sizes in MB")
    parser.add_argument("--files", type=int, nargs="*", default=[500, 5000], help="files of a row")
    parts_of_all = ["flat", "messages", "ranked", "dirty", "memory", "files", "starts"]
    parser.add_argument("--only", nargs="*", default=parts_of_all)
    parser.add_argument(
        "--write", action="store_true", help="put the tables into benchmarks/README.md"
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fmtkit-bench-") as name:
        folder = Path(name)
        parts = {
            "flat": lambda: flat(folder, given.rows, given.rounds),
            "messages": lambda: messages(folder, given.rows, given.rounds),
            "ranked": lambda: ranked(folder, given.rows, given.rounds),
            "dirty": lambda: dirty(folder, given.rows, given.rounds),
            "memory": lambda: memory(folder, given.memory),
            "files": lambda: small_files(folder, given.files),
            "starts": starts,
        }
        lines = [line for part in given.only for line in parts[part]()]
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    lines += [f"Python {platform.python_version()}, {os.cpu_count()} cores; {versions}."]
    print("\n".join(lines))
    if given.write:
        write_table("convert", lines)


def write_table(name: str, lines: list[str]) -> None:
    """Replace a table in benchmarks/README.md, between its marks."""
    readme = HERE / "README.md"
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    text = readme.read_text(encoding="utf-8")
    head, _, rest = text.partition(begin)
    _, _, tail = rest.partition(end)
    readme.write_text(f"{head}{begin}\n" + "\n".join(lines) + f"\n{end}{tail}", encoding="utf-8")


if __name__ == "__main__":
    main()
