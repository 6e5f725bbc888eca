"""--engine ray: the same bytes as on threads, whatever becomes of workers and nodes."""

import base64
import gzip
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fixture_cases import cases, job_of, renders
from object_store import BUCKET
from runs import INTEL, lines

import fmtkit
from fmtkit.core.errors import LimitError, OptionError, OutputExistsError, SourceError, WriteError
from fmtkit.options.convert_options import ConvertOptions
from fmtkit.running import conversion_run
from fmtkit.running.conversions import convert_to
from fmtkit.running.pipeline import stream
from fmtkit.running.task_work import TaskWork
from fmtkit.sources import parts
from fmtkit.training.data.convert_config import convert_config
from fmtkit.work.engines import TaskLostError, Threads
from fmtkit.work.ray_engine import Ray
from fmtkit.work.tasks import Task

if "CI" not in os.environ:  # there it is an error that it is missing
    pytest.importorskip("ray")
import ray

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster():
    """Give a head and three nodes of one CPU each, to which this process is connected."""
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    for _ in range(3):
        made.add_node(num_cpus=1)
    ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "rows.jsonl"
    write_rows(path, 20_000, 2000)
    return path


def write_rows(path: Path, count: int, size: int, letters: str = "c") -> None:
    """Write rows of about so many bytes, two in a thousand of them bad, and a blank line behind each."""
    head, tail = json.dumps(INTEL | {"question": "q{}", "chosen": "c{}"}).split("c{}")
    text = letters * (size // len(letters) + 2)
    with path.open("w") as file:
        for number in range(count):
            at = number * 7919 % len(letters)
            file.write(head.replace("q{}", f"{path.name} {number}"))
            file.write(f"{text[at : at + size]}{tail}\n")
            if number % 1000 == 100:
                file.write('{bad\n\n{"question": 1}\n')


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Give a folder of files of many kinds, and cut them into tasks of 2 MiB."""
    monkeypatch.setattr(parts, "PART_BYTES", 2 << 20)
    folder = tmp_path / "files"
    folder.mkdir()
    for number, count in enumerate((3000, 10, 5000, 1)):
        write_rows(folder / f"{number}.jsonl", count, 2000)
    text = (folder / "0.jsonl").read_bytes()
    (folder / "5.jsonl.gz").write_bytes(gzip.compress(text[: text.index(b"\n", 3 << 20) + 1]))
    rows = [INTEL | {"question": f"p{i}", "chosen": os.urandom(700).hex()} for i in range(4000)]
    pq.write_table(pa.Table.from_pylist(rows), folder / "6.parquet", row_group_size=500)
    (folder / "7.csv").write_text("question,chosen,rejected\n" + 'q,"a\nb",c\n,x,y\n' * 50)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    """Return the bytes of each file but the report, of large ones their hash."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        if path.stat().st_size < 1 << 20
        else hashlib.sha256(path.read_bytes()).digest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "report.json"
    }


def test_every_fixture_converts_alike(cluster):
    for case in cases():
        job = job_of(case, case.source, template="chatml" if renders(case) else None)
        found = [
            [(p.table.to_pylist(), p.rejects, p.counts) for p in stream(job, engine=engine)]
            for engine in (Threads(1), Ray())
        ]
        assert found[0] == found[1], case


def test_files_are_the_same_byte_for_byte(cluster, source, tmp_path):
    flags = {"val_size": 200, "chat_template": "chatml"}
    threads = fmtkit.convert(source, "chatml.intel", tmp_path / "threads", **flags)
    ours = fmtkit.convert(source, "chatml.intel", tmp_path / "ray", engine="ray", **flags)
    assert contents(tmp_path / "threads") == contents(tmp_path / "ray")
    same = ("rows_read", "rows_written", "quarantined", "reasons", "warnings", "sources")
    assert [threads.as_dict()[key] for key in same] == [ours.as_dict()[key] for key in same]


