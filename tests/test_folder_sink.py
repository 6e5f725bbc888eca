import errno
import fcntl
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from fmtkit.core.errors import OutputExistsError, ResumeError, WriteError
from fmtkit.writing import destinations
from fmtkit.writing.folder_sink import FolderSink, find_resume
from fmtkit.writing.formats import encode, find
from fmtkit.writing.outputs import Destination
from fmtkit.writing.sinks import Closing, RunState
from fmtkit.writing.task_output import TaskRecord

SCRIPT = Path(__file__).with_name("killed_runs.py")
FINGERPRINT = {"sources": ["a"], "options": {"seed": 0}}


def texts(number, count=10):
    return [f"{number} {i} " * 50 for i in range(count)]


def rows(number, count=10):
    table = pa.table({"text": texts(number, count)})
    return encode(table, find("parquet"), "none")


def closing(**values):
    return Closing(report=lambda files: {"fmtkit": "0", "files": len(files)}, **values)


def open_sink(path, **options):
    return FolderSink(path, "parquet", FINGERPRINT, shard_bytes=2 * rows(0).nbytes, **options)


def feed(sink, start=0, end=6):
    for number in range(start, end):
        sink.write(rows(number))
        sink.write(rows(number, number % 2), "validation")
        if number % 3 == 1:
            sink.quarantine(b"%d\n" % number)
        state = {"blocks": number + 1}
        sink.end_block(RunState((0, number + 1), lambda s=state: s, lambda: {"type": "intel"}))


