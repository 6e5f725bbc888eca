"""What the driver makes of many tasks' records: sums, names, order, numbers of rows; and how runs go on."""

import hashlib
import json
from collections import Counter
from pathlib import Path

import pytest
from benchmark_modules import load

from fmtkit.core.errors import WriteError
from fmtkit.options.convert_options import ConvertOptions
from fmtkit.running import conversion_run
from fmtkit.running.conversions import convert_to
from fmtkit.sources import parts
from fmtkit.writing import folder_sink
from fmtkit.writing.working_folder import WorkingFolder

scale = load("scale")
TASKS = 500


class Workers(scale.Workers):
    """Workers that note which tasks they did."""

    def __init__(self) -> None:
        self.done: list[int] = []

    def map(self, work, tasks):
        for record in super().map(work, tasks):
            self.done.append(record.task)
            yield record


@pytest.fixture
def holes(tmp_path):
    """Give files of so many tasks, with next to nothing in them."""
    scale.write_holes(tmp_path / "files", TASKS)
    return tmp_path / "files"


def drive(holes, out, monkeypatch, engine, watch=None, **options):
    monkeypatch.setattr(conversion_run, "engine_of", lambda options: engine)
    monkeypatch.setattr(folder_sink, "SECONDS", 1000.0)
    options = ConvertOptions(type="chatml.intel", engine="ray", val_size=0.05, **options)
    return convert_to(str(holes), out, options, watch=watch)


def whole(folder: Path) -> dict[str, str]:
    """Return the hash of each small file but the report, and the size of each shard."""
    files = [p for p in folder.rglob("*") if p.is_file() and p.name != "report.json"]
    return {
        str(p.relative_to(folder)): str(p.stat().st_size)
        if p.parent.name == "data"
        else hashlib.sha256(p.read_bytes()).hexdigest()
        for p in files
    }


def test_records_add_up_in_the_order_of_the_input(holes, tmp_path, monkeypatch):
    report = drive(holes, tmp_path / "out", monkeypatch, Workers())
    records = [scale.record_of(task) for task in scale.tasks_of_holes(TASKS)]
    ledgers = [record.counts.ledger for record, _ in records]
    for term in ("rows_read", "rows_written", "quarantined", "blank_lines"):
        assert report.data[term] == sum(ledger[term] for ledger in ledgers)
    for codes in ("warnings", "reasons"):
        assert report.data[codes] == sum((Counter(ledger[codes]) for ledger in ledgers), Counter())
    assert report.data["bytes_read"] == TASKS * parts.PART_BYTES
    # Shards are numbered by split, in the order of the tasks.
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    made = {"train": iter(range(TASKS)), "validation": iter(range(TASKS))}
    expected = [
        (f"data/{s.split}-{next(made[s.split]):05}-of-00500.parquet", s.rows, s.bytes, s.sha256)
        for record, _ in records
        for s in record.shards
    ]
    files = manifest["files"]
    assert [(f["path"], f["rows"], f["bytes"], f["sha256"]) for f in files] == expected
    assert all((tmp_path / "out" / f["path"]).stat().st_size == f["bytes"] for f in files)
    # Rows and lines of the quarantine are counted within their file.
    rows: Counter[int] = Counter()
    lines: Counter[int] = Counter()
    places = []
    for task, (record, bad) in zip(scale.tasks_of_holes(TASKS), records, strict=True):
        source = task.parts[0][0]
        for own in map(json.loads, bad.splitlines()):
            place = (own["row"] + rows[source], own["line"] + lines[source])
            places.append((f"{source:05}.jsonl", *place, own["code"]))
        rows[source] += record.counts.rows[source]
        lines[source] += record.counts.lines[source]
    told = map(json.loads, (tmp_path / "out" / "quarantine.jsonl").read_text().splitlines())
    assert [(b["file"], b["row"], b["line"], b["code"]) for b in told] == places
    assert [s["rows"] for s in report.data["sources"]] == [rows[i] for i in range(5)]


def test_a_run_goes_on_with_every_record_that_is_there_and_whole(holes, tmp_path, monkeypatch):
    drive(holes, tmp_path / "calm", monkeypatch, Workers())
    with pytest.raises(KeyboardInterrupt):
        drive(holes, tmp_path / "out", monkeypatch, scale.Killed())
    [made] = (tmp_path / ".out.partial" / "tasks").iterdir()
    (made / "task-000005.json").write_text('{"task": 5')  # what it was killed at
    (made / "train-000130-000.parquet").unlink()
    (made / "task-000490.json").unlink()
    workers = Workers()
    drive(holes, tmp_path / "out", monkeypatch, workers, resume=True)
    assert sorted(workers.done) == [5, 130, 490]
    assert whole(tmp_path / "calm") == whole(tmp_path / "out")


