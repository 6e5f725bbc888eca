"""gs:// and az:// on stand-ins of their stores: read, written, resumed, refused, and failing now and then."""

import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from object_store import BUCKET
from other_stores import connection_string, forget
from runs import INTEL
from test_object_sinks import CLOSING, FINGERPRINT, feed, sink_at

import fmtkit
from fmtkit.core import storage
from fmtkit.core.errors import OutputExistsError, SourceError, WriteError
from fmtkit.core.urls import ObjectPath
from fmtkit.options.convert_options import ConvertOptions
from fmtkit.running.conversions import convert_to
from fmtkit.sources import parts, remote
from fmtkit.sources.opening import open_sources
from fmtkit.writing import object_store
from fmtkit.writing.object_sinks import find_resumption

pytestmark = pytest.mark.slow

ROWS = [INTEL | {"question": f"q{i}", "system": ""} for i in range(3000)]
DATA = b"".join(json.dumps(row).encode() + b"\n" for row in ROWS)


def rows(url: object) -> list[str]:
    prompts = fmtkit.table(url, "intel").column("prompt").to_pylist()
    return [prompt[0]["content"] for prompt in prompts]


@pytest.fixture
def source(tmp_path) -> Path:
    (tmp_path / "rows.jsonl").write_bytes(DATA + b"{bad\n")
    return tmp_path / "rows.jsonl"


@pytest.fixture
def there(store) -> str:
    """Return the URL of rows in the store."""
    store.system.pipe_file(f"{BUCKET}/in/a.jsonl", DATA)
    return store.url("in/a.jsonl")


def test_files_globs_and_folders_are_read(store, there, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    one = DATA[: DATA.index(b"\n") + 1]
    store.system.pipe_file(f"{BUCKET}/in/b.jsonl.gz", gzip.compress(one))
    store.system.pipe_file(f"{BUCKET}/in/below/c [1].jsonl", one)
    store.system.pipe_file(f"{BUCKET}/in/notes.txt", b"no data")
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "d.parquet", row_group_size=100)
    store.system.pipe_file(f"{BUCKET}/other/d.parquet", (tmp_path / "d.parquet").read_bytes())
    names = [source.name for source in open_sources(store.url("in"))]
    assert names == [
        store.url(f"in/{name}") for name in ("a.jsonl", "b.jsonl.gz", "below/c [1].jsonl")
    ]
    assert [s.name for s in open_sources(store.url("in/*.jsonl"))] == [there]
    assert len(rows(store.url("in"))) == len(ROWS) + 2
    assert rows(store.url("other/*.parquet")) == rows(there) == [row["question"] for row in ROWS]


@pytest.mark.parametrize("out", ["out", "out.jsonl", "out.parquet"])
def test_what_is_written_is_what_other_outputs_hold(store, there, source, tmp_path, out):
    import fsspec

    splits = {} if "." in out else {"val_size": 20}
    fmtkit.convert(source, "intel", store.url(f"made/{out}"), **splits)
    fmtkit.convert(source, "intel", f"memory://made/{out}", **splits)
    memory = fsspec.filesystem("memory")
    here = {name.removeprefix("/made/"): memory.cat(name) for name in memory.find("/made")}
    memory.store.clear()
    found = store.files("made")
    assert found.keys() == here.keys()
    told = [name for name in here if not name.endswith("report.json")]
    assert {name: found[name] for name in told} == {name: here[name] for name in told}
    read = fmtkit.table(store.url(f"made/{out}"), "passthrough")
    # Of a folder with splits, the rows to train on are read.
    assert len(read) == len(ROWS) - splits.get("val_size", 0)
    with pytest.raises(OutputExistsError, match="--overwrite replaces it"):
        fmtkit.convert(source, "intel", store.url(f"made/{out}"))
    fmtkit.convert(source, "intel", store.url(f"made/{out}"), overwrite=True, **splits)
    assert store.files("made").keys() == here.keys()