def same_report(one: Path, other: Path) -> None:
    """Assert that two reports say the same but for the time and the name of the output."""
    left, right = (json.loads((path / "report.json").read_text()) for path in (one, other))
    for report in (left, right):
        del report["seconds"], report["output"]
    assert left == right


def test_tasks_of_every_kind_of_source_make_the_same_files(cluster, files, tmp_path):
    flags = {"val_size": 0.1, "keep": "all"}
    fmtkit.convert(files, "chatml.intel", tmp_path / "threads", **flags)
    fmtkit.convert(files, "chatml.intel", tmp_path / "ray", engine="ray", **flags)
    made = contents(tmp_path / "threads")
    assert len([name for name in made if "train" in name]) > 10
    assert made == contents(tmp_path / "ray")
    same_report(tmp_path / "threads", tmp_path / "ray")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["files", "ray", "threads"]
    bad = [json.loads(line) for line in made["quarantine.jsonl"].splitlines()]
    text = (files / "2.jsonl").read_text().splitlines()
    of_file = [b for b in bad if b["file"].endswith("2.jsonl")]
    assert len(of_file) == 10
    assert all(text[b["line"] - 1] == b["raw"] for b in of_file)


@pytest.mark.parametrize("splits", [{"val_size": 300}, {"val_size": 0.1, "split_by": "rows"}])
def test_what_must_be_known_of_all_rows_is_found_by_tasks_too(cluster, files, tmp_path, splits):
    for engine in ("threads", "ray"):
        fmtkit.convert(files, "chatml.intel", tmp_path / engine, engine=engine, **splits)
    assert contents(tmp_path / "threads") == contents(tmp_path / "ray")


@pytest.mark.parametrize("limit", [1, 3001, 3500, 100_000])
def test_a_limit_is_of_the_first_rows(cluster, files, tmp_path, limit):
    for engine in ("threads", "ray"):
        report = fmtkit.convert(files, "intel", tmp_path / engine, engine=engine, limit=limit)
        assert report.rows_read == min(limit, report.rows_read)
    assert contents(tmp_path / "threads") == contents(tmp_path / "ray")
    same_report(tmp_path / "threads", tmp_path / "ray")


@pytest.mark.parametrize(
    "flags", [{"max_errors": "6"}, {"max_errors": "0.1%"}, {"on_error": "fail"}]
)
def test_a_run_ends_at_the_same_bad_row(cluster, files, tmp_path, flags):
    said = []
    for engine in ("threads", "ray"):
        out = tmp_path / engine / "out"
        with pytest.raises(LimitError) as ended:
            fmtkit.convert(files, "intel", out, engine=engine, **flags)
        said.append(str(ended.value).replace(str(out), "OUT"))
    assert said[0] == said[1]
    assert contents(tmp_path / "threads") == contents(tmp_path / "ray")
    same_report(tmp_path / "threads" / "out", tmp_path / "ray" / "out")


@pytest.mark.parametrize("then", ["threads", "ray"])
def test_a_run_that_was_interrupted_goes_on_with_what_workers_had_finished(
    cluster, files, tmp_path, then
):
    fmtkit.convert(files, "chatml.intel", tmp_path / "calm")
    out, seen = tmp_path / "out", []

    def interrupted(done, size, ledger):
        seen.append(ledger.rows_read)
        if len(seen) == 4:
            raise KeyboardInterrupt

    options = ConvertOptions(type="chatml.intel", engine="ray")
    with pytest.raises(KeyboardInterrupt):
        convert_to(str(files), out, options, watch=interrupted)
    assert not out.exists()
    assert len([*(tmp_path / ".out.partial" / "tasks").glob("*/task-*[0-9].json")]) >= 4
    rest = []
    options = ConvertOptions(type="chatml.intel", engine=then, resume=True)
    convert_to(
        str(files), out, options, watch=lambda done, size, ledger: rest.append(ledger.rows_read)
    )
    assert min(rest) > seen[-1]
    assert contents(tmp_path / "calm") == contents(out)
    assert not (tmp_path / ".out.partial").exists()


