"""Sources on an object store: what fails for a moment is asked for again, what does not is one line."""

import json
import pickle
from types import SimpleNamespace

import pytest
from object_store import BUCKET, CREDENTIALS
from runs import INTEL

import fmtkit
from fmtkit.core import credentials, storage
from fmtkit.core.errors import DependencyError, OptionError, SourceError
from fmtkit.sources import remote
from fmtkit.sources.opening import open_sources
from fmtkit.training.planning.plan import plan

fsspec = pytest.importorskip("fsspec")

ROWS = [INTEL | {"question": f"q{i}"} for i in range(3000)]
DATA = b"".join(json.dumps(row).encode() + b"\n" for row in ROWS)


@pytest.fixture(autouse=True)
def a_file(server) -> None:
    fsspec.filesystem("s3").pipe(f"{BUCKET}/in/a.jsonl", DATA)


A = f"s3://{BUCKET}/in/a.jsonl"


def rows(url: object) -> list[str]:
    return fmtkit.table(url, "intel").column("prompt").to_pylist()


def error_of(url: str) -> str:
    with pytest.raises(SourceError) as caught:
        rows(url)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_files_globs_and_folders_of_a_bucket_are_read(server):
    system = fsspec.filesystem("s3")
    system.pipe(f"{BUCKET}/in/b.jsonl", DATA[: DATA.index(b"\n") + 1])
    system.pipe(f"{BUCKET}/in/notes.txt", b"no data")
    assert [source.name for source in open_sources(f"s3://{BUCKET}/in")] == [
        A,
        f"s3://{BUCKET}/in/b.jsonl",
    ]
    assert len(open_sources(f"s3://{BUCKET}/in/*.jsonl")) == 2
    assert len(rows(f"s3://{BUCKET}/in/")) == len(ROWS) + 1


def test_parquet_on_a_bucket_is_read_in_ranges(server, tmp_path, monkeypatch):
    monkeypatch.setattr(remote, "FIRST_BYTES", 1000)
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "a.parquet", row_group_size=100)
    fsspec.filesystem("s3").put(str(tmp_path / "a.parquet"), f"{BUCKET}/in/a.parquet")
    assert rows(f"s3://{BUCKET}/in/a.parquet") == rows(A)


@pytest.mark.parametrize("fault", [500, 503, "cut"])
def test_what_fails_now_and_then_is_asked_for_again(server, monkeypatch, fault):
    expected = rows(A)
    monkeypatch.setattr(remote, "FIRST_BYTES", 50_000)
    monkeypatch.setattr(remote, "MOST_BYTES", 50_000)
    calls = iter(range(10**6))
    server.fault = lambda method, path, count: fault if next(calls) % 5 == 1 else None
    assert rows(A) == expected


def test_a_server_that_stops_midway_is_not_waited_for_forever(server, monkeypatch):
    expected = rows(A)
    monkeypatch.setenv("FMTKIT_STORAGE_SECONDS", "0.5")
    calls = iter(range(10**6))
    server.fault = lambda method, path, count: (
        "stall" if method == "GET" and "a.jsonl" in path and next(calls) == 1 else None
    )
    assert rows(A) == expected


@pytest.mark.parametrize("seconds", ["a minute", "0", "-1", "nan", "inf"])
def test_a_time_limit_that_is_no_number_of_seconds_is_refused(monkeypatch, seconds):
    monkeypatch.setenv("FMTKIT_STORAGE_SECONDS", seconds)
    for request in (storage.attempted, storage.within):
        with pytest.raises(OptionError, match=f"FMTKIT_STORAGE_SECONDS={seconds}: give a number"):
            request(lambda: "an answer")


def test_a_server_that_always_fails_is_named_with_its_reason(server):
    server.fault = lambda method, path, count: (
        503 if (method == "GET" and "a.jsonl" in path and "prefix" not in path) else None
    )
    assert error_of(A).startswith(f"{A}: ")


def test_an_object_that_changed_since_it_was_listed_is_named(server):
    (source,) = open_sources(A)
    fsspec.filesystem("s3").pipe(f"{BUCKET}/in/a.jsonl", DATA.replace(b"q1", b"qX"))
    with pytest.raises(
        SourceError, match=r"a\.jsonl cannot be opened: it changed since it was listed"
    ):
        list(source.blocks())


def test_an_object_that_changes_while_it_is_read_is_named(server, monkeypatch):
    monkeypatch.setattr(remote, "FIRST_BYTES", 1000)
    monkeypatch.setattr(remote, "MOST_BYTES", 1000)
    (location,) = remote.remote(A)
    file = location.open()
    assert file.read(100) == DATA[:100]
    fsspec.filesystem("s3").pipe(f"{BUCKET}/in/a.jsonl", DATA.replace(b"q1", b"qX"))
    with pytest.raises(OSError, match="it changed while it was read"):
        _ = [file.read(1000) for _ in range(10)]


def test_an_object_that_lost_its_end_is_named(server, monkeypatch):
    monkeypatch.setattr(storage, "PAUSES", ())
    system, _ = storage.file_system(A, "reading")
    # A store that sends one byte of a range, and closes the connection.
    cut = SimpleNamespace(seek=lambda at: at, read=lambda size: b"x", close=lambda: None)
    monkeypatch.setattr(system, "open", lambda *_, **__: cut)
    (location,) = remote.remote(A)
    with pytest.raises(OSError, match="it is cut short: it ends after 1 of"):
        location.open().read(10)


