"""Object stores on loopback, reached through a proxy that can fail as networks do: S3 as moto serves it."""

import http.client
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread

import pytest

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "sEcReTkEy",
    "AWS_DEFAULT_REGION": "us-east-1",
    # One attempt of botocore's own for each of s3fs's, without its pauses.
    "AWS_MAX_ATTEMPTS": "1",
}
BUCKET = "bucket"
CODES = {403: "AccessDenied", 503: "ServiceUnavailable"}

Fault = Callable[[str, str, int], int | str | None]
"""(method, path, how many such requests there were) -> a status to answer with, "cut" (half of the body,
then the connection ends), "stall" (half of the body, then nothing), or None."""


@dataclass
class Server:
    """The server as its clients see it: `url` leads through the proxy."""

    url: str
    port: int
    fault: Fault | None = None
    before: Callable[[str, str, bytes], int | None] | None = None
    """(method, path, body) -> a status to answer with, where the store itself should and does not."""
    seen: list[tuple[str, str]] = field(default_factory=list)
    counts: dict[tuple[str, str], int] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)

    def uploads(self) -> list:
        """Return the uploads in parts that are neither whole nor given up."""
        import boto3

        client = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{self.port}")
        return client.list_multipart_uploads(Bucket=BUCKET).get("Uploads", [])

    def fault_of(self, method: str, path: str, body: bytes) -> int | str | None:
        with self.lock:
            self.seen.append((method, path))
            count = self.counts[method, path] = self.counts.get((method, path), 0) + 1
        fault = self.fault(method, path, count) if self.fault else None
        return self.before(method, path, body) if fault is None and self.before else fault


@contextmanager
def s3_server() -> Iterator[Server]:
    """Serve one empty bucket."""
    import logging

    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    moto = ThreadedMotoServer(port=0, verbose=False)
    moto.start()
    try:
        with proxied(moto.get_host_and_port()[1]) as server:
            forward(server.port, "POST", "/moto-api/reset", {}, b"")
            forward(server.port, "PUT", f"/{BUCKET}", {}, b"")
            yield server
    finally:
        moto.stop()


@contextmanager
def proxied(port: int) -> Iterator[Server]:
    """Put a proxy before a server of this machine."""
    server = Server("", port)
    proxy = ThreadingHTTPServer(("127.0.0.1", 0), _proxy(server))
    proxy.daemon_threads = True
    server.url = f"http://127.0.0.1:{proxy.server_address[1]}"
    Thread(target=proxy.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        proxy.shutdown()
        proxy.server_close()


def forward(port: int, method: str, path: str, headers: dict, body: bytes):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.getheaders(), answer.read()
    finally:
        connection.close()


def _body(request: BaseHTTPRequestHandler) -> bytes | None:
    """Return the body of a request; None where the client went away within it, which no store keeps."""
    try:
        if request.headers.get("Transfer-Encoding") != "chunked":
            return _read(request, int(request.headers.get("Content-Length") or 0))
        found = []
        while size := int(request.rfile.readline().partition(b";")[0] or b"-1", 16):
            found.append(_read(request, size))
            request.rfile.readline()
        request.rfile.readline()
        return b"".join(found)
    except ConnectionError:
        return None


def _read(request: BaseHTTPRequestHandler, size: int) -> bytes:
    found = request.rfile.read(max(size, 0))
    if len(found) != size:
        raise ConnectionResetError
    return found


def _passed(headers: list[tuple[str, str]], server: Server) -> Iterator[tuple[str, str]]:
    """Yield the headers of the store's answer that go to the client as they are, but for addresses."""
    dropped = {"transfer-encoding", "content-length", "connection"}
    for name, value in headers:
        if name.lower() not in dropped:
            # Google's tells where an upload goes on.
            yield name, value.replace(f"http://127.0.0.1:{server.port}", server.url)


def _proxy(server: Server) -> type[BaseHTTPRequestHandler]:
    class Proxy(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            body = _body(self)
            if body is None:
                self.close_connection = True
                return
            fault = server.fault_of(self.command, self.path, body)
            if isinstance(fault, int):
                code = CODES.get(fault, "InternalError")
                self.answer(fault, [], f"<Error><Code>{code}</Code></Error>".encode())
                return
            own = ("expect", "transfer-encoding", "content-length")
            headers = {k: v for k, v in self.headers.items() if k.lower() not in own}
            status, found, data = forward(server.port, self.command, self.path, headers, body)
            self.answer(status, found, data, fault)

        def answer(self, status, headers, data, fault=None) -> None:
            self.send_response_only(status)
            length = next((v for k, v in headers if k.lower() == "content-length"), len(data))
            for name, value in _passed(headers, server):
                self.send_header(name, value)
            self.send_header("Content-Length", str(length))
            self.end_headers()
            if self.command == "HEAD":
                return
            with suppress(OSError):  # a client that gave up
                self.wfile.write(data if fault is None else data[: len(data) // 2])
            if fault is not None:
                self.close_connection = True
                self.wfile.flush()
                if fault == "stall":
                    time.sleep(30)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_any

        def log_message(self, *_) -> None:
            pass

    return Proxy


@pytest.fixture(scope="module")
def running() -> Server:
    """Run one server for the tests of a module."""
    if "CI" not in os.environ:  # there it is an error that they are missing
        pytest.importorskip("s3fs")
        pytest.importorskip("moto")
    with s3_server() as server:
        yield server


@pytest.fixture
def server(running, monkeypatch):
    """Give an empty bucket, in the environment too."""
    import fsspec

    from fmtkit.core import storage

    for name, value in (CREDENTIALS | {"AWS_ENDPOINT_URL": running.url}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(storage, "PAUSES", (0.0, 0.0, 0.0))
    running.fault, running.seen, running.counts = None, [], {}
    fsspec.filesystem("s3").__class__.clear_instance_cache()
    system = fsspec.filesystem("s3")
    system.retries = 1
    yield running
    running.fault = None
    system.invalidate_cache()
    if found := system.find(BUCKET):
        system.rm(found)