def test_a_run_on_threads_goes_on_with_workers(cluster, files, tmp_path, monkeypatch):
    fmtkit.convert(files, "chatml.intel", tmp_path / "calm")
    seen = []

    def interrupted(done, size, ledger):
        seen.append(done)
        if len(seen) == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert_to(
            str(files), tmp_path / "out", ConvertOptions(type="chatml.intel"), watch=interrupted
        )
    fmtkit.convert(files, "chatml.intel", tmp_path / "out", engine="ray", resume=True)
    assert contents(tmp_path / "calm") == contents(tmp_path / "out")


def test_a_lost_node_and_a_killed_worker_change_nothing(cluster, files, tmp_path, monkeypatch):
    run_with_losses(cluster, files, tmp_path, monkeypatch)


def run_with_losses(cluster, files: Path, tmp_path: Path, monkeypatch) -> None:
    """Convert on both engines, and lose a node and a worker of Ray's on the way."""
    fmtkit.convert(files, "chatml.intel", tmp_path / "threads")
    lost, killed = [], tmp_path / "killed"

    def killing(*arguments):
        work = TaskWork(*arguments)

        def convert(task: Task) -> object:
            if task.number == 6 and not killed.exists():
                killed.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return work(task)

        return convert

    def watch(done, size, ledger):
        if done > size / 3 and not lost:
            lost.append(lose_a_node(cluster))

    monkeypatch.setattr(conversion_run, "TaskWork", killing)
    options = ConvertOptions(type="chatml.intel", engine="ray")
    convert_to(str(files), tmp_path / "ray", options, watch=watch)
    cluster.add_node(num_cpus=1)
    assert lost
    assert killed.exists()
    assert contents(tmp_path / "threads") == contents(tmp_path / "ray")


def lose_a_node(cluster) -> None:
    """Have a node's processes killed, and wait until the cluster knows."""
    [lost] = random.Random(0).sample(sorted(cluster.worker_nodes, key=id), 1)
    cluster.remove_node(lost, allow_graceful=False)