def test_large_files_go_up_in_parts_and_appear_whole_or_not_at_all(store, tmp_path, monkeypatch):
    monkeypatch.setattr(object_store, "PART_BYTES", 5 << 20)
    monkeypatch.setattr(storage, "PAUSES", ())
    big = tmp_path / "big"
    big.write_bytes(os.urandom(12 << 20))
    target = object_store.Store(ObjectPath(store.url("x")))
    target.put(big, "whole")
    assert target.sizes() == {"whole": 12 << 20}
    assert target.read("whole") == big.read_bytes()
    with pytest.raises(FileExistsError):
        target.put(big, "whole", new=True)
    uploads = iter(range(10**6))
    store.server.fault = lambda method, path, count: (
        400 if re.search("upload_id=|comp=block&", path) and next(uploads) else None
    )
    with pytest.raises(WriteError, match=r"cannot write .*/x/cut: "):
        target.put(big, "cut")
    store.server.fault = None
    assert target.sizes() == {"whole": 12 << 20}


@pytest.mark.parametrize("fault", [500, 503, "cut"])
def test_what_fails_now_and_then_is_asked_for_again(store, there, monkeypatch, fault):
    monkeypatch.setattr(remote, "FIRST_BYTES", 50_000)
    monkeypatch.setattr(remote, "MOST_BYTES", 50_000)
    calls = iter(range(10**6))
    store.server.fault = lambda method, path, count: fault if next(calls) % 5 == 1 else None
    assert rows(there) == [row["question"] for row in ROWS]


def test_uploads_that_fail_now_and_then_are_made_again(store, source):
    fmtkit.convert(source, "intel", store.url("calm"))
    calls = iter(range(10**6))
    store.server.fault = lambda method, path, count: (
        (500, 503, "cut")[next(calls) % 3] if count % 2 else None
    )
    fmtkit.convert(source, "intel", store.url("out"))
    store.server.fault = None
    calm, out = store.files("calm"), store.files("out")
    assert {n: d for n, d in calm.items() if n != "report.json"} == {
        n: d for n, d in out.items() if n != "report.json"
    }


def test_a_server_that_stops_midway_is_not_waited_for_forever(store, there, monkeypatch):
    monkeypatch.setenv("FMTKIT_STORAGE_SECONDS", "2")
    calls = iter(range(10**6))
    # The second request for bytes: what else is asked (Azure asks it by HEAD) belongs to the first contact,
    # which is not repeated.
    of_bytes = {"gs": "/download/", "az": "/in/a.jsonl"}[store.scheme]
    store.server.fault = lambda method, path, count: (
        "stall" if method == "GET" and of_bytes in path and next(calls) == 1 else None
    )
    assert rows(there) == [row["question"] for row in ROWS]
    assert next(calls) > 2


def test_an_object_that_changes_is_named(store, there, monkeypatch):
    (source,) = open_sources(there)
    store.system.pipe_file(f"{BUCKET}/in/a.jsonl", DATA.replace(b"q1", b"qX"))
    with pytest.raises(SourceError, match=r"a\.jsonl cannot be opened: it changed since"):
        list(source.blocks())
    monkeypatch.setattr(remote, "FIRST_BYTES", 1000)
    monkeypatch.setattr(remote, "MOST_BYTES", 1000)
    (location,) = remote.remote(there)
    file = location.open()
    file.read(100)
    store.system.pipe_file(f"{BUCKET}/in/a.jsonl", DATA)
    with pytest.raises(OSError, match="it changed while it was read"):
        _ = [file.read(1000) for _ in range(10)]


def test_what_is_not_there_or_not_allowed_is_one_line(store, there, source):
    with pytest.raises(SourceError, match=r"no\.jsonl cannot be opened: no such file there"):
        rows(store.url("in/no.jsonl"))
    with pytest.raises(SourceError, match="cannot be opened"):
        rows(f"{store.scheme}://nobucket/a.jsonl")
    with pytest.raises(WriteError, match="there is no such bucket"):
        fmtkit.convert(source, "intel", f"{store.scheme}://nobody/out")
    forget(store.scheme)
    store.server.fault, store.server.seen[:] = (lambda method, path, count: 403), []
    with pytest.raises(SourceError) as caught:
        rows(there)
    assert str(caught.value).startswith(f"{there} cannot be opened: ")
    assert "\n" not in str(caught.value)
    # Who is not allowed to is not asked again; but gcsfs has two questions that begin alike.
    assert max(map(store.server.seen.count, store.server.seen)) <= 2
    with pytest.raises(WriteError, match="check the credentials"):
        fmtkit.convert(source, "intel", store.url("out"))