def contents(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def write_whole(path, **options):
    sink = open_sink(path, **options)
    feed(sink)
    return sink.finish(closing())


def test_shards_of_all_splits_manifest_quarantine_and_report_are_there(tmp_path):
    sink = open_sink(tmp_path / "out")
    feed(sink)
    assert not (tmp_path / "out").exists()
    written = sink.finish(closing(metadata={"type": "intel"}, manifest={"type": "intel"}))
    files = contents(tmp_path)
    assert [*files] == [
        "out/data/train-00000-of-00003.parquet",
        "out/data/train-00001-of-00003.parquet",
        "out/data/train-00002-of-00003.parquet",
        "out/data/validation-00000-of-00003.parquet",
        "out/data/validation-00001-of-00003.parquet",
        "out/data/validation-00002-of-00003.parquet",
        "out/manifest.json",
        "out/quarantine.jsonl",
        "out/report.json",
    ]
    manifest = json.loads(files["out/manifest.json"])
    assert [*manifest] == ["type", "fingerprint", "files"]
    for entry, file in zip(manifest["files"], written, strict=True):
        data = files[f"out/{entry['path']}"]
        assert entry["bytes"] == file.bytes == len(data)
        assert entry["sha256"] == file.sha256 == hashlib.sha256(data).hexdigest()
        assert entry["rows"] == file.rows == pq.read_metadata(file.path).num_rows
        assert pq.read_schema(file.path).metadata == {b"type": b"intel"}
    assert files["out/quarantine.jsonl"] == b"1\n4\n"


def test_the_shards_together_are_the_rows_in_order(tmp_path):
    write_whole(tmp_path / "out")
    train = sorted((tmp_path / "out" / "data").glob("train-*"))
    text = pa.concat_tables(pq.read_table(path) for path in train)["text"].to_pylist()
    assert [" ".join(t.split()[:2]) for t in text] == [
        f"{n} {i}" for n in range(6) for i in range(10)
    ]


def test_load_dataset_reads_the_folder_by_split(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_OFFLINE", True)
    write_whole(tmp_path / "out")
    loaded = datasets.load_dataset(
        "parquet", data_dir=str(tmp_path / "out"), cache_dir=str(tmp_path / "cache")
    )
    assert {split: len(part) for split, part in loaded.items()} == {"train": 60, "validation": 3}


def test_a_suspended_run_is_resumed_to_the_same_bytes(tmp_path):
    write_whole(tmp_path / "calm" / "out")
    for end in range(7):
        out = tmp_path / f"stopped {end}" / "out"
        sink = open_sink(out)
        feed(sink, end=end)
        sink.suspend()
        assert not out.exists()
        resume = find_resume(out, FINGERPRINT)
        done = resume.next_block[1]
        assert done == resume.state.get("blocks", 0) == end // 2 * 2
        sink = open_sink(out, resume=resume)
        feed(sink, start=done)
        sink.finish(closing())
        assert contents(out.parent) == contents(tmp_path / "calm")
        assert find_resume(out, FINGERPRINT).is_complete


@pytest.mark.parametrize("arguments", [("5", "0"), ("17", "8"), ("11", "30", "overwrite")])
def test_killed_at_any_event_a_resumed_run_ends_in_the_same_bytes(tmp_path, arguments):
    run = subprocess.run(
        [sys.executable, SCRIPT, tmp_path, *arguments], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) > 90


def test_killed_at_random_moments_a_resumed_run_ends_in_the_same_bytes(tmp_path):
    command = [sys.executable, SCRIPT]
    subprocess.run([*command, tmp_path / "calm" / "out"], check=True)
    moments = random.Random(0)
    out = tmp_path / "killed" / "out"
    for _ in range(2):
        run = subprocess.Popen([*command, out])
        partial = out.parent / ".out.partial" / "journal.json"
        while not partial.exists() and run.poll() is None:
            os.sched_yield()
        try:
            run.wait(moments.uniform(0, 0.2))
        except subprocess.TimeoutExpired:
            run.send_signal(signal.SIGKILL)
            assert run.wait() == -signal.SIGKILL
            assert (
                not out.exists() or (out / "report.json").exists()
            )  # what has its final name is whole
    subprocess.run([*command, out], check=True)
    assert contents(tmp_path / "killed") == contents(tmp_path / "calm")


def test_a_change_of_the_input_or_the_options_is_refused(tmp_path):
    out = tmp_path / "out"
    assert find_resume(out, FINGERPRINT) is None
    sink = open_sink(out)
    feed(sink, end=2)
    sink.suspend()
    with pytest.raises(ResumeError, match=r"options\.seed changed from 0 to 1"):
        find_resume(out, {"sources": ["a"], "options": {"seed": 1}})
    write_whole(out)
    with pytest.raises(ResumeError, match=r"sources\[0\] changed"):
        find_resume(out, {"sources": ["b"], "options": {"seed": 0}})


def test_a_shard_that_is_not_what_the_journal_says_is_refused(tmp_path):
    sink = open_sink(tmp_path / "out")
    feed(sink, end=2)
    sink.suspend()
    (shard,) = (tmp_path / ".out.partial" / "out" / "data").glob("train-*")
    shard.write_bytes(b"short")
    with pytest.raises(ResumeError, match="has 5 bytes where the journal says"):
        open_sink(tmp_path / "out", resume=find_resume(tmp_path / "out", FINGERPRINT))


def test_without_resume_an_interrupted_run_starts_again(tmp_path):
    sink = open_sink(tmp_path / "out")
    feed(sink, end=3)
    sink.suspend()
    write_whole(tmp_path / "out")
    write_whole(tmp_path / "calm" / "out")
    shutil.move(tmp_path / "calm", tmp_path / "expected")
    assert contents(tmp_path / "out") == contents(tmp_path / "expected" / "out")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["expected", "out"]


def test_an_aborted_run_leaves_nothing(tmp_path):
    sink = open_sink(tmp_path / "out")
    feed(sink, end=3)
    sink.abort()
    assert not [*tmp_path.iterdir()]


def test_a_rejected_run_keeps_quarantine_and_report_only_and_may_be_repeated(tmp_path):
    for options in ({}, {"overwrite": True}, {}):
        sink = open_sink(tmp_path / "out", **options)
        feed(sink, end=3)
        sink.reject({"fmtkit": "0"})
        assert [*contents(tmp_path)] == ["out/quarantine.jsonl", "out/report.json"]
        assert find_resume(tmp_path / "out", FINGERPRINT) is None
    write_whole(tmp_path / "out")
    assert "out/manifest.json" in contents(tmp_path)


def test_a_rejected_run_leaves_the_folder_of_an_earlier_one_as_it_is(tmp_path):
    write_whole(tmp_path / "out")
    before = contents(tmp_path)
    for _ in range(2):
        sink = open_sink(tmp_path / "out", overwrite=True)
        sink.quarantine(b"{}\n")
        sink.reject({"fmtkit": "0"})
        reasons = {"out.failed/quarantine.jsonl", "out.failed/report.json"}
        assert contents(tmp_path).keys() - before.keys() == reasons
        assert contents(tmp_path).items() >= before.items()
        assert sink.report_path == tmp_path / "out.failed" / "report.json"
    write_whole(tmp_path / "out", overwrite=True)
    assert contents(tmp_path) == before


def test_a_folder_that_exists_is_refused_and_with_overwrite_replaced_as_a_whole(tmp_path):
    out = tmp_path / "out"
    write_whole(out)
    before = contents(out)
    with pytest.raises(OutputExistsError, match="exists already; --overwrite replaces it"):
        open_sink(out)
    sink = open_sink(out, overwrite=True)
    sink.write(rows(9))
    assert contents(out) == before
    sink.finish(closing())
    assert sorted(contents(tmp_path)) == [
        "out/data/train-00000-of-00001.parquet",
        "out/manifest.json",
        "out/report.json",
    ]


def test_a_folder_that_appears_meanwhile_is_not_deleted(tmp_path):
    sink = open_sink(tmp_path / "out", overwrite=True)
    feed(sink)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    with pytest.raises(OutputExistsError, match="holds mine, which fmtkit did not write"):
        sink.finish(closing())
    assert (tmp_path / "out" / "mine").exists()


@pytest.fixture
def no_locks(monkeypatch):
    """Let the file system have no locks, as some network file systems."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", refuse)


def test_a_second_run_is_refused_and_the_first_loses_nothing(tmp_path):
    out = tmp_path / "out"
    first = open_sink(out)
    first.write(rows(0))
    refused = pytest.raises(OutputExistsError, match=f"^another run is writing to {out}; wait for")
    place = Destination(out, None)
    for overwrite in (False, True):
        with refused:
            open_sink(out, overwrite=overwrite)
        with refused:
            destinations.refuse(place, (), overwrite=overwrite, resume=False)
    with refused:
        destinations.refuse(place, (), overwrite=False, resume=True)
    with refused:
        find_resume(out, FINGERPRINT)
    first.finish(closing())
    assert find_resume(out, FINGERPRINT).is_complete
    assert pq.read_table(out / "data")["text"].to_pylist() == texts(0)
    assert [*tmp_path.iterdir()] == [out]


@pytest.mark.parametrize("end", ["suspend", "abort", "reject", "finish"])
def test_a_run_that_has_ended_is_in_nobodys_way(tmp_path, end):
    first = open_sink(tmp_path / "out")
    first.write(rows(0))
    given = {"reject": [{"fmtkit": "0"}], "finish": [closing()]}.get(end, [])
    getattr(first, end)(*given)
    open_sink(tmp_path / "out", overwrite=True).abort()


def test_of_many_runs_that_begin_at_once_one_writes_all_its_rows(tmp_path):
    barrier = Barrier(6)

    def run(number: int) -> str:
        barrier.wait()
        try:
            sink = open_sink(tmp_path / "out")
            sink.write(rows(number))
            sink.finish(closing())
        except OutputExistsError as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(6) as pool:
        done = [*pool.map(run, range(6))]
    assert done.count("") == 1
    known = re.compile("|another run is writing to .*|.* exists already; --overwrite replaces it")
    assert all(map(known.fullmatch, done)), done
    assert pq.read_table(tmp_path / "out/data")["text"].to_pylist() == texts(done.index(""))
    assert find_resume(tmp_path / "out", FINGERPRINT).is_complete


def test_a_lost_working_folder_is_an_error_not_a_loss(tmp_path, no_locks):
    first = open_sink(tmp_path / "out")
    first.write(rows(0))
    second = open_sink(tmp_path / "out")
    second.write(rows(1))
    with pytest.raises(WriteError, match="another run"):
        first.finish(closing())
    second.finish(closing())
    (data,) = (tmp_path / "out" / "data").iterdir()
    assert pq.read_table(data)["text"][0].as_py().startswith("1 0")


def test_a_run_whose_working_folder_is_gone_says_so(tmp_path, no_locks):
    for step in ("write", "finish", "reject"):
        first = open_sink(tmp_path / "out")
        open_sink(tmp_path / "out").abort()
        given = {"write": rows(0), "finish": closing(), "reject": {"fmtkit": "0"}}[step]
        with pytest.raises(WriteError, match="is being written by another run; this one stops"):
            getattr(first, step)(given)


def test_a_run_whose_workers_write_stops_when_another_begins_or_resumes(tmp_path, no_locks):
    for resumes in (False, True):
        out = tmp_path / str(resumes) / "out"
        first = open_sink(out)
        place = first.workers_place()
        resume = find_resume(out, FINGERPRINT) if resumes else None
        second = open_sink(out, resume=resume)
        point = RunState((0, 1), dict, dict, ends_task=True)
        with pytest.raises(WriteError, match="is being written by another run; this one stops"):
            first.adopt(TaskRecord(0), b"", point)
        # What its workers still make is nothing that the other one takes up, unless it is the same run.
        assert (second.workers_place() == place) is resumes
        second.abort()