def write_files(folder: Path, megabytes: int) -> Path:
    """Write rows of 4 KB in twelve files, of text that is about as long when it is compressed."""
    folder.mkdir()
    letters = base64.b64encode(random.Random(0).randbytes(3 << 20)).decode()
    for number in range(12):
        write_rows(folder / f"{number:02}.jsonl", megabytes * 244 // 12, 4000, letters)
    return folder


def run_calmly_and_with_losses(cluster, files: Path, tmp_path: Path, monkeypatch) -> None:
    """Convert on threads, on Ray, and on Ray with a node and a worker lost midway."""
    fmtkit.convert(files, "chatml.intel", tmp_path / "calm", engine="ray")
    calm = contents(tmp_path / "calm")
    shutil.rmtree(tmp_path / "calm")
    run_with_losses(cluster, files, tmp_path, monkeypatch)
    assert contents(tmp_path / "ray") == calm


def test_two_hundred_megabytes_are_the_same_with_a_node_and_a_worker_lost(
    cluster, tmp_path, monkeypatch
):
    monkeypatch.setattr(parts, "PART_BYTES", 6 << 20)
    run_calmly_and_with_losses(cluster, write_files(tmp_path / "files", 200), tmp_path, monkeypatch)


@pytest.mark.stress
@pytest.mark.timeout(3600)
def test_three_gigabytes_are_the_same_with_a_node_and_a_worker_lost(cluster, tmp_path, monkeypatch):
    run_calmly_and_with_losses(
        cluster, write_files(tmp_path / "files", 3000), tmp_path, monkeypatch
    )


def test_a_task_that_ends_its_worker_is_named_by_its_file_and_range(cluster, files, monkeypatch):
    def ends(task: Task) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(conversion_run, "TaskWork", lambda *arguments: ends)
    with pytest.raises(
        SourceError, match=r"0\.jsonl, bytes 0 to 2097152 crashed its worker repeatedly"
    ):
        fmtkit.convert(files, "intel", files.parent / "out", engine="ray")


DRIVER = """
import sys
from fmtkit.sources import parts
parts.PART_BYTES = 1 << 20
from fmtkit.cli import main
sys.argv = ["fmtkit", *sys.argv[1:]]
main()
"""


def test_a_driver_on_an_object_store_that_is_killed_midway_resumes_to_the_same_bytes(
    server, tmp_path, monkeypatch
):
    monkeypatch.setattr(parts, "PART_BYTES", 1 << 20)
    system, bucket = fsspec.filesystem("s3"), f"s3://{BUCKET}"
    for number in range(3):
        write_rows(tmp_path / f"{number}.jsonl", 2000, 4000)
        system.put_file(str(tmp_path / f"{number}.jsonl"), f"{BUCKET}/rows/{number}.jsonl")
    fmtkit.convert(f"{bucket}/rows", "chatml.intel", f"{bucket}/calm")

    def driver(*flags: str) -> subprocess.Popen:
        arguments = ["convert", f"{bucket}/rows", "--type", "chatml.intel", "-o", f"{bucket}/out"]
        command = [sys.executable, "-c", DRIVER, *arguments, "--engine", "ray", "--workers", "2"]
        return subprocess.Popen([*command, *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def records() -> list[str]:
        system.invalidate_cache()
        found = system.find(f"{BUCKET}/out/_fmtkit")
        return [name for name in found if re.search(r"-task-\d+\.json", name)]

    killed = driver()
    until = time.monotonic() + 240
    while len(records()) < 3 and killed.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    done = records()
    assert 3 <= len(done) < 24, killed.stderr.read()
    assert not system.exists(f"{BUCKET}/out/manifest.json")
    with pytest.raises(OutputExistsError, match="not finished, or is still under way"):
        fmtkit.convert(f"{bucket}/rows", "chatml.intel", f"{bucket}/out")
    server.seen.clear()
    resumed = driver("--resume")
    assert resumed.wait(400) == 0, resumed.stderr.read()
    written = {path.partition("?")[0] for method, path in server.seen if method == "PUT"}
    assert not {f"/{name}" for name in done} & written  # what was finished was not done again
    system.invalidate_cache()
    calm, out = (
        {n.partition(f"/{o}/")[2]: system.cat(n) for n in system.find(f"{BUCKET}/{o}")}
        for o in ("calm", "out")
    )
    assert calm.keys() == out.keys()
    assert {n: d for n, d in calm.items() if n != "report.json"} == {
        n: d for n, d in out.items() if n != "report.json"
    }


@pytest.fixture
def begun(monkeypatch):
    """Give a list of the beginnings and ends of clusters; none of them is real."""
    begun = []
    address = {"there": False}
    monkeypatch.setattr(ray, "is_initialized", lambda: address["there"])

    def shutdown():
        begun.append("end")
        address["there"] = False

    monkeypatch.setattr(ray, "shutdown", shutdown)

    def init(**options):
        begun.append("begin")
        address["there"] = True

    monkeypatch.setattr(ray, "init", init)

    def mapped(self, work, tasks):
        self.reach()
        yield from map(work, tasks)

    monkeypatch.setattr(Ray, "map", mapped)
    return begun


def test_a_cluster_is_started_once_for_a_run(files, tmp_path, begun):
    fmtkit.convert(files, "intel", tmp_path / "out", engine="ray", val_size=20, limit=4000)
    assert begun == ["begin", "end"]


def test_a_cluster_is_started_once_for_all_datasets_of_a_config(tmp_path, begun, model):
    config = tmp_path / "c.yaml"
    (tmp_path / "rows.jsonl").write_bytes(lines([INTEL]))
    entry = f"  - {{path: {tmp_path / 'rows.jsonl'}, type: chatml.intel}}\n"
    config.write_text(f"rl: dpo\nbase_model: {model}\ndatasets:\n{entry}{entry}")
    options = ConvertOptions(engine="ray")
    reports = convert_config(config, (), tmp_path / "out", options)
    assert [report.rows_written for report in reports] == [1, 1]
    assert begun == ["begin", "end"]


def test_a_task_that_ends_its_worker_three_times_ends_the_run_by_name(cluster, source):
    def ends(task: int) -> int:
        if task == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return task

    found = Ray().map(ends, iter(range(6)))
    assert [next(found) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(TaskLostError) as caught:
        next(found)
    assert caught.value.task == 3

    class Losing:
        def map(self, work, tasks):
            raise TaskLostError(next(tasks), "killed")
            yield

    job = fmtkit.running.conversions.RowStream(
        str(source), fmtkit.options.convert_options.RowOptions(type="intel")
    ).job
    with pytest.raises(
        SourceError, match=r"rows\.jsonl, the block up to byte \d+ crashed its worker repeatedly"
    ):
        list(stream(job, engine=Losing()))


def test_errors_of_ours_are_the_same_errors(cluster):
    def refuses(task: int) -> int:
        raise WriteError("column 'x': no NaN")

    with pytest.raises(WriteError, match="no NaN"):
        list(Ray().map(refuses, iter([1])))


def test_tasks_that_soon_end_by_themselves_are_not_cancelled(cluster, monkeypatch):
    """Ray 2.60 aborts the process that cancels a task just as its answer comes."""

    def works(number):
        if number == 0:
            raise WriteError("column 'x': no NaN")
        time.sleep(0.5)
        return number

    cancelled = []
    monkeypatch.setattr(ray, "cancel", lambda result, **_: cancelled.append(result))
    with pytest.raises(WriteError, match="no NaN"):
        list(Ray().map(works, iter(range(20))))
    assert cancelled == []


def test_what_cannot_be_is_said_before_anything_is_read(source, tmp_path):
    with pytest.raises(OptionError, match="writes a folder"):
        fmtkit.convert(source, "intel", tmp_path / "out.parquet", engine="ray")
    with pytest.raises(OptionError, match="need --engine ray"):
        fmtkit.convert(source, "intel", ray_address="auto")
    with pytest.raises(OptionError, match="--shared-filesystem"):
        fmtkit.convert(source, "intel", engine="ray", ray_address="auto")
    at = {"engine": "ray", "ray_address": "127.0.0.1:1"}
    with pytest.raises(OptionError, match=r"rows\.jsonl is a path of this machine; give URLs, or"):
        fmtkit.convert(source, "intel", tmp_path / "out", **at)
    with pytest.raises(OptionError, match=r"/out is a path of this machine"):
        fmtkit.convert([INTEL], "intel", tmp_path / "out", **at)


def test_an_address_where_no_cluster_is_is_named_within_seconds(monkeypatch):
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(OptionError, match=r"--ray-address 127\.0\.0\.1:1: .*refused"):
        list(Ray("127.0.0.1:1").map(str, iter([1])))


def test_an_address_where_no_cluster_is_leaves_no_output(tmp_path, source, monkeypatch):
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    at = {"engine": "ray", "ray_address": "127.0.0.1:1", "shared_filesystem": True}
    with pytest.raises(OptionError, match="refused"):
        fmtkit.convert(source, "intel", tmp_path / "out", **at)
    assert [path.name for path in tmp_path.iterdir()] == [source.name]


def test_a_bad_row_is_found_by_validation(cluster, source):
    threads, found = (fmtkit.validate(source, "intel", engine=e) for e in ("threads", "ray"))
    assert found.items == threads.items
    assert found.items[0].line == 102
