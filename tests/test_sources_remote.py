"""URLs: what is not there, does not answer or breaks off is one line, and within seconds."""

import socket
from collections.abc import Iterator

import pytest

from fmtkit.core import hub_access, reachability, storage
from fmtkit.core.errors import SourceError
from fmtkit.sources.opening import open_sources

fsspec = pytest.importorskip("fsspec")
MemoryFileSystem = pytest.importorskip("fsspec.implementations.memory").MemoryFileSystem


class ClientError(Exception):
    """An error of a client library: not an OSError."""


class Breaking(MemoryFileSystem):
    """A storage whose client fails: at once where `path` says so, else in the middle of a file."""

    protocol = "breaking"

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path.replace("breaking://", "memory://"))

    def info(self, path, **options):
        if "nothing" in path:
            raise ClientError("no credentials\nanywhere")
        return super().info(path, **options)

    def open(self, path, mode="rb", **options):
        file = super().open(path, mode, **options)
        if mode == "rb":

            def read(size):
                raise ClientError("the connection broke off")

            file.read = read
        return file


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(storage, "PAUSES", (0.0, 0.0, 0.0))


@pytest.fixture
def breaking() -> MemoryFileSystem:
    fsspec.register_implementation("breaking", Breaking, clobber=True)
    return fsspec.filesystem("breaking")


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Give a port that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def error_of(url: str) -> str:
    with pytest.raises(SourceError) as caught:
        _ = [list(source.blocks()) for source in open_sources(url)]
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_host_that_refuses_is_named_with_its_reason(closed_port):
    url = f"ftp://127.0.0.1:{closed_port}/a.jsonl"
    assert error_of(url).startswith(f"{url} cannot be opened: ConnectionRefusedError")


def test_a_host_that_never_answers_is_not_waited_for(silent_port, monkeypatch):
    monkeypatch.setattr(reachability, "ANSWERING", 0.2)
    url = f"ftp://127.0.0.1:{silent_port}/a.jsonl"
    assert error_of(url) == f"{url} cannot be opened: no answer within 0.2 seconds"


def test_errors_of_a_client_library_are_errors_of_the_source(breaking):
    said = "breaking://nothing.jsonl cannot be opened: ClientError: no credentials anywhere"
    assert error_of("breaking://nothing.jsonl") == said


def test_a_connection_that_breaks_off_is_an_error_of_the_source(breaking):
    breaking.pipe("/broken.jsonl", b'{"a": 1}\n' * 10)
    assert error_of("breaking://broken.jsonl").endswith("ClientError: the connection broke off")


def test_a_file_that_is_not_there_is_said_to_be_missing():
    url = "memory://fmtkit-nowhere/a.jsonl"
    assert error_of(url) == f"{url} cannot be opened: no such file there"


@pytest.mark.parametrize("place", ["datasets/nobody/nothing", "buckets/nobody/nothing/a.jsonl"])
def test_a_hub_that_cannot_be_reached_is_said_to_be_so(closed_port, tmp_path, monkeypatch, place):
    pytest.importorskip("datasets")
    for name in ("HF_HUB_OFFLINE", "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY",
                 "all_proxy", "ALL_PROXY"):  # fmt: skip
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{closed_port}")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path)
    hub_access.trouble.cache_clear()
    try:
        said = error_of(f"hf://{place}")
    finally:
        hub_access.trouble.cache_clear()
    assert "the hub cannot be reached (127.0.0.1: Connection refused)" in said