def test_of_two_runs_one_is_refused_and_a_resumed_one_takes_over(store, monkeypatch):
    path = ObjectPath(store.url("out/x"))
    first = sink_at(path)
    with monkeypatch.context() as patch:
        patch.setattr(object_store.Store, "sizes", lambda self, below="": {})
        with pytest.raises(OutputExistsError, match="another run has just started to write to"):
            sink_at(path)
    feed(first, 0, 3)
    second = sink_at(path, resume=find_resumption(path, FINGERPRINT))
    with pytest.raises(WriteError, match="is being written by another run; this one stops"):
        feed(first, 3, 6)
    feed(second, find_resumption(path, FINGERPRINT).state["done"], 6)
    second.finish(CLOSING)
    calm = sink_at(ObjectPath(store.url("calm/x")))
    feed(calm, 0, 6)
    calm.finish(CLOSING)
    assert store.files("out") == store.files("calm")


DRIVER = """
import sys
from fmtkit.sources import parts
parts.PART_BYTES = 20_000
from fmtkit.cli import main
sys.argv = ["fmtkit", *sys.argv[1:]]
main()
"""


def test_a_driver_that_is_killed_midway_resumes_to_the_same_bytes(store, there):
    def driver(out: str, *flags: str) -> subprocess.Popen:
        command = [sys.executable, "-c", DRIVER, "convert", there, "--type", "intel", "-o", out]
        return subprocess.Popen([*command, *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def shards(out: str) -> list[str]:
        return [name for name in store.system.find(f"{BUCKET}/{out}") if "/data/" in name]

    calm = driver(store.url("calm"))
    assert calm.wait(120) == 0, calm.stderr.read()
    killed, until = driver(store.url("out")), time.monotonic() + 60
    while len(shards("out")) < 3 and killed.poll() is None and time.monotonic() < until:
        time.sleep(0.02)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert 0 < len(shards("out")) < len(shards("calm"))
    assert not store.system.exists(f"{BUCKET}/out/manifest.json")
    resumed = driver(store.url("out"), "--resume")
    assert resumed.wait(120) == 0, resumed.stderr.read()
    expected, found = store.files("calm"), store.files("out")
    assert {n: d for n, d in expected.items() if n != "report.json"} == {
        n: d for n, d in found.items() if n != "report.json"
    }


def test_workers_of_ray_read_and_write_there(store, there, monkeypatch):
    monkeypatch.setattr(parts, "PART_BYTES", 50_000)
    from fmtkit.running import conversion_run
    from fmtkit.work.engines import Inline

    convert_to(there, store.url("threads"), ConvertOptions(type="intel"))
    monkeypatch.setattr(conversion_run, "engine_of", lambda options: Inline())
    convert_to(there, store.url("workers"), ConvertOptions(type="intel", engine="ray"))
    threads, workers = store.files("threads"), store.files("workers")
    assert len(threads) > 3
    assert {n: d for n, d in threads.items() if n != "report.json"} == {
        n: d for n, d in workers.items() if n != "report.json"
    }


def test_a_wrong_key_is_one_line_that_does_not_show_it(store, there, source):
    if store.scheme == "gs":
        pytest.skip("the stand-in of Google's store knows no credentials")
    wrong = "d3JvbmcgYW5kIHNlY3JldA=="
    with pytest.MonkeyPatch.context() as patch:
        where = connection_string(store.server.url, wrong)
        patch.setenv("AZURE_STORAGE_CONNECTION_STRING", where)
        forget("az")
        with pytest.raises(SourceError) as reading:
            rows(there)
        with pytest.raises(WriteError, match="check the credentials") as writing:
            fmtkit.convert(source, "intel", store.url("out"))
    forget("az")
    for told in (str(reading.value), str(writing.value)):
        assert "\n" not in told
        assert wrong not in told
