"""Images at URLs are fetched within bounds; each that cannot be had is an error of its own."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import image_samples as samples
import pytest
from object_store import BUCKET

from fmtkit.core import storage
from fmtkit.core.errors import ImageError
from fmtkit.images.fetching import FetchLimits, fetch_images

pytest.importorskip("aiohttp")
PNG = samples.png()
ASKED: Counter[str] = Counter()
ENDED = threading.Event()


class Images(BaseHTTPRequestHandler):
    """A web server with images, and with what else servers say."""

    def do_GET(self):
        ASKED[self.path] += 1
        name = self.path.strip("/").partition("?")[0]
        if name == "slow.png":
            ENDED.wait(20)
        if name == "busy.png" and ASKED[self.path] == 1:
            return self.answer(503, b"busy")
        if name == "moved.png":
            self.send_response(302)
            self.send_header("Location", "/1.png")
            self.end_headers()
            return None
        if name == "endless.png":
            self.send_response(200)
            self.end_headers()
            while not ENDED.is_set():
                self.wfile.write(PNG + bytes(1 << 16))
            return None
        found = {"error.png": samples.HTML, "empty.png": b"", "drawing.svg": samples.SVG}
        if name in found:
            return self.answer(200, found[name])
        if name == "forbidden.png":
            return self.answer(403, b"no")
        if name == "none.png":
            return self.answer(404, b"none")
        number = name.removesuffix(".png")
        return self.answer(200, samples.png(seed=int(number) if number.isdigit() else 0))

    def answer(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def web(monkeypatch) -> Iterator[str]:
    monkeypatch.setattr(storage, "PAUSES", (0.0, 0.0, 0.0))
    ASKED.clear()
    ENDED.clear()
    running = ThreadingHTTPServer(("127.0.0.1", 0), Images)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{running.server_port}"
    ENDED.set()
    running.shutdown()
    running.server_close()


def test_images_come_in_order_with_one_request_each(web):
    urls = [f"{web}/{number}.png" for number in range(40)]
    found = list(fetch_images(urls, FetchLimits(workers=3)))
    assert found == [(url, samples.png(seed=number)) for number, url in enumerate(urls)]
    assert set(ASKED.values()) == {1}


def test_each_error_is_its_own_and_the_others_come(web):
    names = {
        "none.png": "no such file",
        "forbidden.png": "403|Forbidden",
        "error.png": "is no image: the file is an HTML page",
        "drawing.svg": "SVG",
        "empty.png": "empty",
    }
    found = dict(fetch_images([*(f"{web}/{name}" for name in names), f"{web}/1.png"]))
    assert found.pop(f"{web}/1.png") == samples.png(seed=1)
    for name, said in names.items():
        error = found[f"{web}/{name}"]
        with pytest.raises(ImageError, match=said):
            raise error
        assert error.code == "image_missing"
        assert "\n" not in str(error)


def test_a_busy_server_is_asked_again_and_a_redirect_followed(web):
    [(_, busy), (_, moved)] = fetch_images([f"{web}/busy.png", f"{web}/moved.png"])
    assert busy == PNG
    assert moved == samples.png(seed=1)
    assert ASKED["/busy.png"] == 2


def test_size_time_and_number_are_bounded(web):
    urls = [f"{web}/endless.png", f"{web}/slow.png", f"{web}/1.png", f"{web}/2.png"]
    began = time.monotonic()
    found = dict(fetch_images(urls, FetchLimits(size=100_000, seconds=1.0, count=3)))
    assert time.monotonic() - began < 10
    assert "larger than 100,000 bytes" in str(found[urls[0]])
    assert "no answer within 1 seconds" in str(found[urls[1]])
    assert found[urls[2]] == samples.png(seed=1)
    assert "more than 3 images" in str(found[urls[3]])
    assert ASKED["/endless.png"] == ASKED["/slow.png"] == 1
    assert ASKED["/2.png"] == 0


def test_nothing_but_web_servers_and_stores_is_asked(web, tmp_path):
    (tmp_path / "a.png").write_bytes(PNG)
    urls = [
        f"file://{tmp_path}/a.png",
        f"simplecache::file://{tmp_path}/a.png",
        f"http://x::file://{tmp_path}/a.png",
        f"local://{tmp_path}/a.png",
        str(tmp_path / "a.png"),
        "memory://a.png",
        "s3://key:secret@bucket/a.png",
    ]
    for url, found in fetch_images(urls):
        assert isinstance(found, ImageError), url
        assert "secret" not in str(found)
    assert not ASKED


def test_a_server_that_is_not_there_is_an_error_at_once():
    began = time.monotonic()
    urls = [f"http://127.0.0.1:9/{number}.png" for number in range(200)]
    for url, error in fetch_images(urls):
        assert "127.0.0.1:9" in str(error), url
    assert "has not answered" in str(error)
    assert time.monotonic() - began < 5


def test_a_slow_host_is_not_asked_for_every_image(web):
    urls = [f"{web}/slow.png?{number}" for number in range(20)]
    found = [str(error) for _, error in fetch_images(urls, FetchLimits(seconds=0.5, workers=2))]
    assert sum(ASKED.values()) <= 6
    assert "no answer within 0.5 seconds" in found[0]
    assert "has not answered" in found[-1]


def test_what_is_not_asked_for_is_not_fetched(web):
    urls = (f"{web}/{number}.png" for number in range(1000))
    found = fetch_images(urls, FetchLimits(workers=2))
    next(found)
    found.close()
    assert sum(ASKED.values()) <= 10


def test_an_image_in_a_bucket_is_fetched_and_one_that_is_too_large_is_not(server):
    fsspec = pytest.importorskip("fsspec")
    system = fsspec.filesystem("s3")
    system.pipe_file(f"{BUCKET}/a.png", PNG)
    system.pipe_file(f"{BUCKET}/large.png", PNG + bytes(20_000))
    urls = [f"s3://{BUCKET}/{name}.png" for name in ("a", "large", "none")]
    server.seen.clear()
    found = dict(fetch_images(urls, FetchLimits(size=10_000)))
    assert found[urls[0]] == PNG
    assert "larger than 10,000 bytes" in str(found[urls[1]])
    assert "no such file" in str(found[urls[2]])
    assert sum(path.endswith("/a.png") and way == "GET" for way, path in server.seen) == 1