@pytest.mark.parametrize("stop", [100, 256, 400])
def test_a_driver_that_ends_at_any_task_loses_none(holes, tmp_path, monkeypatch, stop):
    drive(holes, tmp_path / "calm", monkeypatch, Workers())
    first, seen = Workers(), []

    def watch(done, size, ledger):
        seen.append(done)
        if len(seen) == stop:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        drive(holes, tmp_path / "out", monkeypatch, first, watch)
    second = Workers()
    drive(holes, tmp_path / "out", monkeypatch, second, resume=True)
    assert first.done + second.done == list(range(TASKS))
    assert whole(tmp_path / "calm") == whole(tmp_path / "out")


@pytest.mark.parametrize("moved", [0, 1, 300])
def test_a_driver_killed_while_it_takes_shards_over_loses_none(holes, tmp_path, monkeypatch, moved):
    drive(holes, tmp_path / "calm", monkeypatch, Workers())
    left = WorkingFolder.move

    def killed(self, run, moves):
        left(self, run, dict([*moves.items()][:moved]))
        raise KeyboardInterrupt

    monkeypatch.setattr(WorkingFolder, "move", killed)
    with pytest.raises(KeyboardInterrupt):
        drive(holes, tmp_path / "out", monkeypatch, Workers())
    monkeypatch.setattr(WorkingFolder, "move", left)
    workers = Workers()
    drive(holes, tmp_path / "out", monkeypatch, workers, resume=True)
    assert workers.done == list(range(folder_sink.TASKS, TASKS))
    assert whole(tmp_path / "calm") == whole(tmp_path / "out")


def test_a_checkpoint_does_not_wait_for_many_slow_tasks(holes, tmp_path, monkeypatch):
    journal, seen = tmp_path / ".out.partial" / "journal.json", []

    def watch(done, size, ledger):
        monkeypatch.setattr(folder_sink, "SECONDS", -1.0)
        seen.append(len(journal.read_bytes().splitlines()))

    drive(holes, tmp_path / "out", monkeypatch, Workers(), watch)
    # The fingerprint; then a task that waits for the one behind it, and each of the others.
    assert seen == [1, *range(2, TASKS + 1)]


def test_records_are_read_a_few_at_a_time(holes, tmp_path, monkeypatch):
    with pytest.raises(KeyboardInterrupt):
        drive(holes, tmp_path / "out", monkeypatch, scale.Killed())
    taken, ahead = [], []
    record = folder_sink.LocalPlace.record

    def noted(self, task):
        taken.append(task)
        return record(self, task)

    monkeypatch.setattr(folder_sink.LocalPlace, "record", noted)

    def watch(done, size, ledger):
        ahead.append(len(taken) - len(ahead))

    drive(holes, tmp_path / "out", monkeypatch, Workers(), watch, resume=True)
    assert len(taken) == TASKS
    assert max(ahead) <= conversion_run.READERS + 4


def test_a_shard_that_is_lost_before_it_is_taken_over_ends_the_run(holes, tmp_path, monkeypatch):
    def watch(done, size, ledger):
        for path in (tmp_path / ".out.partial" / "tasks").rglob("train-000003-000.parquet"):
            path.unlink()

    with pytest.raises(WriteError, match=r"train-00003\.parquet|No such file"):
        drive(holes, tmp_path / "out", monkeypatch, Workers(), watch)
    assert not (tmp_path / "out").exists()


def test_a_bucket_is_asked_for_each_record_once(holes, monkeypatch, tmp_path):
    done = scale.child("drive", tmp_path, "bucket, resumed", TASKS)
    assert done["rows"] == sum(
        scale.record_of(task)[0].counts.ledger["rows_written"]
        for task in scale.tasks_of_holes(TASKS)
    )
    bad = len([n for n in range(TASKS) if n % scale.BAD_EVERY == 7])
    # A record each, its quarantine where it has one, and what does not grow with the tasks.
    assert TASKS + bad <= done["requests"] <= TASKS + bad + 20
