"""A stand-in for the Hugging Face hub on loopback: one owner's dataset repositories, with commits."""

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any

TOKEN = "hf_stand_in_secret"
Fault = Callable[[str, str, int], int | None]
"""(method, path, how many such requests there were) -> a status to answer with, or None."""


@dataclass
class Hub:
    """What the hub holds, and what was asked of it."""

    url: str = ""
    repositories: dict[str, list[dict[str, bytes]]] = field(default_factory=dict)
    """OWNER/NAME -> its files after each commit."""
    large: dict[str, bytes] = field(default_factory=dict)
    visibility: dict[str, Any] = field(default_factory=dict)
    seen: list[tuple[str, str]] = field(default_factory=list)
    fault: Fault = lambda method, path, count: None
    lock: Lock = field(default_factory=Lock)

    def files(self, name: str) -> dict[str, bytes]:
        return self.repositories[name][-1]

    def push(self, name: str, files: dict[str, bytes]) -> None:
        """Commit as somebody else would."""
        commits = self.repositories.setdefault(name, [{".gitattributes": b""}])
        commits.append(commits[-1] | files)

    def head(self, name: str) -> str:
        return sha(name, len(self.repositories[name]) - 1)

    def at(self, name: str, revision: str) -> dict[str, bytes] | None:
        commits = self.repositories[name]
        if revision == "main":
            return commits[-1]
        found = [files for n, files in enumerate(commits) if sha(name, n) == revision]
        return found[0] if found else None


def sha(name: str, commit: int) -> str:
    return hashlib.sha1(f"{name} {commit}".encode()).hexdigest()


@contextmanager
def running() -> Iterator[Hub]:  # noqa: C901
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            self.handle_one("GET")

        def do_HEAD(self) -> None:
            self.handle_one("HEAD")

        def do_POST(self) -> None:
            self.handle_one("POST")

        def do_PUT(self) -> None:
            self.handle_one("PUT")

        def handle_one(self, method: str) -> None:
            body = self.body()
            path = self.path.partition("?")[0]
            with hub.lock:
                count = hub.seen.count((method, path))
                hub.seen.append((method, path))
                status = hub.fault(method, path, count)
                if status is None and self.headers.get("authorization") != f"Bearer {TOKEN}":
                    status = 200 if method == "PUT" else 401
                if status is None or (status == 200 and method == "PUT"):
                    self.answer(method, path, body)
                else:
                    self.send(status, {"error": f"answer {status}"})

        def body(self) -> bytes:
            if self.headers.get("transfer-encoding") == "chunked":
                parts = []
                while size := int(self.rfile.readline(), 16):
                    parts.append(self.rfile.read(size))
                    self.rfile.readline()
                self.rfile.readline()
                return b"".join(parts)
            return self.rfile.read(int(self.headers.get("content-length", 0)))

        def answer(self, method: str, path: str, body: bytes) -> None:  # noqa: C901
            if path == "/api/repos/create":
                asked = json.loads(body)
                name = f"{asked['organization']}/{asked['name']}"
                hub.visibility[name] = asked.get("visibility") or asked.get("private")
                hub.repositories.setdefault(name, [{".gitattributes": b""}])
                self.send(200, {"url": f"{hub.url}/datasets/{name}"})
                return
            if path == "/api/validate-yaml":
                self.send(200, {"errors": [], "warnings": []})
                return
            if found := re.fullmatch(r"/upload/(\w+)", path):
                assert hashlib.sha256(body).hexdigest() == found[1]
                hub.large[found[1]] = body
                self.send(200, {})
                return
            pattern = r"(?:/api)?/datasets/([\w.-]+/[\w.-]+?)(?:\.git)?(?:/(.*))?"
            found = re.fullmatch(pattern, path)
            if not found or found[1] not in hub.repositories:
                self.send(404, {"error": "no repository"}, {"X-Error-Code": "RepoNotFound"})
                return
            name, rest = found[1], found[2] or ""
            if not rest or rest.startswith("revision/"):
                self.send(200, {"id": name, "sha": hub.head(name), "tags": []})
            elif rest.startswith("tree/"):
                self.tree(name, rest.split("/", 2)[1:])
            elif rest.startswith("paths-info/"):
                files = hub.at(name, rest.split("/")[1]) or {}
                asked = json.loads(body)["paths"] if body[:1] == b"{" else form(body)
                self.send(200, [entry(path, files[path]) for path in asked if path in files])
            elif rest.startswith("preupload/"):
                sizes = json.loads(body)["files"]
                modes = [
                    {
                        "path": one["path"],
                        "uploadMode": "lfs" if one["path"].endswith(".parquet") else "regular",
                        "shouldIgnore": False,
                    }
                    for one in sizes
                ]
                self.send(200, {"files": modes})
            elif rest == "info/lfs/objects/batch":
                objects = [
                    {**one, "actions": {"upload": {"href": f"{hub.url}/upload/{one['oid']}"}}}
                    for one in json.loads(body)["objects"]
                ]
                self.send(200, {"transfer": "basic", "objects": objects})
            elif rest.startswith("commit/"):
                self.commit(name, [json.loads(line) for line in body.splitlines()])
            elif rest.startswith("resolve/"):
                revision, _, file = rest.removeprefix("resolve/").partition("/")
                self.file(method, name, (hub.at(name, revision) or {}).get(file))
            else:
                self.send(404, {"error": path})

        def tree(self, name: str, rest: list[str]) -> None:
            files = hub.at(name, rest[0]) or {}
            below = f"{rest[1]}/" if len(rest) > 1 else ""
            found = [entry(p, data) for p, data in files.items() if p.startswith(below)]
            if below and not found:
                self.send(404, {"error": "no entry"}, {"X-Error-Code": "EntryNotFound"})
                return
            self.send(200, found)

        def commit(self, name: str, lines: list[dict[str, Any]]) -> None:
            files = dict(hub.files(name))
            for line in lines:
                value = line["value"]
                if line["key"] == "header" and value.get("parentCommit") not in (
                    None,
                    hub.head(name),
                ):
                    self.send(412, {"error": "the head is another"})
                    return
                if line["key"] == "file":
                    files[value["path"]] = base64.b64decode(value["content"])
                if line["key"] == "lfsFile":
                    files[value["path"]] = hub.large[value["oid"]]
                if line["key"] == "deletedFile":
                    del files[value["path"]]
            hub.repositories[name].append(files)
            oid = hub.head(name)
            url = f"{hub.url}/datasets/{name}/commit/{oid}"
            self.send(200, {"commitUrl": url, "commitOid": oid, "success": True})

        def file(self, method: str, name: str, data: bytes | None) -> None:
            if data is None:
                self.send(
                    404, {}, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": hub.head(name)}
                )
                return
            self.send_response(200)
            self.send_header("ETag", f'"{hashlib.sha1(data).hexdigest()}"')
            self.send_header("X-Repo-Commit", hub.head(name))
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if method == "GET":
                self.wfile.write(data)

        def send(self, status: int, value: Any, headers: dict[str, str] | None = None) -> None:
            data = json.dumps(value).encode()
            self.send_response(status)
            for name, said in (headers or {}).items():
                self.send_header(name, said)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_port}"
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()


def form(body: bytes) -> list[str]:
    from urllib.parse import parse_qs

    return parse_qs(body.decode())["paths"]


def entry(path: str, data: bytes) -> dict[str, Any]:
    return {
        "type": "file",
        "path": path,
        "size": len(data),
        "oid": hashlib.sha1(data).hexdigest(),
    }
