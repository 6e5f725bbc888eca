"""URLs: what is not there, does not answer or breaks off is one line, and within seconds."""

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from fmtkit.core import hub_access, reachability, storage
from fmtkit.core.errors import SourceError
from fmtkit.sources import remote
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


class Ranges(BaseHTTPRequestHandler):
    """A web server's answers: one file, whole or in ranges, with the header that names its version."""

    protocol_version = "HTTP/1.1"
    content = b""
    version = ("ETag", '"1"')

    def do_HEAD(self):
        self.answer(send=False)

    def do_GET(self):
        self.answer(send=True)

    def answer(self, *, send):
        cls, part = type(self), type(self).content
        asked = self.headers.get("Range", "").removeprefix("bytes=")
        if asked:
            first, _, last = asked.partition("-")
            part = part[int(first) : int(last) + 1]
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(cls.content)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(part)))
        self.send_header(*cls.version)
        self.end_headers()
        if send:
            self.wfile.write(part)

    def log_message(self, *_):
        pass


@pytest.mark.parametrize(
    ("header", "old", "new"),
    [
        ("ETag", '"1"', '"2"'),
        ("Last-Modified", "Tue, 01 Sep 2026 10:00:00 GMT", "Tue, 01 Sep 2026 10:00:01 GMT"),
    ],
)
def test_a_file_of_a_web_server_that_is_replaced_while_it_is_read(monkeypatch, header, old, new):
    """The client reads on in the new file; without a check the rows of two versions would be mixed."""
    monkeypatch.setattr(remote, "FIRST_BYTES", 1000)
    monkeypatch.setattr(remote, "MOST_BYTES", 1000)
    lines = b'{"a": "old"}\n' * 1000
    monkeypatch.setattr(Ranges, "content", lines)
    monkeypatch.setattr(Ranges, "version", (header, old))
    server = ThreadingHTTPServer(("127.0.0.1", 0), Ranges)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        (location,) = remote.remote(f"http://127.0.0.1:{server.server_address[1]}/a.jsonl")
        with location.open() as file:
            assert file.read(1000) == lines[:1000]
            Ranges.content, Ranges.version = lines.replace(b"old", b"new"), (header, new)
            with pytest.raises(OSError, match="it changed while it was read"):
                file.read(1000)
    finally:
        server.shutdown()
        server.server_close()
