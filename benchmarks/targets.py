"""The targets of speed, all of them in one interleaved run: what each is, what came out, and whether it is met.

A round runs the contestants of every part once, those of a part next to each other and in a random order, each in a
process of its own. A ratio is the median of the rounds' ratios, so that a slow minute counts for both sides. The
slow parts run in fewer rounds (`PARTS`). `--write` puts the table into README.md.

    make targets                                               # about eight minutes
    .venv/bin/python benchmarks/targets.py --only start flat --rounds 9
    .venv/bin/python benchmarks/targets.py --tree ../old --only pairs gigabytes   # fmtkit as another tree has it
"""

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import inspect_survey
import samples
from convert import HERE, NEEDS, TO_PARQUET, find_spec, machine, run, write_table

Figures = dict[str, float]
"""What a contestant took: `wall`, `cpu` in seconds, `rss` in MiB; some have not all of them."""
LAYOUTS = ("b030", "b039", "b113")
"""Given layouts (../shared/data/layouts) that took longest to be recognized, beside flat pairs."""
OURS = "fmtkit"


@dataclass(frozen=True)
class Target:
    """A figure that is wanted of a part; a ratio, if there is somebody to compare with."""

    what: str
    key: str
    bound: float
    against: str = ""
    at_most: bool = False
    """Whether less is better: then the ratio is ours to theirs, and theirs to ours otherwise."""


@dataclass
class Part:
    """Contestants that are compared with each other, fmtkit first, and the targets."""

    contestants: Mapping[str, Callable[[], Figures]]
    targets: tuple[Target, ...]
    results: dict[str, list[Figures]] = field(default_factory=dict)

    def round(self, rng: random.Random) -> None:
        """Run every contestant once."""
        for label in rng.sample(list(self.contestants), len(self.contestants)):
            self.results.setdefault(label, []).append(self.contestants[label]())

    def lines(self) -> list[str]:
        """Return a line of the table for each target."""
        return [self._line(target) for target in self.targets]

    def _line(self, target: Target) -> str:
        ours = [figures[target.key] for figures in self.results[OURS]]
        unit = "MiB" if target.key == "rss" else "s"
        places = 0 if target.key == "rss" else 2
        cells = [target.what, f"{statistics.median(ours):,.{places}f} {unit}"]
        found = max(ours)
        if target.against:
            if target.against not in self.results:
                return f"| {target.what} | {cells[1]} | {target.against} is not installed | | | |"
            theirs = [figures[target.key] for figures in self.results[target.against]]
            pairs = zip(ours, theirs, strict=True)
            found = statistics.median(a / b if target.at_most else b / a for a, b in pairs)
            cells += [f"{statistics.median(theirs):,.2f} {unit}", f"{found:.2f}"]
        else:
            cells += ["", ""]
        met = found <= target.bound if target.at_most else found >= target.bound
        short = found / target.bound - 1 if target.at_most else 1 - found / target.bound
        way = "at most " if target.at_most else ""
        cells += [f"{way}{target.bound:g}", "yes" if met else f"no, by {short:.0%}"]
        return f"| {' | '.join(cells)} |"


def _converted(source: Path, tree: str | None, **options: object) -> Callable[[], Figures]:
    """Convert with two threads."""
    return partial(_peer, "fmtkit_convert", source, 2, options, tree)


def _peer(
    name: str, source: Path, processes: int, options: dict[str, object], tree: str | None = None
) -> Figures:
    """Run a contestant of peers.py, whose output is dropped."""
    with tempfile.TemporaryDirectory(dir=source.parent) as folder:
        return run(name, source, Path(folder) / "out.parquet", processes, options, tree)


def _command(command: list[str], tree: str | None = None) -> Figures:
    """Run any command; its last line may be figures as JSON."""
    environment = os.environ | ({"PYTHONPATH": tree} if tree else {})
    before, begun = _children_cpu(), time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    wall, cpu = time.monotonic() - begun, _children_cpu() - before
    if done.returncode:
        sys.exit(f"{' '.join(command[1:4])} failed:\n{done.stderr[-3000:]}")
    last = done.stdout.splitlines()[-1:]
    found = json.loads(last[0]) if last and last[0].startswith("{") else {}
    return {"wall": wall, "cpu": cpu} | found


