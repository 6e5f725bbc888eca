"""Google's and Azure's stores on loopback, as stand-ins of theirs serve them: one empty bucket or container each.

`gs` is gcp-storage-emulator (PyPI). It knows no conditions, so that the proxy answers 412 to an upload that asks
for there to be none. `az` is azurite, Microsoft's own (`make azurite`); it checks signatures and conditions.
"""

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from urllib.parse import quote

import pytest
from object_store import BUCKET, Server, forward, proxied

AZURITE = Path(__file__).parents[1] / ".azurite" / "node_modules" / ".bin" / "azurite-blob"
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Of azurite, which every copy of it has."""
# Else gcsfs asks for the kind of each bucket by gRPC, which the stand-in does not serve. It reads this when imported.
os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
VARIABLES = ("STORAGE_EMULATOR_HOST", "AZURE_STORAGE_CONNECTION_STRING")


@dataclass
class Store:
    """A store as fmtkit's users see it."""

    scheme: str
    server: Server

    def url(self, path: str = "") -> str:
        return f"{self.scheme}://{BUCKET}/{path}".rstrip("/")

    @property
    def system(self):
        import fsspec

        system = fsspec.filesystem(self.scheme)
        system.invalidate_cache()
        return system

    def files(self, below: str) -> dict[str, bytes]:
        """Return name -> bytes of all files of a folder."""
        system, folder = self.system, f"{BUCKET}/{below}/"
        return {name.removeprefix(folder): system.cat_file(name) for name in system.find(folder)}


@contextmanager
def google() -> Iterator[Server]:
    """Serve Google's JSON API."""
    from gcp_storage_emulator.server import create_server

    port = _free_port()
    emulator = create_server("127.0.0.1", port, in_memory=True, default_bucket=BUCKET)
    emulator.start()
    lock = Lock()

    def taken(method: str, path: str, body: bytes) -> int | None:
        """Refuse to replace an object where there is to be none."""
        if "ifGenerationMatch=0" not in path:
            return None
        name = re.search(rb'"name": *"([^"]+)"', body)
        with lock:
            where = f"/storage/v1/b/{BUCKET}/o/{quote(name[1].decode(), safe='')}"
            return 412 if forward(port, "GET", where, {}, b"")[0] == 200 else None

    try:
        with proxied(port) as server:
            server.before = taken
            yield server
    finally:
        emulator.stop()


@contextmanager
def azure() -> Iterator[Server]:
    """Serve Azure's blobs."""
    port = _free_port()
    command = [azurite(), "--blobHost", "127.0.0.1", "--blobPort", str(port), "--silent"]
    process = subprocess.Popen(
        [*command, "--inMemoryPersistence", "--disableTelemetry", "--skipApiVersionCheck"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until = time.monotonic() + 60
        while not _answers(port) and time.monotonic() < until:
            assert process.poll() is None, "azurite ended"
            time.sleep(0.1)
        with proxied(port) as server:
            yield server
    finally:
        process.kill()
        process.wait()


def azurite() -> str | None:
    """Return where azurite is; None where it is not."""
    return str(AZURITE) if AZURITE.exists() else shutil.which("azurite-blob")


def _free_port() -> int:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return opened.getsockname()[1]


def _answers(port: int) -> bool:
    with suppress(OSError):
        socket.create_connection(("127.0.0.1", port)).close()
        return True
    return False


def connection_string(url: str, key: str = KEY) -> str:
    """Return what tells adlfs where azurite is."""
    where = f"BlobEndpoint={url}/{ACCOUNT}"
    return f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={key};{where};"


def variables(scheme: str, server: Server) -> dict[str, str]:
    """Return the environment in which the store is found."""
    if scheme == "az":
        return {"AZURE_STORAGE_CONNECTION_STRING": connection_string(server.url)}
    return {"STORAGE_EMULATOR_HOST": server.url}


def skip_without(scheme: str) -> None:
    """Skip by the name of what is missing; in CI a package that is missing is an error instead."""
    if scheme == "az" and azurite() is None:
        # Of npm's registry, which .ci/run may not reach.
        pytest.skip("there is no azurite: make azurite")
    if "CI" not in os.environ:
        for package in ("gcsfs", "gcp_storage_emulator") if scheme == "gs" else ("adlfs",):
            pytest.importorskip(package)


@pytest.fixture(scope="module", params=["gs", "az"])
def running_store(request) -> Iterator[tuple[str, Server]]:
    skip_without(request.param)
    with google() if request.param == "gs" else azure() as server:
        yield request.param, server


@pytest.fixture
def store(running_store, monkeypatch) -> Iterator[Store]:
    """Give an empty bucket, in the environment too."""
    from fmtkit.core import storage

    scheme, server = running_store
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables(scheme, server).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(storage, "PAUSES", (0.0, 0.0, 0.0))
    if scheme == "az":
        # Azure's client repeats a request three times by itself, after 15 to 24 seconds.
        from azure.storage.blob._shared.policies_async import ExponentialRetry

        monkeypatch.setattr(ExponentialRetry, "get_backoff_time", lambda self, settings: 0)
    server.fault, server.seen, server.counts = None, [], {}
    forget(scheme)
    found = Store(scheme, server)
    if not found.system.exists(BUCKET):
        found.system.mkdir(BUCKET)
    yield found
    server.fault = None
    forget(scheme)
    if left := found.system.find(BUCKET):
        found.system.rm(left)


def forget(scheme: str) -> None:
    """Have the next file system be made anew, from the environment."""
    import fsspec

    fsspec.get_filesystem_class(scheme).clear_instance_cache()
