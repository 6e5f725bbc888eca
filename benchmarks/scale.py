"""Many tasks: what the process that started a run does with them, and what workers and nodes bring.

    .venv/bin/python benchmarks/scale.py                         # 500 MB: threads and Ray by turns; the cost of a task
    .venv/bin/python benchmarks/scale.py --megabytes 60          # to try it
    .venv/bin/python benchmarks/scale.py --nodes                 # a cluster of one node of one CPU, and of two
    .venv/bin/python benchmarks/scale.py --simulate              # 100,000 tasks' records, and no data

`--simulate` runs `convert --engine ray` on files of 9.2 TiB that hold nothing, with workers that read nothing: they
leave at once the files and the record that a task's worker leaves. What they take is not counted; what is left is the
driver's own: tasks cut, records merged, shards taken over, journal, manifest and report. It runs to a folder, once
more there as --resume finds it when the driver was killed with all tasks done, and so on a bucket that is made up.
"""

import argparse
import json
import os
import platform
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import samples
from convert import write_table
from fsspec import AbstractFileSystem, register_implementation

from fmtkit.core.atomic import sync_folder
from fmtkit.core.codes import Reject
from fmtkit.options.convert_options import ConvertOptions
from fmtkit.running import conversion_run
from fmtkit.running.conversions import convert_to
from fmtkit.running.ledger import Ledger
from fmtkit.sources import parts
from fmtkit.sources.parts import Part
from fmtkit.work.engines import Inline
from fmtkit.work.tasks import Task
from fmtkit.writing import quarantine
from fmtkit.writing.task_output import (
    Counts,
    LocalPlace,
    Place,
    TaskRecord,
    TaskShard,
    bad_name,
    record_name,
    shard_name,
)

ROW = b'{"system": "", "question": "q", "chosen": "good", "rejected": "bad"}\n'
PARTS_OF_FILE = 100
"""Tasks of each file that is simulated."""
BAD_EVERY = 50
"""One task in so many has bad rows."""
PACKAGES = ("fmtkit", "ray", "pyarrow", "polars", "fsspec")
RUNS = ("folder", "folder, killed", "folder, resumed", "bucket", "bucket, resumed")
"""What is simulated, in this order."""


# --- the simulation -------------------------------------------------------------------------------