def _children_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _group_rows(source: Path) -> int:
    """Return the rows of a row group as fmtkit writes it: polars' script writes as large ones."""
    with tempfile.TemporaryDirectory(dir=source.parent) as folder:
        made = Path(folder) / "out.parquet"
        run("fmtkit_convert", source, made, 2, {})
        program = "import sys, pyarrow.parquet as q\nprint(q.read_metadata(sys.argv[1]).row_group(0).num_rows)"
        # In a process of its own: the peak memory of this one would count for those that it starts.
        command = [sys.executable, "-c", program, str(made)]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def flat(folder: Path, size: float, tree: str | None) -> Part:
    """Flat pairs of 4 KB, 498 MB."""
    source = samples.write(folder / "flat.jsonl", "flat", int(115_000 * size), 4200)
    script = partial(_peer, "polars_flat", source, 2, {"rows": _group_rows(source)})
    title = "flat pairs, polars' unchecked script,"
    return Part(
        {OURS: _converted(source, tree), "polars": script},
        (
            Target(f"{title} wall", "wall", 1.1, "polars"),
            Target(f"{title} CPU", "cpu", 1.0, "polars"),
        ),
    )


def escaped(folder: Path, size: float, tree: str | None) -> Part:
    """Flat pairs rich in escapes, 88 MB."""
    source = samples.write(folder / "escaped.jsonl", "escaped", int(20_000 * size), 4200)
    script = partial(_peer, "polars_flat", source, 2, {"rows": _group_rows(source)})
    title = "rich in escapes, polars' unchecked script,"
    return Part(
        {OURS: _converted(source, tree), "polars": script},
        (
            Target(f"{title} wall", "wall", 0.9, "polars"),
            Target(f"{title} CPU", "cpu", 0.9, "polars"),
        ),
    )


def start(folder: Path, size: float, tree: str | None) -> Part:
    """Ten rows, beside what polars and pyarrow take to be imported."""
    del size
    source = samples.write(folder / "ten.jsonl", "flat", 10, 1000)
    into = ["--type", "chatml.intel", "-o", str(folder / "ten.parquet"), "--overwrite"]
    ours = [sys.executable, "-m", "fmtkit", "convert", str(source), *into]
    _command(ours, tree)  # The first run writes the bytecode, which an installation brings.
    imports = [sys.executable, "-c", "import polars, pyarrow"]
    return Part(
        {OURS: partial(_command, ours, tree), "imports": partial(_command, imports)},
        (
            Target(
                "ten rows, importing polars and pyarrow alone, CPU",
                "cpu",
                1.35,
                "imports",
                at_most=True,
            ),
        ),
    )


def messages(folder: Path, size: float, tree: str | None) -> Part:
    """Message lists through the qwen3 template, 122 MB."""
    source = samples.write(folder / "messages.jsonl", "messages", int(20_000 * size), 7400)
    named: dict[str, object] = {"chat_template": "qwen3"}
    ways = {"axolotl": "axolotl_messages", "TRL": "trl_messages"}
    peers: dict[str, Callable[[], Figures]] = {
        label: partial(_peer, name, source, 1, named)
        for label, name in ways.items()
        if not [needed for needed in NEEDS[name] if find_spec(needed) is None]
    }
    title = "messages through qwen3,"
    return Part(
        {OURS: _converted(source, tree, type="chat_template.default", **named), **peers},
        (
            Target(f"{title} axolotl's way, wall", "wall", 12, "axolotl"),
            Target(f"{title} TRL's way, wall", "wall", 30, "TRL"),
        ),
    )


def parquet(folder: Path, size: float, tree: str | None) -> Part:
    """Message lists as Parquet and as JSON lines, 122 MB, both through the chatml template."""
    lines = samples.write(folder / "in.jsonl", "messages", int(20_000 * size), 7400)
    columns = folder / "in.parquet"
    subprocess.run([sys.executable, "-c", TO_PARQUET, str(lines), str(columns)], check=True)
    named: dict[str, object] = {"type": "chat_template.default", "chat_template": "chatml"}
    return Part(
        {OURS: _converted(columns, tree, **named), "lines": _converted(lines, tree, **named)},
        (
            Target("messages from Parquet, the same as JSON lines, wall", "wall", 0.75, "lines"),
            Target("messages from Parquet, the same as JSON lines, CPU", "cpu", 0.75, "lines"),
        ),
    )


def pairs(folder: Path, size: float, tree: str | None) -> Part:
    """All pairs of seven ranked answers, 39 MB."""
    source = samples.write(folder / "ranked.jsonl", "ranked", int(4_000 * size), 8000)
    ours = _converted(source, tree, type="zephyr.nectar", option="pairs=all")
    bound = Target("peak memory of all pairs of ranked answers, MiB", "rss", 350, at_most=True)
    return Part({OURS: ours}, (bound,))


