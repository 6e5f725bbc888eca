"""What maps over the blocks of a run is passed in: jobs, blocks and results can go to other processes."""

import io
import os
import pickle
from concurrent.futures import ProcessPoolExecutor
from dataclasses import FrozenInstanceError, replace
from multiprocessing import get_context
from pathlib import Path
from threading import Event

import polars as pl
import pyarrow as pa
import pytest
from fixture_cases import Case, cases, job_of, renders
from runs import INTEL, lines

from fmtkit.options.convert_options import RowOptions
from fmtkit.running.pipeline import process, stream
from fmtkit.running.preparation import prepare
from fmtkit.sources.opening import open_sources
from fmtkit.work.engines import Standing, TaskLostError, Threads

TOKENIZER = str(Path(__file__).parents[1] / "fixtures" / "tokenizer")


class Pickling:
    """An engine that works as another process would: on copies of everything."""

    def map(self, work, tasks):
        work = copied(work)
        for task in tasks:
            yield copied(work(copied(task)))


def copied(value):
    """Return a copy by way of pickle, its arrays in memory that cannot be written, as Ray's is."""
    buffers = []
    data = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return pickle.loads(data, buffers=[bytes(buffer.raw()) for buffer in buffers])


class Processes:
    """An engine of real processes, which have imported nothing of the job."""

    def map(self, work, tasks):
        with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
            yield from pool.map(work, list(tasks))


def results(job, engine):
    return [
        (
            piece.table.to_pylist(),
            piece.records.tolist(),
            None if piece.lines is None else piece.lines.tolist(),
            piece.rejects,
            piece.counts.warnings,
        )
        for piece in stream(job, engine=engine)
    ]


@pytest.mark.parametrize("case", cases(), ids=str)
def test_every_format_converts_alike_on_copies_of_its_job(case: Case) -> None:
    job = job_of(case, case.source, template="chatml" if renders(case) else None)
    expected = results(job, Threads(1))
    # Used once, it has compiled templates and made expressions: they stay behind.
    assert results(pickle.loads(pickle.dumps(job)), Pickling()) == expected
    assert results(job, Pickling()) == expected


@pytest.mark.slow
def test_blocks_convert_alike_in_other_processes(tmp_path):
    (tmp_path / "plugin_of_mine.py").write_text(
        "from fmtkit.columns import Text\n"
        "from fmtkit.columns.conversations import pair\n"
        "from fmtkit.formats.registry import converter\n"
        "from fmtkit.core.tables import Preference\n\n"
        "@converter()\n"
        "def mine(q: Text, a: Text, b: Text) -> Preference:\n"
        "    return pair(q, a, b)\n"
    )
    for name in "abc":
        (tmp_path / f"{name}.jsonl").write_bytes(
            lines([{"q": f"{name}{i}", "a": "a", "b": "b" if i else None} for i in range(9)])
        )
    options = RowOptions(
        type="plugin_of_mine",
        plugins=str(tmp_path / "plugin_of_mine.py"),
        chat_template="trl:qwen3",
        tokenizer=TOKENIZER,
        max_length=500,
    )
    from fmtkit.formats import registry

    registry.load_plugin(options.plugins[0])
    job = prepare(open_sources([str(tmp_path / f"{n}.jsonl") for n in "abc"]), options)
    found = results(job, Processes())
    assert found == results(job, Threads())
    assert [len(piece[3]) for piece in found] == [1, 1, 1]


@pytest.mark.parametrize(
    "source",
    [pa.Table.from_pylist([INTEL]), pl.DataFrame([INTEL]), [INTEL]],
    ids=["arrow", "polars", "rows"],
)
def test_sources_in_memory_are_pickled_with_their_rows(source):
    if isinstance(source, list):
        job = prepare(open_sources(source), RowOptions(type="intel"))
        assert results(job, Threads(1))
        return
    job = pickle.loads(pickle.dumps(prepare(open_sources(source), RowOptions(type="intel"))))
    assert [row for piece in results(job, Threads(1)) for row in piece[0]]


def test_what_can_be_read_only_once_says_so_when_it_is_pickled(tmp_path):
    [source] = open_sources(io.BytesIO(lines([INTEL])))
    with pytest.raises(TypeError, match="only once"):
        pickle.dumps(source)


def test_no_worker_changes_a_plan(tmp_path):
    odd = [INTEL, INTEL | {"meta": {"a": 1}}, INTEL | {"meta": 3, "more": [1]}, {"question": 1}]
    (tmp_path / "a.jsonl").write_bytes(lines(odd * 3))
    job = prepare(open_sources(str(tmp_path / "a.jsonl")), RowOptions(type="intel"))
    before = pickle.dumps(job.plans)
    list(stream(job))
    assert pickle.dumps(job.plans) == before
    with pytest.raises(FrozenInstanceError):
        job.plans[0].mode = "strict"


def test_an_engine_takes_no_more_tasks_than_it_has_room_for():
    taken = []

    def tasks():
        for number in range(100):
            taken.append(number)
            yield number

    mapped = Threads(2).map(lambda number: number * 2, tasks())
    assert [next(mapped) for _ in range(3)] == [0, 2, 4]
    assert len(taken) <= 3 + 2 + 2
    mapped.close()


def test_who_stops_taking_results_waits_for_no_thread():
    # The garbage collector closes a map that nobody holds, perhaps in a thread that is just starting:
    # Python's threads share a lock then, and joining another one under it never ends.
    begun, go_on, ended = Event(), Event(), Event()

    def work(number):
        if not number:
            begun.wait(60)
            return number
        begun.set()
        go_on.wait(60)
        ended.set()
        return number

    mapped = Threads(2).map(work, iter(range(2)))
    assert next(mapped) == 0
    mapped.close()
    assert not ended.is_set()
    go_on.set()
    assert ended.wait(60)


def test_a_block_is_processed_alone_as_in_a_stream(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(lines([INTEL, {"question": 1}]))
    job = prepare(open_sources(str(tmp_path / "a.jsonl")), RowOptions(type="chatml.intel"))
    [block] = job.sources[0].blocks()
    alone, [piece] = next(process(job, 0, 0, block)), stream(job)
    assert replace(alone, table=None, records=None, lines=None).rejects == piece.rejects
    assert alone.table.equals(piece.table)


@pytest.mark.parametrize("deaths", [2, 3])
def test_a_worker_out_of_memory_counts_as_one_that_died_and_a_lost_node_does_not(deaths):
    if "CI" not in os.environ:  # there it is an error that it is missing
        pytest.importorskip("ray")
    import ray

    from fmtkit.work.ray_engine import Flight, result_of

    node = ray.exceptions.NodeDiedError("the node is gone")
    memory = ray.exceptions.OutOfMemoryError("the worker was killed for memory")
    ends = iter([memory, node, node, node, *[memory] * (deaths - 1), None])

    class Cluster:
        exceptions = ray.exceptions

        def get(self, result):
            if (error := next(ends)) is not None:
                raise error
            return "done", None

    standing, flight = Standing(), Flight("the task", None)
    if deaths == 3:
        with pytest.raises(TaskLostError, match="killed for memory") as lost:
            result_of(Cluster(), flight, lambda task: None, standing)
        assert lost.value.task == "the task"
    else:
        assert result_of(Cluster(), flight, lambda task: None, standing) == "done"
        assert standing.lost == 5