def write_holes(folder: Path, tasks: int) -> None:
    """Make files of so many tasks that hold a row and a hole."""
    folder.mkdir()
    for number in range(-(-tasks // PARTS_OF_FILE)):
        count = min(PARTS_OF_FILE, tasks - number * PARTS_OF_FILE)
        with (folder / f"{number:05}.jsonl").open("wb") as file:
            file.write(ROW)
            file.truncate(count * parts.PART_BYTES)


def tasks_of_holes(tasks: int) -> Iterator[Task]:
    """Return the tasks that such files are cut into."""
    return map(_task, range(tasks))


def counts_of(number: int) -> tuple[int, int]:
    """Return the rows of a task, and how many of them are bad."""
    return 24_000 + number % 11, 3 if number % BAD_EVERY == 7 else 0


def shards_of(number: int) -> tuple[TaskShard, ...]:
    """Return the shards that a task's worker makes."""
    rows, bad = counts_of(number)
    held = rows // 20
    return tuple(
        TaskShard(shard_name(split, number, 0, "parquet"), split, own, own * 2000, f"{number:064x}")
        for split, own in (("train", rows - bad - held), ("validation", held))
    )


def record_of(task: Task) -> tuple[TaskRecord, bytes]:
    """Return what a task's worker would, and its part of the quarantine: a function of the task alone."""
    [(source, part)] = task.parts
    number = task.number
    rows, bad = counts_of(number)
    ledger = Ledger(rows_read=rows, converted=rows - bad, quarantined=bad, rows_written=rows - bad)
    ledger.blank_lines = number % 3
    ledger.warnings.update(control_tokens=5 + number % 7, rank_tie=rows // 3, system_dropped=2)
    rejects = [
        Reject(row, row + 1, code, "question", "made up", b'{"question": 1}')
        for row, code in enumerate(("json_syntax", "type_error", "type_error")[:bad])
    ]
    ledger.reasons.update(reject.code for reject in rejects)
    lines = quarantine.encode(f"{source:05}.jsonl", rejects)
    end = part.bytes or 0 if part.end is None else part.end
    tiers = {"fast_rows": 0, "traced_rows": rows - bad, "plain_rows": 0}
    counts = Counts(
        ledger.as_dict(), tiers, {source: rows}, {source: rows + number % 3}, {source: end}
    )
    return TaskRecord(
        number, shards_of(number), counts, ((source, len(lines)),) if bad else ()
    ), lines


def leave(place: Place, task: Task) -> TaskRecord:
    """Leave what a task's worker does; its shards are holes. On the bucket all is there already."""
    record, lines = record_of(task)
    if isinstance(place, LocalPlace):
        for shard in record.shards:
            with (place.tasks / shard.name).open("wb") as file:
                file.truncate(shard.bytes)
        if lines:
            (place.tasks / bad_name(task.number)).write_bytes(lines)
        (place.tasks / record_name(task.number)).write_bytes(record.to_json())
    return record


class Workers:
    """An engine whose workers read nothing, and whose time does not count."""

    cpu = wall = 0.0

    def map(self, work: Callable[[Any], Any], tasks: Iterator[Any]) -> Iterator[TaskRecord]:
        for task in tasks:
            cpu, wall = time.process_time(), time.monotonic()
            record = leave(work.place, task)
            if isinstance(work.place, LocalPlace) and task.number % 256 == 255:
                sync_folder(work.place.tasks)  # real workers force each file to the disk
            Workers.cpu += time.process_time() - cpu
            Workers.wall += time.monotonic() - wall
            yield record


class Killed:
    """Workers whose driver ends when they have done all tasks and it has heard of none."""

    def map(self, work: Callable[[Any], Any], tasks: Iterator[Any]) -> Iterator[TaskRecord]:
        for task in tasks:
            leave(work.place, task)
        os.sync()
        raise KeyboardInterrupt
        yield


class Bucket(AbstractFileSystem):
    """A bucket that holds what the workers of so many tasks left; else what was written."""

    protocol = "s3"
    cachable = False
    tasks = 0
    is_done = False
    """Whether a run that was killed left its records."""
    files: dict[str, bytes] = {}  # noqa: RUF012 - one bucket, however often it is opened
    requests = 0

    def find(
        self, path: str, maxdepth: Any = None, withdirs: Any = False, detail: bool = False, **_: Any
    ) -> Any:
        root = "bucket/out/"
        sizes = {name: len(data) for name, data in self.files.items()}
        for number in range(self.tasks if self.is_done else 0):
            for shard in shards_of(number):
                sizes[f"{root}data/{shard.name}"] = shard.bytes
            sizes[f"{root}_fmtkit/000000-{record_name(number)}"] = 1
        path = self._strip_protocol(path).rstrip("/") + "/"
        return {
            name: {"name": name, "size": size, "type": "file"}
            for name, size in sorted(sizes.items())
            if name.startswith(path)
        }

    def cat_file(self, path: str, start: Any = None, end: Any = None, **_: Any) -> bytes:
        Bucket.requests += 1
        name = self._strip_protocol(path)
        stem = name.rpartition("-task-")[2]
        if stem == name:
            return self._found(name)
        number = int(stem.partition(".")[0])
        record, lines = record_of(_task(number))
        return lines if stem.endswith("quarantine.jsonl") else record.to_json()

    def _found(self, name: str) -> bytes:
        if name not in self.files:
            raise FileNotFoundError(name)
        return self.files[name]

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        Bucket.requests += 1
        name = self._strip_protocol(path)
        return {"name": name, "size": len(self._found(name)), "type": "file"}

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        Bucket.requests += 1
        name = self._strip_protocol(path)
        if mode == "create" and name in self.files:
            raise FileExistsError(name)
        self.files[name] = value

    def open(self, path: str, mode: str = "rb", **_: Any) -> "Upload":
        return Upload()

    def rm(self, path: Any, **_: Any) -> None:
        for name in path:
            self.files.pop(self._strip_protocol(name), None)


class Upload:
    """An upload in parts, of which nothing is kept."""

    def write(self, data: bytes) -> None:
        Bucket.requests += 1

    def close(self) -> None: ...

    def commit(self) -> None:
        Bucket.requests += 2

    def discard(self) -> None: ...


def _task(number: int) -> Task:
    source, place = divmod(number, PARTS_OF_FILE)
    start = place * parts.PART_BYTES
    return Task(number, ((source, Part(place, start, start + parts.PART_BYTES)),))


def drive(folder: Path, what: str, tasks: int) -> dict[str, float]:
    """Run the driver in this process; return what it took."""
    engine: Any = Killed() if "killed" in what else Workers()
    out: Any = folder / "fresh" if what == "folder" else folder / "resumed"
    Bucket.tasks = tasks
    if what.startswith("bucket"):
        register_implementation("s3", Bucket, clobber=True)
        out = "s3://bucket/out"
    options = ConvertOptions(type="chatml.intel", engine="ray", val_size=0.05)
    if what == "bucket, resumed":
        _end_early(folder, out, options)
    resumed = {"resume": True} if "resumed" in what else {}
    conversion_run.engine_of = lambda options: engine
    Bucket.requests = 0
    cpu, wall = time.process_time(), time.monotonic()
    rows, end = 0, ""
    try:
        report = convert_to(str(folder / "files"), out, ConvertOptions(**(vars(options) | resumed)))
        rows = report.rows_written
    except KeyboardInterrupt:
        end = "killed"
    return {
        "rows": rows,
        "end": end,
        "cpu": time.process_time() - cpu - Workers.cpu,
        "wall": time.monotonic() - wall - Workers.wall,
        "rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "requests": Bucket.requests,
    }


def _end_early(folder: Path, out: str, options: ConvertOptions) -> None:
    """Leave on the bucket what a driver does that is killed when all tasks are done."""
    conversion_run.engine_of = lambda options: Killed()
    try:
        convert_to(str(folder / "files"), out, options)
    except KeyboardInterrupt:
        Bucket.is_done = True


def simulate(folder: Path, tasks: int) -> list[str]:
    """Run the driver on so many tasks' records, each run in a process of its own."""
    write_holes(folder / "files", tasks)
    lines = ["| driver's run | wall s | CPU s | peak MiB | requests |", "|---|---|---|---|---|"]
    for what in RUNS:
        done = child("drive", folder, what, tasks)
        if done["end"] != "killed":
            lines.append(
                f"| {what} | {done['wall']:.1f} | {done['cpu']:.1f} | {done['rss']:,.0f} | {done['requests'] or ''} |"
            )
            print(lines[-1], flush=True)
    size = tasks * parts.PART_BYTES / 2**40
    return [
        f"**{tasks:,} tasks** of {size:.1f} TiB, simulated: merged, journalled, written",
        "",
        *lines,
        "",
    ]


# --- contests -------------------------------------------------------------------------------------


def engines(folder: Path, source: Path, rounds: int) -> list[str]:
    """Threads and Ray on one machine, by turns; the start of Ray's cluster is part of it."""
    found: dict[str, list[float]] = {"threads": [], "ray": []}
    for number in range(rounds):
        for engine in random.Random(number).sample(list(found), 2):
            out = folder / "out"
            found[engine].append(child("command", source, out, engine)["wall"])
    bound = 1.3 * statistics.median(found["threads"]) + 10
    return [
        *_head(f"Threads and Ray, {_cores()} cores", source, rounds),
        "| engine | wall s | rounds |",
        "|---|---|---|",
        *(
            f"| {name} | {statistics.median(all_):.1f} | {_rounds(all_)} |"
            for name, all_ in found.items()
        ),
        "",
        f"Target for Ray: 1.3 x threads + 10 s, {bound:.1f} s.",
        "",
    ]


def nodes(source: Path, rounds: int) -> list[str]:
    """A cluster of a head without CPUs and one or two nodes of one CPU; starting it is left out."""
    found: dict[int, list[float]] = {1: [], 2: []}
    for number in range(rounds):
        for count in random.Random(number).sample(list(found), 2):
            found[count].append(child("cluster", source, count)["wall"])
    ratio = statistics.median(one / two for one, two in zip(found[1], found[2], strict=True))
    return [
        *_head("Nodes of one CPU each", source, rounds),
        "| nodes | wall s | rounds |",
        "|---|---|---|",
        *(
            f"| {count} | {statistics.median(all_):.1f} | {_rounds(all_)} |"
            for count, all_ in found.items()
        ),
        "",
        f"Two are {ratio:.2f} x as fast as one, without the start (target 1.6 x).",
        "",
    ]


def cost(source: Path, rounds: int) -> list[str]:
    """The same rows in two tasks and in many, done one after the other in one process as a worker does."""
    size = sum(file.stat().st_size for file in source.iterdir())
    pieces = {"few": size // 2 + 1, "many": size // 16}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in pieces}
    for number in range(rounds):
        for name in random.Random(number).sample(list(pieces), 2):
            found[name].append(child("tasks", source, pieces[name]))
    few, many = (statistics.median(run["cpu"] for run in found[name]) for name in ("few", "many"))
    more = found["many"][0]["tasks"] - found["few"][0]["tasks"]
    each = statistics.median(
        (b["cpu"] - a["cpu"]) / more for a, b in zip(found["few"], found["many"], strict=True)
    )
    share = each / (few / size * parts.PART_BYTES)
    return [
        *_head("The cost of a task, one thread", source, rounds),
        "| tasks | CPU s | rounds |",
        "|---|---|---|",
        *(
            f"| {all_[0]['tasks']:.0f} | {value:.2f} | {_rounds([run['cpu'] for run in all_])} |"
            for all_, value in ((found["few"], few), (found["many"], many))
        ),
        "",
        f"A task more costs {each * 1000:.0f} ms of CPU: {share:+.1%} of a task of 96 MiB (target 5 %).",
        "",
    ]


def _head(title: str, source: Path, rounds: int) -> list[str]:
    size = sum(file.stat().st_size for file in source.iterdir()) / 1e6
    return [
        f"**{title}** ({size:,.0f} MB in {len([*source.iterdir()])} files, {rounds} rounds)",
        "",
    ]


def _rounds(found: list[float]) -> str:
    return ", ".join(f"{value:.1f}" for value in found)


def _cores() -> int:
    return os.cpu_count() or 1


# --- what runs in processes of its own ------------------------------------------------------------


def child(what: str, *arguments: object) -> dict[str, Any]:
    """Run a function of this file in a process of its own."""
    command = [sys.executable, __file__, "--child", what, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{what} failed:\n{done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def run_command(source: str, out: str, engine: str) -> dict[str, float]:
    """Convert by the command line, start and all."""
    command = [
        sys.executable,
        "-m",
        "fmtkit",
        "convert",
        source,
        "--type",
        "chatml.intel",
        "-o",
        out,
    ]
    begun = time.monotonic()
    subprocess.run([*command, "--engine", engine, "--overwrite"], capture_output=True, check=True)
    return {"wall": time.monotonic() - begun}


def run_cluster(source: str, count: str) -> dict[str, float]:
    """Convert on a cluster of so many nodes, whose workers have begun before."""
    import ray
    from ray.cluster_utils import Cluster

    from fmtkit.work.ray_engine import Ray

    cut(Path(source), 16)
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    for _ in range(int(count)):
        made.add_node(num_cpus=1)
    ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
    list(Ray().map(_warm, iter(range(2 * int(count)))))
    with tempfile.TemporaryDirectory(prefix="fmtkit-bench-") as out:
        begun = time.monotonic()
        convert_to(source, Path(out) / "out", ConvertOptions(type="chatml.intel", engine="ray"))
        wall = time.monotonic() - begun
    ray.shutdown()
    made.shutdown()
    return {"wall": wall}


def _warm(number: int) -> int:
    import fmtkit.running.task_work  # noqa: F401 - what a worker loads before its first task

    time.sleep(1)
    return number


def cut(source: Path, most: int) -> None:
    """Have small inputs cut into tasks too: at least so many, none of more than 96 MiB."""
    size = sum(file.stat().st_size for file in source.iterdir())
    parts.PART_BYTES = min(parts.PART_BYTES, size // most)


def run_tasks(source: str, piece: str) -> dict[str, float]:
    """Convert as workers and driver do, in one process."""
    parts.PART_BYTES = int(piece)
    done = []

    class Counted(Inline):
        def map(self, work: Callable[[Any], Any], tasks: Iterator[Any]) -> Iterator[Any]:
            for task in tasks:
                done.append(task)
                yield work(task)

    conversion_run.engine_of = lambda options: Counted()
    with tempfile.TemporaryDirectory(prefix="fmtkit-bench-") as out:
        cpu = time.process_time()
        convert_to(source, Path(out) / "out", ConvertOptions(type="chatml.intel", engine="ray"))
        return {"cpu": time.process_time() - cpu, "tasks": len(done)}


CHILDREN: dict[str, Callable[..., dict[str, Any]]] = {
    "drive": lambda folder, what, tasks: drive(Path(folder), what, int(tasks)),
    "command": run_command,
    "cluster": run_cluster,
    "tasks": run_tasks,
}


def write_source(folder: Path, megabytes: int) -> Path:
    """Write rows of 4 KB in four files."""
    folder.mkdir()
    for number in range(4):
        samples.write(folder / f"{number}.jsonl", "flat", megabytes * 1_000_000 // 4 // 4200, 4200)
    return folder


def main() -> None:
    """Run what was asked for and print its tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--simulate", action="store_true", help="the driver alone")
    parser.add_argument("--tasks", type=int, default=100_000, help="of --simulate")
    parser.add_argument("--nodes", action="store_true", help="a cluster of one node, and of two")
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="put the table into README.md")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        print(json.dumps(CHILDREN[given.child[0]](*given.child[1:])))
        return
    name = "scale"
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="fmtkit-bench-") as made:
        folder = Path(made)
        if given.simulate:
            name, lines = "scale-simulated", simulate(folder, given.tasks)
        else:
            source = write_source(folder / "source", given.megabytes)
            if given.nodes:
                name, lines = "scale-nodes", nodes(source, given.rounds)
            else:
                lines = [*engines(folder, source, given.rounds), *cost(source, given.rounds)]
    versions = ", ".join(f"{package} {_version(package)}" for package in PACKAGES)
    lines += [
        f"Python {platform.python_version()}, {_cores()} cores, load {load:.1f} before and "
        f"{os.getloadavg()[0]:.1f} after; {versions}."
    ]
    print("\n".join(lines))
    if given.write:
        write_table(name, lines)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


if __name__ == "__main__":
    main()