def gigabytes(folder: Path, size: float, tree: str | None) -> Part:
    """Peak memory of 3 GB."""
    source = samples.write(folder / "large.jsonl", "flat", int(714_000 * size), 4200)
    bound = Target("peak memory of 3 GB of flat pairs, MiB", "rss", 256, at_most=True)
    return Part({OURS: _converted(source, tree)}, (bound,))


def detection(folder: Path, size: float, tree: str | None) -> Part:
    """The types of files of 1 GB, beside polars reading the first 64 MB of each."""
    paths = {"flat": samples.write(folder / "flat.jsonl", "flat", int(250_000 * size), 4200)}
    program = [sys.executable, str(HERE / "guessing.py")]
    for layout in LAYOUTS:
        paths[layout] = folder / f"{layout}.jsonl"
        wanted = ["--only", layout, "--gigabytes", str(size), "--make", str(paths[layout])]
        _command([*program, *wanted])
    times = [*program, "--files", *map(str, paths.values()), "--time"]
    return Part(
        {
            OURS: partial(_command, [*times, "guess"], tree),
            "polars": partial(_command, [*times, "read"]),
        },
        tuple(
            Target(
                f"type of 1 GB ({name}), polars reading its first 64 MB, wall",
                name,
                2,
                "polars",
                at_most=True,
            )
            for name in paths
        ),
    )


def lengths(folder: Path, size: float, tree: str | None) -> Part:
    """Exact token lengths of 60 MB, beside the batch encoder of tokenizers."""
    if not inspect_survey.REAL.is_dir():
        sys.exit(f"{inspect_survey.REAL} is not here: its texts are what is counted")
    lines = inspect_survey.sentences()
    path, tokenizer = folder / "texts.jsonl", folder / "tokenizer"
    inspect_survey.write_pairs(path, lines, int(20_000 * size))
    inspect_survey.write_tokenizer(tokenizer, lines)
    part, names = "exact token lengths", ("fmtkit", "tokenizers encode_batch_fast")
    program = [sys.executable, str(HERE / "inspect_survey.py"), "--one", part]
    sums: set[float] = set()

    def counted(name: str, tree: str | None) -> Figures:
        made = _command([*program, name, str(path), str(tokenizer)], tree)
        sums.add(made["checksum"])
        if len(sums) > 1:
            sys.exit(f"{part}: the counts differ")
        return {"wall": made["seconds"], "cpu": made["cpu"]}

    target = Target("token lengths, encode_batch_fast, wall", "wall", 7, names[1])
    ways = {name: partial(counted, name, tree if name == OURS else None) for name in names}
    return Part(ways, (target,))


PARTS: dict[str, tuple[Callable[[Path, float, str | None], Part], int]] = {
    "start": (start, 99),
    "flat": (flat, 99),
    "escaped": (escaped, 99),
    "parquet": (parquet, 99),
    "pairs": (pairs, 99),
    "lengths": (lengths, 3),
    "detection": (detection, 3),
    "messages": (messages, 3),
    "gigabytes": (gigabytes, 1),
}
"""Name -> what makes the data and the contestants, and the rounds in which it takes part at most."""


def main() -> None:
    """Run the parts that were asked for and print one table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=[*PARTS], choices=[*PARTS])
    parser.add_argument("--size", type=float, default=1.0, help="0.1: a tenth of each file")
    parser.add_argument("--tree", help="a tree with another fmtkit, which is measured then")
    parser.add_argument("--write", action="store_true", help="put the table into README.md")
    given = parser.parse_args()
    tree = str(Path(given.tree).resolve(strict=True)) if given.tree else None
    # Without it each run compiles all of fmtkit, which no installed package does.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    rng = random.Random(0)
    with tempfile.TemporaryDirectory(prefix="fmtkit-targets-") as name:
        parts = {}
        for part in given.only:
            folder = Path(name, part)
            folder.mkdir()
            parts[part] = PARTS[part][0](folder, given.size, tree)
            print(f"{part}: data made", flush=True)
        begun, load = time.monotonic(), os.getloadavg()[0]
        for number in range(given.rounds):
            for part, contest in parts.items():
                if number < PARTS[part][1]:
                    contest.round(rng)
            print(f"round {number + 1}: {time.monotonic() - begun:.0f} s", flush=True)
    lines = ["| what, against whom | fmtkit | the other | ratio | target | met |", "|---" * 6 + "|"]
    lines += [line for contest in parts.values() for line in contest.lines()]
    lines += [
        "",
        f"{given.rounds} rounds, load {load:.1f} before and {os.getloadavg()[0]:.1f} after; {machine()}",
    ]
    print("\n".join(lines))
    if given.write:
        write_table("targets", lines)


if __name__ == "__main__":
    main()