def test_what_is_not_there_or_not_allowed_is_said_once(server):
    assert error_of(f"s3://{BUCKET}/in/no.jsonl").endswith("no such file there")
    assert "cannot be opened" in error_of("s3://nobucket/a.jsonl")
    fsspec.filesystem("s3").invalidate_cache()
    server.fault, server.seen[:] = (lambda method, path, count: 403), []
    assert error_of(A).startswith(f"{A} cannot be opened: ")
    # Who is not allowed to is not asked again.
    assert len(server.seen) == 1


def test_opening_travels_to_other_processes(server):
    (source,) = open_sources(A)
    copy = pickle.loads(pickle.dumps(source))
    assert b"".join(block.data for block in copy.blocks()) == DATA


def test_credentials_are_in_no_message_and_no_file(server, tmp_path):
    url = f"{server.url}/{BUCKET}/in/a.jsonl?X-Amz-Signature=topsecret"
    fsspec.filesystem("s3").pipe(f"{BUCKET}/in/a.jsonl", DATA + b"bad\n")
    fmtkit.convert(url, "intel", tmp_path / "out")
    written = {
        file.name: file.read_bytes() for file in (tmp_path / "out").rglob("*") if file.is_file()
    }
    assert b"X-Amz-Signature=***" in written["report.json"]
    assert b"X-Amz-Signature=***" in written["quarantine.jsonl"]
    assert not [name for name, data in written.items() if b"topsecret" in data]
    server.fault = lambda method, path, count: 500
    assert "topsecret" not in error_of(url)
    assert CREDENTIALS["AWS_SECRET_ACCESS_KEY"] not in error_of(A)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("ftp://me:pw@host/a.jsonl", "ftp://host/a.jsonl"),
        ("https://token@host/a.jsonl", "https://host/a.jsonl"),
        (
            "https://h/a.jsonl?X-Amz-Signature=abc&X-Amz-Expires=3",
            "https://h/a.jsonl?X-Amz-Signature=***&X-Amz-Expires=***",
        ),
        ("https://h/a.jsonl?c2VjcmV0", "https://h/a.jsonl?***"),
        ("https://h/a.jsonl?download=true", "https://h/a.jsonl?download=true"),
        ("s3://b/k?versionId=abc", "s3://b/k?versionId=abc"),
        ("s3://b/what?.jsonl", "s3://b/what?.jsonl"),
        ("az://c/a.jsonl?sv=2024&sig=abc", "az://c/a.jsonl?sv=2024&sig=***"),
        ("abfs://container@account/a.jsonl", "abfs://container@account/a.jsonl"),
        (
            "cannot GET 'https://me:pw@h/x?sig=1', really",
            "cannot GET 'https://h/x?sig=***', really",
        ),
        ("memory://a/b.jsonl", "memory://a/b.jsonl"),
        ("https:/me:pw@h/x.jsonl", "https:/h/x.jsonl"),
        ("hf://datasets/a/b?token=x", "hf://datasets/a/b?token=***"),
        ("  5 | hub_token: abc  # mine", "  5 | hub_token: ***  # mine"),
        ('{"api_key": "abc", "x": 1}', '{"api_key": "***", "x": 1}'),
        ("eos_token: </s>, tokens: 5", "eos_token: </s>, tokens: 5"),
        ("set HF_TOKEN, or HF_TOKEN=$TOKEN", "set HF_TOKEN, or HF_TOKEN=$TOKEN"),
    ],
)
def test_what_is_secret_in_a_url_is_hidden(url, shown):
    assert credentials.public(url) == shown


SECRET = "sEcReTpW"


@pytest.mark.parametrize(
    "url", [f"s3://AKIA:{SECRET}@bucket/x.jsonl", f"hf://datasets/a/b?token={SECRET}"]
)
def test_an_address_of_a_store_with_keys_in_it_is_refused_without_them(tmp_path, url):
    row = tmp_path / "in.jsonl"
    row.write_text(json.dumps(INTEL))
    for source, out in ((url, tmp_path / "o.jsonl"), (row, url)):
        with pytest.raises(OptionError, match="takes no keys or tokens; give them in") as raised:
            fmtkit.convert(source, "intel", out)
        assert SECRET not in str(raised.value)


@pytest.mark.parametrize("error", [OptionError, SourceError, DependencyError])
def test_no_error_shows_a_secret_whoever_wrote_its_message(error):
    assert SECRET not in str(error(f"no answer from https://me:{SECRET}@host/?sig={SECRET}"))


def test_a_plan_shows_no_secret():
    config = {
        "base_model": "org/name",
        "rl": "dpo",
        "datasets": [{"path": f"https://me:{SECRET}@host/x.jsonl?sig={SECRET}", "type": "intel"}],
    }
    planned = plan(config, partial=True)
    assert SECRET not in f"{planned}{planned.dumps()}{planned._repr_html_()}"
    assert "https://host/x.jsonl?sig=***" in str(planned)


@pytest.mark.parametrize(
    ("scheme", "package", "extra"),
    [
        ("s3", "s3fs", "s3"),
        ("gs", "gcsfs", "gcs"),
        ("az", "adlfs", "azure"),
        ("abfss", "adlfs", "azure"),
    ],
)
def test_the_extra_that_serves_a_scheme_is_named(monkeypatch, scheme, package, extra):
    def missing(url):
        raise ImportError(f"Install {package}")

    monkeypatch.setattr(fsspec.core, "url_to_fs", missing)
    with pytest.raises(DependencyError) as caught:
        open_sources(f"{scheme}://b/a.jsonl")
    assert str(caught.value) == (
        f"reading {scheme}://b/a.jsonl needs the package {package}: pip install 'fmtkit[{extra}]'"
    )
