"""Outputs on object stores: each file appears whole, the manifest last; runs resume, and two do not mix."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from object_store import BUCKET
from runs import INTEL, lines

import fmtkit
from fmtkit.cli import main
from fmtkit.core import storage
from fmtkit.core.errors import (
    LimitError,
    NothingWrittenError,
    OptionError,
    OutputExistsError,
    ResumeError,
    SourceError,
    WriteError,
)
from fmtkit.core.urls import ObjectPath
from fmtkit.options.convert_options import ConvertOptions
from fmtkit.running.conversions import convert_to
from fmtkit.sources import parts
from fmtkit.sources.opening import open_sources
from fmtkit.training.data.convert_config import convert_config
from fmtkit.writing import object_store
from fmtkit.writing.formats import encode, find
from fmtkit.writing.object_sinks import ObjectFolderSink, find_resumption
from fmtkit.writing.sinks import Closing, RunState
from fmtkit.writing.task_output import TaskRecord

fsspec = pytest.importorskip("fsspec")
import pyarrow as pa  # noqa: E402

ROWS = [INTEL | {"question": f"q{i}"} for i in range(40)]


@pytest.fixture
def memory(monkeypatch):
    monkeypatch.setattr(storage, "PAUSES", (0.0, 0.0, 0.0))
    system = fsspec.filesystem("memory")
    yield system
    system.store.clear()
    system.pseudo_dirs[:] = [""]


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS) + "{bad\n")
    return path


def names(system, root: str) -> list[str]:
    system.invalidate_cache()
    return [name.removeprefix(system._strip_protocol(root)) for name in system.find(root)]


def test_a_folder_has_shards_quarantine_report_and_manifest(memory, source, tmp_path):
    report = fmtkit.convert(source, "intel", "memory://out", val_size=0.2)
    assert names(memory, "/out") == [
        "/data/train-000000-000.parquet",
        "/data/validation-000000-000.parquet",
        "/manifest.json",
        "/quarantine.jsonl",
        "/report.json",
    ]
    assert report.outputs == (
        "memory://out/data/train-000000-000.parquet",
        "memory://out/data/validation-000000-000.parquet",
        "memory://out/quarantine.jsonl",
    )
    fmtkit.convert(source, "intel", tmp_path / "out", val_size=0.2)
    local = fmtkit.table(tmp_path / "out", "passthrough")
    assert fmtkit.table("memory://out", "passthrough").to_pylist() == local.to_pylist()
    manifest = json.loads(memory.cat("/out/manifest.json"))
    assert {file["path"]: file["bytes"] for file in manifest["files"]} == {
        f"data/{kind}-000000-000.parquet": memory.size(f"/out/data/{kind}-000000-000.parquet")
        for kind in ("train", "validation")
    }
    assert memory.cat("/out/quarantine.jsonl") == (tmp_path / "out/quarantine.jsonl").read_bytes()
    assert json.loads(memory.cat("/out/report.json"))["rows_written"] == 40


@pytest.mark.parametrize("suffix", ["parquet", "jsonl", "arrow"])
def test_a_file_is_the_same_as_on_this_machine(memory, source, tmp_path, suffix):
    fmtkit.convert(source, "intel", f"memory://there/out.{suffix}")
    fmtkit.convert(source, "intel", tmp_path / f"out.{suffix}")
    assert names(memory, "/there") == [
        *sorted([f"/out.{suffix}", "/out.quarantine.jsonl", "/out.report.json"])
    ]
    here = (tmp_path / f"out.{suffix}").read_bytes()
    assert memory.cat(f"/there/out.{suffix}") == here


@pytest.mark.parametrize("out", ["memory://out", "memory://out.parquet"])
def test_what_is_there_is_replaced_only_if_asked_and_only_if_ours(memory, source, out):
    fmtkit.convert(source, "intel", out)
    with pytest.raises(OutputExistsError, match="exists already; --overwrite replaces it"):
        fmtkit.convert(source, "intel", out)
    before = memory.find("/")
    fmtkit.convert(source, "intel", out, overwrite=True)
    assert memory.find("/") == before
    rows = next(name for name in before if name.endswith(".parquet"))
    memory.pipe(rows, b"changed")
    with pytest.raises(OutputExistsError, match="was changed since fmtkit wrote it"):
        fmtkit.convert(source, "intel", out, overwrite=True)
    memory.rm(next(name for name in before if name.endswith("report.json")))
    with pytest.raises(OutputExistsError, match="fmtkit did not write it"):
        fmtkit.convert(source, "intel", out, overwrite=True)
    assert memory.cat(rows) == b"changed"


@pytest.mark.parametrize("out", ["memory://out", "memory://out.parquet"])
def test_a_finished_run_is_no_error_to_resume_but_a_changed_one_is(memory, source, out):
    first = fmtkit.convert(source, "intel", out)
    again = fmtkit.convert(source, "intel", out, resume=True)
    assert again.as_dict() == first.as_dict()
    with pytest.raises(ResumeError, match="limit changed"):
        fmtkit.convert(source, "intel", out, resume=True, limit=3)


@pytest.mark.parametrize("out", ["memory://out", "memory://out.parquet"])
def test_a_run_without_rows_leaves_its_reasons_and_what_was_there(memory, source, tmp_path, out):
    bad = tmp_path / "bad.jsonl"
    bad.write_text("{bad\n")
    with pytest.raises(NothingWrittenError) as caught:
        fmtkit.convert(bad, "intel", out)
    assert str(caught.value.report).endswith("report.json")
    assert not [name for name in memory.find("/") if name.endswith(("parquet", "manifest.json"))]
    fmtkit.convert(source, "intel", out, resume=True)
    whole = {name: memory.cat(name) for name in memory.find("/")}
    with pytest.raises(LimitError, match="failed"):
        fmtkit.convert(source, "intel", out, overwrite=True, max_errors="0")
    now = {name: memory.cat(name) for name in memory.find("/")}
    assert whole.items() <= now.items()
    assert all("failed" in name for name in now.keys() - whole.keys())
    fmtkit.convert(source, "intel", out, overwrite=True)
    assert memory.find("/") == [*whole]


@pytest.mark.parametrize(
    ("out", "words"),
    [
        ("hf://models/a/b", "give hf://datasets/OWNER/NAME"),
        ("https://a/b.jsonl", "not to https:// URLs"),
        ("simplecache::s3://b/x.parquet", "not to simplecache:// URLs"),
        ("s3:/bucket/out", "two slashes, s3://bucket/out"),
        ("s3://bucket", "name a file or a folder in the bucket"),
        ("s3://b/out.paruqet", "did you mean s3://b/out.parquet"),
        ("memory://x/out.txt", "writes no .txt files"),
    ],
)
def test_urls_that_cannot_be_written_are_refused_by_name(source, tmp_path, monkeypatch, out, words):
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(OptionError, match=words):
        fmtkit.convert(source, "intel", out)
    with pytest.raises(OptionError):  # which makes one slash of two
        fmtkit.convert(source, "intel", Path(out))
    assert sorted(tmp_path.rglob("*")) == before


def test_a_command_writes_nothing_to_memory(source, capsys, monkeypatch):
    arguments = ["fmtkit", "convert", str(source), "--type", "intel", "-o", "memory://out"]
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "what is in memory ends with the command" in capsys.readouterr().err


def test_several_datasets_of_a_config_get_folders_of_their_own(memory, source, tmp_path):
    config = tmp_path / "c.yaml"
    entry = f"  - {{path: {source}, type: chatml.intel}}\n"
    tokenizer = Path(__file__).parents[1] / "fixtures" / "tokenizer"
    config.write_text(
        f"base_model: {tokenizer}\nchat_template: chatml\nrl: dpo\ndatasets:\n{entry}{entry}"
    )
    convert_config(config, [], "memory://out", ConvertOptions())
    assert [name for name in memory.find("/") if name.endswith("manifest.json")] == [
        "/out/00/manifest.json",
        "/out/01/manifest.json",
    ]


def test_an_output_that_holds_its_source_is_refused(memory, source):
    memory.pipe("/out/a.jsonl", source.read_bytes())
    for out in ("memory://out", "memory://out/"):
        with pytest.raises(OptionError, match="is, or holds, the source"):
            fmtkit.convert("memory://out/a.jsonl", "intel", out)
    assert memory.find("/") == ["/out/a.jsonl"]


def rows_of(number: int, count: int = 20):
    return encode(
        pa.table({"text": [f"{number} {i} " * 50 for i in range(count)]}), find("parquet"), "none"
    )


FINGERPRINT = {"sources": ["a"], "options": {"seed": 0}}
CLOSING = Closing(report=lambda files: {"fmtkit": "0"}, metadata={"k": "v"})


def sink_at(path, **options):
    return ObjectFolderSink(path, "parquet", FINGERPRINT, shard_bytes=8_000, **options)


def feed(sink, start: int, end: int) -> None:
    for number in range(start, end):
        sink.write(rows_of(number))
        sink.write(rows_of(number, number % 3), "validation")
        sink.quarantine(b"%d\n" % number)
        state = {"done": number + 1}
        sink.end_block(RunState((0, number + 1), lambda s=state: s, lambda: {"k": "v"}))


def whole(system, root):
    system.invalidate_cache()
    return {name.removeprefix(root): system.cat(name) for name in system.find(root)}


def test_a_run_that_was_cut_off_ends_in_the_same_bytes(memory):
    calm = ObjectPath("memory://calm/x")
    sink = sink_at(calm)
    feed(sink, 0, 10)
    sink.finish(CLOSING)
    expected = whole(memory, "/calm")
    for stop in range(10):
        path = ObjectPath(f"memory://cut{stop}/x")
        feed(sink_at(path), 0, stop)  # and it is seen no more
        with pytest.raises(OutputExistsError, match="not finished, or is still under way"):
            sink_at(path)
        found = find_resumption(path, FINGERPRINT)
        resumed = sink_at(path, resume=found)
        feed(resumed, found.state.get("done", 0), 10)
        resumed.finish(CLOSING)
        assert whole(memory, f"/cut{stop}") == expected
        assert find_resumption(path, FINGERPRINT).is_complete


def test_files_that_a_consumer_needs_stand_beside_the_manifest(memory):
    sink = sink_at(ObjectPath("memory://out"))
    sink.write(rows_of(0))
    sink.finish(Closing(report=lambda files: {"fmtkit": "0"}, beside={"info.json": "{}"}))
    assert memory.cat("/out/info.json") == b"{}"
    with pytest.raises(OutputExistsError, match="--overwrite replaces it"):
        sink_at(ObjectPath("memory://out"))
    sink_at(ObjectPath("memory://out"), overwrite=True).abort()


def test_a_shard_that_is_gone_is_named_by_resume(memory):
    path = ObjectPath("memory://out")
    feed(sink_at(path), 0, 6)
    memory.rm("/out/data/train-000000-000.parquet")
    with pytest.raises(ResumeError, match=r"train-000000-000\.parquet has 0 bytes where"):
        find_resumption(path, FINGERPRINT)
    fresh = sink_at(path, overwrite=True)
    feed(fresh, 0, 10)
    fresh.finish(CLOSING)
    manifest = json.loads(memory.cat("/out/manifest.json"))
    assert [f"/out/{file['path']}" for file in manifest["files"]] == sorted(
        memory.find("/out/data"), key=lambda name: [*name.split("-")[1:], name]
    )


def test_of_two_runs_that_begin_at_once_one_is_refused_by_name(memory, monkeypatch):
    path = ObjectPath("memory://out")
    first = sink_at(path)
    monkeypatch.setattr(object_store.Store, "sizes", lambda self, below="": {})
    with pytest.raises(
        OutputExistsError, match="another run has just started to write to memory://out"
    ):
        sink_at(path)
    monkeypatch.undo()
    feed(first, 0, 3)
    first.finish(CLOSING)


def test_a_run_that_another_has_taken_over_stops(memory):
    path = ObjectPath("memory://out")
    first = sink_at(path)
    feed(first, 0, 5)
    second = sink_at(path, resume=find_resumption(path, FINGERPRINT))
    with pytest.raises(WriteError, match="is being written by another run; this one stops"):
        feed(first, 5, 10)
    feed(second, find_resumption(path, FINGERPRINT).state["done"], 10)
    second.finish(CLOSING)


def test_a_run_whose_workers_write_is_stopped_where_another_took_over(memory, tmp_path):
    path = ObjectPath("memory://out")
    first = sink_at(path)
    place = first.workers_place()
    (tmp_path / "shard").write_bytes(b"rows of the first")
    second = sink_at(path, resume=find_resumption(path, FINGERPRINT))
    with pytest.raises(WriteError, match="is being written by another run; this one stops"):
        place.keep(tmp_path / "shard", "train-000000-000.parquet")
    # Of a task that was done before, the driver learns it at the end.
    first.adopt(TaskRecord(0), b"", RunState((0, 1), dict, dict, ends_task=True))
    with pytest.raises(WriteError, match="is being written by another run; this one stops"):
        first.finish(CLOSING)
    assert not memory.exists("/out/manifest.json")
    feed(second, 0, 3)
    second.finish(CLOSING)


def test_a_store_that_ignores_conditions_is_refused_by_name(memory, monkeypatch, source):
    whole_pipe = type(memory).pipe_file
    monkeypatch.setattr(
        type(memory), "pipe_file", lambda self, path, data, mode="": whole_pipe(self, path, data)
    )
    with pytest.raises(
        WriteError, match="its store ignores the condition that there be no such file"
    ):
        fmtkit.convert(source, "intel", "memory://out")


def test_a_folder_without_a_manifest_is_no_dataset(memory):
    feed(sink_at(ObjectPath("memory://out")), 0, 6)
    with pytest.raises(SourceError, match="is not finished"):
        open_sources("memory://out")


def test_a_shard_that_fails_midway_leaves_nothing_in_the_bucket(server, source, monkeypatch):
    monkeypatch.setattr(object_store, "PART_BYTES", 5 << 20)
    monkeypatch.setattr(storage, "PAUSES", ())
    big = source.parent / "big"
    big.write_bytes(os.urandom(12 << 20))
    store = object_store.Store(ObjectPath(f"s3://{BUCKET}/x"))
    store.put(big, "whole")
    assert store.sizes() == {"whole": 12 << 20}
    server.fault = lambda method, path, count: 500 if "partNumber=2" in path else None
    with pytest.raises(WriteError, match="cannot write s3://bucket/x/cut"):
        store.put(big, "cut")
    server.fault = None
    assert store.sizes() == {"whole": 12 << 20}
    assert server.uploads() == []

    class BreakingError(Exception):
        pass

    def broken(call):
        if getattr(call, "args", ()) and len(call.args[0]) == 5 << 20:
            raise BreakingError
        return call()

    with monkeypatch.context() as patch:
        patch.setattr(storage, "within", broken)
        with pytest.raises((BreakingError, WriteError)):
            store.put(big, "cut")
    assert store.sizes() == {"whole": 12 << 20}


def test_uploads_that_fail_now_and_then_are_made_again(server, source, tmp_path):
    calls = iter(range(10**6))
    server.fault = lambda method, path, count: (
        (500, 503, "cut")[next(calls) % 3] if method in ("PUT", "GET") and count % 2 else None
    )
    fmtkit.convert(source, "intel", f"s3://{BUCKET}/out")
    server.fault = None
    fmtkit.convert(source, "intel", "memory://out")
    memory = fsspec.filesystem("memory")
    there, here = whole(fsspec.filesystem("s3"), f"{BUCKET}/out"), whole(memory, "/out")
    memory.store.clear()
    for name in here:
        if not name.endswith("report.json") and not name.endswith("manifest.json"):
            assert there[name] == here[name]
    assert there.keys() == here.keys()


def test_a_bucket_that_is_not_there_or_not_ours_is_one_line(server, source):
    with pytest.raises(WriteError, match="there is no such bucket"):
        fmtkit.convert(source, "intel", "s3://nobody/out")
    server.fault = lambda method, path, count: 403
    with pytest.raises(WriteError, match="check the credentials"):
        fmtkit.convert(source, "intel", f"s3://{BUCKET}/out")


DRIVER = """
import sys
from fmtkit.writing import object_sinks
object_sinks.SHARD_BYTES = 1
object_sinks.ObjectFolderSink.__init__.__kwdefaults__["shard_bytes"] = 1
from fmtkit.cli import main
sys.argv = ["fmtkit", *sys.argv[1:]]
main()
"""


@pytest.mark.parametrize(
    ("header", "sent"),
    [("Content-Length: 100", b"half"), ("Transfer-Encoding: chunked", b"64\r\nhalf")],
)
def test_the_store_of_these_tests_keeps_no_half_of_an_object(server, header, sent):
    """As S3: a client that is killed within a request has written nothing."""
    host, port = urlsplit(server.url).hostname, urlsplit(server.url).port
    with socket.create_connection((host, port)) as client:
        head = f"PUT /{BUCKET}/half HTTP/1.1\r\nHost: {host}\r\n{header}\r\n\r\n"
        client.sendall(head.encode() + sent)
        client.shutdown(socket.SHUT_WR)
        assert client.recv(100) == b""
    assert not fsspec.filesystem("s3").exists(f"{BUCKET}/half")


@pytest.mark.slow
def test_a_driver_that_is_killed_midway_resumes_to_the_same_bytes(server, tmp_path):
    row = json.dumps(INTEL | {"chosen": "c" * 4000}).encode()
    path = tmp_path / "many.jsonl"
    path.write_bytes((row + b"\n") * 20_000 + b"{bad\n")
    system = fsspec.filesystem("s3")

    def driver(out, *flags):
        command = [sys.executable, "-c", DRIVER, "convert", str(path), "--type", "intel", "-o", out]
        return subprocess.Popen([*command, *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def parts(out):
        system.invalidate_cache()
        return [name for name in system.find(out) if "/data/" in name]

    calm = driver(f"s3://{BUCKET}/calm")
    assert calm.wait(120) == 0, calm.stderr.read()
    expected = whole(system, f"{BUCKET}/calm")
    killed = driver(f"s3://{BUCKET}/killed")
    until = time.monotonic() + 60
    while len(parts(f"{BUCKET}/killed")) < 3 and killed.poll() is None and time.monotonic() < until:
        time.sleep(0.02)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert 0 < len(parts(f"{BUCKET}/killed")) < len(parts(f"{BUCKET}/calm"))
    assert f"{BUCKET}/killed/manifest.json" not in system.find(f"{BUCKET}/killed")
    resumed = driver(f"s3://{BUCKET}/killed", "--resume")
    assert resumed.wait(120) == 0, resumed.stderr.read()
    found = whole(system, f"{BUCKET}/killed")
    assert found.keys() == expected.keys()
    assert {n: d for n, d in found.items() if "report" not in n} == {
        n: d for n, d in expected.items() if "report" not in n
    }


def test_a_source_that_was_replaced_by_one_of_the_same_size_is_not_resumed(server, source):
    system, url = fsspec.filesystem("s3"), f"s3://{BUCKET}/rows.jsonl"
    data = source.read_bytes()
    system.pipe(f"{BUCKET}/rows.jsonl", data)
    fmtkit.convert(url, "intel", f"s3://{BUCKET}/out", hash="never")
    assert fmtkit.convert(url, "intel", f"s3://{BUCKET}/out", hash="never", resume=True)
    system.pipe(f"{BUCKET}/rows.jsonl", data.replace(b"4", b"5"))
    with pytest.raises(ResumeError, match=r"sources\[0\]\.changed changed from"):
        fmtkit.convert(url, "intel", f"s3://{BUCKET}/out", hash="never", resume=True)


def test_an_object_that_changes_midway_ends_the_run_and_is_not_gone_on_with(
    server, monkeypatch, tmp_path
):
    monkeypatch.setattr(parts, "PART_BYTES", 20_000)
    system, url = fsspec.filesystem("s3"), f"s3://{BUCKET}/in/a.jsonl"
    data = lines([INTEL | {"question": f"question {i}"} for i in range(3000)])
    system.pipe(url, data)
    options = ConvertOptions(type="intel", workers=1)

    def watch(done, size, ledger):
        system.pipe(url, data.replace(b"question 1", b"question X"))

    with pytest.raises(SourceError, match=r"a\.jsonl.*it changed"):
        convert_to(url, tmp_path / "out", options, watch=watch)
    assert not (tmp_path / "out").exists()
    with pytest.raises(ResumeError, match=r"cannot resume .*changed from"):
        convert_to(url, tmp_path / "out", replace(options, resume=True))


def test_an_object_whose_end_never_comes_ends_the_run_with_its_name(server, tmp_path):
    url = f"s3://{BUCKET}/in/a.jsonl"
    fsspec.filesystem("s3").pipe(url, lines([INTEL] * 3000))
    convert_to(url, tmp_path / "calm", ConvertOptions(type="intel"))
    server.fault = lambda method, path, count: (
        "cut" if method == "GET" and "a.jsonl" in path else None
    )
    with pytest.raises(SourceError, match=r"a\.jsonl") as ended:
        convert_to(url, tmp_path / "out", ConvertOptions(type="intel"))
    assert "\n" not in str(ended.value)
    assert not (tmp_path / "out").exists()
    server.fault = None
    convert_to(url, tmp_path / "out", ConvertOptions(type="intel", resume=True))
    files = ("manifest.json", "data/train-00000-of-00001.parquet")
    assert [(tmp_path / "calm" / f).read_bytes() for f in files] == [
        (tmp_path / "out" / f).read_bytes() for f in files
    ]
