"""--engine ray: the same bytes as on threads, whatever becomes of workers and nodes."""

import json
import os
import signal
from pathlib import Path

import pytest
from fixture_cases import cases, job_of, renders
from runs import INTEL

import fmtkit
from fmtkit.converting.engines import TaskLostError, Threads
from fmtkit.converting.pipeline import stream
from fmtkit.converting.ray_engine import Ray
from fmtkit.errors import OptionError, SourceError, WriteError

if "CI" not in os.environ:  # there it is an error that it is missing
    pytest.importorskip("ray")
import ray

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster():
    """Give a head and two nodes of one CPU each, to which this process is connected."""
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    for _ in range(2):
        made.add_node(num_cpus=1)
    ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "rows.jsonl"
    rows = [INTEL | {"question": f"q{i}", "chosen": "c" * 2000} for i in range(20_000)]
    lines = [json.dumps(row) for row in rows]
    lines[100:100] = ["{bad", '{"question": 1}']
    path.write_text("".join(line + "\n" for line in lines))
    return path


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "report.json"
    }


def test_every_fixture_converts_alike(cluster):
    for case in cases():
        job = job_of(case, case.source, template="chatml" if renders(case) else None)
        found = [
            [(p.table.to_pylist(), p.rejects, p.warnings) for p in stream(job, engine=engine)]
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


def test_a_lost_node_and_a_killed_worker_change_nothing(cluster, source, tmp_path):
    fmtkit.convert(source, "chatml.intel", tmp_path / "threads")
    lost = cluster.add_node(num_cpus=1)
    killed = []

    def watch(done, size, ledger):
        if not killed:
            killed.append(kill_a_worker())
            cluster.remove_node(lost)

    from fmtkit.converting.conversions import convert_to
    from fmtkit.converting.convert_options import ConvertOptions

    options = ConvertOptions(type="chatml.intel", engine="ray")
    convert_to(str(source), tmp_path / "ray", options, watch=watch)
    assert killed
    assert contents(tmp_path / "threads") == contents(tmp_path / "ray")


def kill_a_worker() -> int:
    """Kill a process that runs a task."""
    from psutil import process_iter

    for process in process_iter(["cmdline"]):
        if "ray::_run" in " ".join(process.info["cmdline"] or ()):
            process.send_signal(signal.SIGKILL)
            return process.pid
    return 0


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

    job = fmtkit.converting.conversions.RowStream(
        str(source), fmtkit.converting.convert_options.RowOptions(type="intel")
    ).job
    with pytest.raises(
        SourceError, match=r"rows\.jsonl, the block up to byte \d+ ended its worker again and again"
    ):
        list(stream(job, engine=Losing()))


def test_errors_of_ours_are_the_same_errors(cluster):
    def refuses(task: int) -> int:
        raise WriteError("column 'x': no NaN")

    with pytest.raises(WriteError, match="no NaN"):
        list(Ray().map(refuses, iter([1])))


def test_what_cannot_be_is_said_before_anything_is_read(source, tmp_path):
    with pytest.raises(OptionError, match="writes a folder"):
        fmtkit.convert(source, "intel", tmp_path / "out.parquet", engine="ray")
    with pytest.raises(OptionError, match="--engine ray; give it too"):
        fmtkit.convert(source, "intel", ray_address="auto")
    with pytest.raises(OptionError, match="--shared-filesystem"):
        fmtkit.convert(source, "intel", engine="ray", ray_address="auto", plugins=["p.py"])


def test_an_address_where_no_cluster_is_is_named_within_seconds(monkeypatch):
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(OptionError, match=r"--ray-address 127\.0\.0\.1:1: .*refused"):
        list(Ray("127.0.0.1:1").map(str, iter([1])))


def test_a_bad_row_is_found_by_validation(cluster, source):
    threads, found = (fmtkit.validate(source, "intel", engine=e) for e in ("threads", "ray"))
    assert found.items == threads.items
    assert found.items[0].line == 101
