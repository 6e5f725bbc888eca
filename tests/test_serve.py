"""`fmtkit inspect --serve`: rows are read when they are asked for, by those who know the address."""

import contextlib
import gzip
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import chromium
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from fixture_cases import cases, job_of
from image_samples import png

from fmtkit.browsing import row_book
from fmtkit.browsing.row_lengths import characters
from fmtkit.browsing.row_pages import RowPages
from fmtkit.browsing.server import RowServer, server_at
from fmtkit.core.errors import OptionError
from fmtkit.inspection.reading import read
from fmtkit.inspection.shown_rows import bare_sides
from fmtkit.options.inspect_options import InspectOptions
from fmtkit.running.pipeline import stream
from fmtkit.work.engines import Threads

COUNT = 230


def rows(count: int = COUNT) -> list[dict[str, Any]]:
    return [
        {
            "question": f"How many {'apples' if k % 3 else 'Äpfel'} are {k} + 1?",
            "chosen": f"There are {k + 1}." + " Indeed." * (k % 5),
            "rejected": f"There are {k}.",
            "system": "Count." if k % 2 else "",
        }
        for k in range(count)
    ]


def written(path: Path, blank_every: int = 0) -> Path:
    """Write the rows, some of them bad, with blank lines between."""
    lines = []
    for k, row in enumerate(rows()):
        lines.append("{broken" if k % 50 == 7 else json.dumps(row))
        if blank_every and k % blank_every == 0:
            lines.append("")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@contextlib.contextmanager
def served(
    source: object, *, type: str = "intel", port: int | None = None, **options: Any
) -> Iterator["Client"]:
    pages = RowPages(read(source, InspectOptions(type=type, **options)))
    with server_at(pages, port) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield Client(server)
        finally:
            server.shutdown()
            thread.join()


class Client:
    """Asks a server as its page does."""

    def __init__(self, server: RowServer) -> None:
        self.server = server
        self.path = urlsplit(server.url).path

    def request(self, path: str, method: str = "GET", **headers: str) -> tuple[int, str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.server_port, timeout=30)
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        body = answer.read().decode()
        connection.close()
        return answer.status, body, answer.headers

    def ask(self, what: str, **query: object) -> Any:
        status, body, _ = self.request(f"{self.path}{what}?{urlencode(query)}")
        assert status == 200, body
        return json.loads(body)

    def all(self, **query: object) -> list[Any]:
        """Page through all rows that pass."""
        found, at = [], 0
        while at is not None:
            answer = self.ask("rows", at=at, **query)
            assert len(answer["rows"]) <= 50
            found += answer["rows"]
            at = answer.get("again", answer.get("next"))
        return found

    def numbers(self, **query: object) -> list[int]:
        return [entry[0] for entry in self.all(**query)]


@pytest.fixture
def small_chapters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make many chapters of a small file, as a large one has."""
    monkeypatch.setattr(row_book, "CHAPTER_BYTES", 1_000)


def as_gzip(path: Path) -> Path:
    found = path.with_suffix(".jsonl.gz")
    found.write_bytes(gzip.compress(path.read_bytes()))
    return found


def as_parquet(path: Path) -> Path:
    found = path.with_suffix(".parquet")
    pq.write_table(pa.Table.from_pylist(rows()), found, row_group_size=17)
    return found


def as_arrow(path: Path) -> Path:
    found = path.with_suffix(".arrow")
    table = pa.Table.from_pylist(rows())
    with pa.ipc.new_file(found, table.schema) as file:
        file.write_table(table, max_chunksize=17)
    return found


def as_csv(path: Path) -> Path:
    found = path.with_suffix(".csv")
    pyarrow.csv.write_csv(pa.Table.from_pylist(rows()), found)
    return found


@pytest.mark.parametrize("form", [Path, as_gzip, as_parquet, as_arrow, as_csv])
def test_pages_hold_every_row_once_forward_and_back(tmp_path, small_chapters, form):
    path = form(written(tmp_path / "pairs.jsonl", blank_every=9))
    with served(str(path)) as client:
        assert client.numbers() == list(range(COUNT))
        back, before = [], COUNT
        while before:
            answer = client.ask("rows", before=before)
            back = [entry[0] for entry in answer["rows"]] + back
            before = answer["rows"][0][0]
        assert back == list(range(COUNT))
        assert client.ask("rows", at=COUNT + 99)["rows"] == []
        assert client.ask("rows", at=99)["all"] == COUNT


def test_lines_and_rows_are_those_of_the_file(tmp_path, small_chapters):
    path = written(tmp_path / "pairs.jsonl", blank_every=9)
    lines = path.read_text(encoding="utf-8").split("\n")
    with served(str(path)) as client:
        for entry in client.all():
            row, line = entry[0], entry[3]
            assert client.ask("line", line=line)["at"] == row
            assert ("{broken" in lines[line - 1]) == (row % 50 == 7)
            if row % 50 != 7:
                assert f" {row} + 1?" in lines[line - 1]
        # A blank line belongs to the row before, and the last line to the last row.
        assert client.ask("line", line=2)["at"] == 0
        assert client.ask("line", line=10**9)["at"] == COUNT - 1


def test_a_row_has_its_texts_findings_and_place(tmp_path):
    with served(str(written(tmp_path / "pairs.jsonl"))) as client:
        found = client.ask("row", row=3)
        assert [side["side"] for side in found["row"]["sides"]] == ["chosen", "rejected"]
        assert "There are 4. Indeed. Indeed. Indeed." in found["row"]["sides"][0]["text"]
        bad = client.ask("row", row=7)
        assert bad["entry"][5] == ["json_syntax"]
        assert bad["row"]["problem"].startswith("json_syntax: ")
        assert client.ask("row", row=COUNT)["error"] == f"there is no row {COUNT}"


def test_filters_leave_the_rows_that_pass(tmp_path, small_chapters):
    path = written(tmp_path / "pairs.jsonl")
    sound = [k for k in range(COUNT) if k % 50 != 7]
    with served(str(path)) as client:
        assert client.numbers(code="json_syntax") == [7, 57, 107, 157, 207]
        assert client.numbers(text="äPFEL") == [k for k in sound if k % 3 == 0]
        assert client.numbers(role="system") == [k for k in sound if k % 2]
        assert client.numbers(role="assistant", text="apples") == []
        assert client.numbers(role="user", text="apples") == [k for k in sound if k % 3]
        assert client.numbers(text="{BROKEN") == [7, 57, 107, 157, 207]
        sizes = {
            entry[0]: max(size for size, _, _ in entry[6]) for entry in client.all() if entry[6]
        }
        for least, most in ((70, ""), ("", 80), (72, 90), (5000, "")):
            wanted = [
                row
                for row, size in sizes.items()
                if (least == "" or size >= least) and (most == "" or size <= most)
            ]
            assert client.numbers(least=least, most=most) == wanted
        before = client.ask("rows", before=100, role="system")["rows"]
        assert [e[0] for e in before] == [k for k in sound if k % 2 and k < 100][-50:]


def test_findings_of_a_row_are_found_wherever_it_is(tmp_path, small_chapters):
    path = tmp_path / "pairs.jsonl"
    made = rows()
    for k in (5, 101, 229):
        made[k]["chosen"] = "<think>never closed"
    path.write_text("".join(json.dumps(row) + "\n" for row in made), encoding="utf-8")
    with served(str(path)) as client:
        assert client.numbers(code="unclosed_think") == [5, 101, 229]
        # Every one of them, not the first twenty as in a survey.
        for row in made:
            row["chosen"] = row["rejected"]
    path.write_text("".join(json.dumps(row) + "\n" for row in made), encoding="utf-8")
    with served(str(path)) as client:
        assert client.numbers(code="chosen_equals_rejected") == list(range(COUNT))


def test_several_files_follow_each_other(tmp_path, small_chapters):
    first, second = (
        written(tmp_path / "a.jsonl", blank_every=3),
        as_parquet(tmp_path / "b.jsonl"),
    )
    with served([str(first), str(second)]) as client:
        found = client.all()
        assert [entry[0] for entry in found] == list(range(2 * COUNT))
        assert [entry[2] for entry in found] == 2 * list(range(COUNT))
        assert {entry[3] for entry in found[COUNT:]} == {None}
        assert "no lines" in client.ask("line", source=1, line=3)["error"]
        assert client.ask("line", source=0, line=10**6)["at"] == COUNT - 1
        assert "no source 5" in client.ask("line", source=5, line=3)["error"]


def test_where_leaves_rows_out_and_their_numbers_stay(tmp_path, small_chapters):
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows()), encoding="utf-8")
    with served(str(path), where="system = 'Count.'") as client:
        assert client.numbers() == list(range(1, COUNT, 2))
        assert "error" in client.ask("row", row=2)


def test_an_answer_that_takes_long_comes_in_parts(tmp_path, small_chapters):
    path = written(tmp_path / "pairs.jsonl")
    with served(str(path)) as client:
        client.server.pages.seconds = 0.0
        answer = client.ask("rows", at=200)
        assert answer["again"] == 200
        assert 0 <= answer["done"] <= 1
        line: dict[str, Any] = {}
        while "at" not in line:
            line = client.ask("line", line=150)
        assert line["at"] == 149
        assert client.numbers(text="are 228 + 1") == [228]


def test_characters_are_those_of_the_text_that_is_shown():
    compared = 0
    for case in cases():
        for piece in stream(job_of(case, case.source), engine=Threads(1)):
            if "input_ids" not in piece.table.column_names:
                shown = [bare_sides(row) for row in piece.table.to_pylist()]
                sizes = [max(len(side.text) for side in sides) for sides in shown]
                assert characters(piece.table).tolist() == sizes, case
                compared += len(sizes)
    assert compared > 300


def test_only_who_knows_the_address_is_answered(tmp_path):
    with (
        served(str(written(tmp_path / "pairs.jsonl"))) as client,
        served(str(tmp_path / "pairs.jsonl")) as other,
    ):
        host = f"127.0.0.1:{client.server.server_port}"
        assert client.server.server_address[0] == "127.0.0.1"
        for path in ("/", "/rows", "//rows", "/x/rows", other.path, client.path[:-2] + "/"):
            status, body, _ = client.request(path)
            assert (status, "pairs" in body) == (403, False)
        for name in ("evil.example", "127.0.0.1", f"evil.example:{client.server.server_port}", ""):
            assert client.request(f"{client.path}rows", Host=name)[0] == 403
        assert (
            client.request(f"{client.path}rows", Host=host.replace("127.0.0.1", "localhost"))[0]
            == 200
        )
        for method in ("POST", "PUT", "DELETE", "OPTIONS", "HEAD"):
            assert client.request(client.path, method)[0] == 501
        for path in ("../../etc/passwd", "%2e%2e/x", "row/", "rows/../row"):
            assert client.request(client.path + path)[0] == 404
        for query in (
            "at=-1",
            "at=x",
            "at=1e9",
            f"at={'9' * 40}",
            "least=%00",
            "&".join("abcdefghijklmnopqrstuvw"),
        ):
            assert client.request(f"{client.path}rows?{query}")[0] == 400
        assert client.request(f"{client.path}rows?text={'x' * 5000}")[0] == 414


def test_the_page_may_ask_its_server_and_nothing_else(tmp_path):
    with served(str(written(tmp_path / "<b>pairs.jsonl"))) as client:
        status, body, headers = client.request(client.path)
        assert status == 200
        assert "connect-src 'self'; script-src 'sha256-" in body
        assert "default-src 'none'" in body
        assert "<b>pairs" not in body
        assert client.server.token not in body
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["Cache-Control"] == "no-store"
        assert headers["Referrer-Policy"] == "no-referrer"


def test_images_are_small_copies_beside_their_texts(tmp_path):
    pytest.importorskip("PIL")
    (tmp_path / "a.png").write_bytes(png(64, 48))
    row = {
        "messages": [
            {"role": "user", "content": "<image>What is it?"},
            {"role": "assistant", "content": "Noise."},
        ],
        "images": ["a.png"],
    }
    path = tmp_path / "images.jsonl"
    path.write_text(json.dumps(row) + "\n", encoding="utf-8")
    with served(str(path), type="openai") as client:
        found = client.ask("row", row=0)["row"]
        [[label, copy]] = found["images"]
        assert label == "image 64x48 png"
        assert copy.startswith("data:image/")
        assert len(found["sides"][0]["images"]) == 1
        assert client.ask("rows")["rows"][0][4] == "What is it?"


def test_secrets_are_hidden(tmp_path):
    path = tmp_path / "pairs.jsonl"
    token = "hf_" + "aB3dE9xYzK" * 4
    path.write_text(json.dumps({**rows(1)[0], "chosen": f"use {token}"}) + "\n", encoding="utf-8")
    with served(str(path)) as client:
        assert token not in json.dumps([client.ask("rows"), client.ask("row", row=0)])


def test_a_file_that_changes_or_vanishes_is_said_in_one_line(tmp_path):
    path = written(tmp_path / "pairs.jsonl")
    with served(str(path)) as client:
        assert client.ask("rows")["rows"]
        with path.open("a", encoding="utf-8") as file:
            file.write("{}\n")
        for what in ("rows", "row", "line"):
            found = client.ask(what)
            assert found.keys() == {"error"}
            assert found["error"].startswith("pairs.jsonl changed since it was opened")
        path.unlink()
        assert client.ask("rows")["error"].startswith("pairs.jsonl is not there any more")
        assert client.request(client.path)[0] == 200


def test_a_file_that_is_cut_while_it_is_read_is_said_too(tmp_path):
    path = as_parquet(tmp_path / "pairs.jsonl")
    with served(str(path)) as client:
        path.write_bytes(path.read_bytes()[:-100])
        assert "changed since it was opened" in client.ask("rows")["error"]


def test_two_browsers_read_the_same_rows(tmp_path, small_chapters):
    with served(str(written(tmp_path / "pairs.jsonl"))) as client:
        found: list[list[int]] = []
        threads = [
            threading.Thread(target=lambda: found.append(client.numbers(text="apples")))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == 4 * [[k for k in range(COUNT) if k % 3 and k % 50 != 7]]


def test_a_port_in_use_is_left_to_others_and_refused_by_name(tmp_path):
    path = str(written(tmp_path / "pairs.jsonl"))
    with served(path) as first, served(path) as second:
        assert first.server.server_port != second.server.server_port
        port = first.server.server_port
        with pytest.raises(OptionError, match=f"^--port {port} cannot be used: Address already"):
            server_at(first.server.pages, port)


def command(*arguments: str) -> subprocess.Popen[str]:
    env = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY")}
    return subprocess.Popen(
        [sys.executable, "-m", "fmtkit", "inspect", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env,
    )  # fmt: skip


def test_the_command_prints_its_address_and_ends_by_ctrl_c(tmp_path):
    process = command(str(written(tmp_path / "pairs.jsonl")), "--serve")
    url = process.stdout.readline().strip()
    asked = urlsplit(url)
    connection = http.client.HTTPConnection(asked.netloc, timeout=30)
    connection.request("GET", f"{asked.path}rows")
    assert len(json.loads(connection.getresponse().read())["rows"]) == 50
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (0, "")
    assert (
        err
        == "serving 1 source on this machine only; Ctrl-C ends it\nfmtkit: the server has ended\n"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--serve", "--html", "x.html"],
            "--serve shows rows and makes no survey: leave --html out",
        ),
        (["--serve", "--json"], "--serve shows rows and makes no survey: leave --json out"),
        (["--port", "80"], "--port is that of --serve, which is not given"),
        (["--serve", "--type", "alpaca"], "type alpaca needs column instruction"),
        (["--serve", "--where", "question = 'none of them'"], "no type fits"),
    ],
)
def test_what_cannot_be_served_is_one_line(tmp_path, arguments, said):
    process = command(str(written(tmp_path / "pairs.jsonl")), *arguments)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 2
    assert said in (err + out)
    assert "Traceback" not in err


def test_a_taken_port_ends_the_command_in_one_line(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        process = command(str(written(tmp_path / "pairs.jsonl")), "--serve", "--port", str(port))
        _, err = process.communicate(timeout=30)
    assert process.returncode == 2
    assert err.count("\n") == 1
    assert f"--port {port} cannot be used: Address already in use" in err


PICTURED = pytest.mark.skipif(
    chromium.program() is None, reason="needs Chromium: apt-get install chromium"
)
HOSTILE = (
    "</script><script>window.pwned = 1</script>",
    "<img src=x onerror='window.pwned = 2'>",
    "\u202eevil\u202c \x1b[31mred\x07 \x00nul {{DATA}} \u2028",
)


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    made = rows()
    for k, text in enumerate(HOSTILE):
        made[k] |= {"question": text, "chosen": f"{text} yes", "rejected": f"{text} no"}
    path = tmp_path / "<b>pairs & co.jsonl"
    text = "".join(json.dumps(row) + "\n" for row in made)
    path.write_text(text + "{broken\n" + json.dumps(made[0]) + "\n", encoding="utf-8")
    return path


def text_of(browser: chromium.Browser, name: str) -> str:
    browser.settle()
    return str(browser.run(f"document.getElementById('{name}').innerText"))


def fill(browser: chromium.Browser, **values: object) -> None:
    """Write into controls as a user does, and wait for what follows."""
    for name, value in values.items():
        control = f"document.getElementById('{name.replace('_', '-')}')"
        browser.run(
            f"{control}.value = {json.dumps(value)}; {control}.dispatchEvent(new Event('input'))"
        )
    browser.settle()


def press(browser: chromium.Browser, name: str) -> None:
    browser.run(f"document.getElementById('{name}').click()")
    browser.settle()


@pytest.mark.slow
@PICTURED
def test_the_page_pages_filters_and_jumps(tmp_path, hostile, small_chapters):
    with served(str(hostile)) as client:
        browser = chromium.Browser(tmp_path / "profile")
        browser.visit(client.server.url)
        assert text_of(browser, "status") == "rows 0 to 49 of at least 51"
        assert "line 1" in text_of(browser, "row")
        for _ in HOSTILE:
            browser.press("j")
            browser.settle()
        assert "line 4" in text_of(browser, "row")
        press(browser, "next")
        assert text_of(browser, "status").startswith("rows 50 to 99 of")
        press(browser, "previous")
        assert text_of(browser, "status").startswith("rows 0 to 49 of")
        fill(browser, search="are 77 + 1")
        assert text_of(browser, "status").startswith("1 that pass, rows 77 to 77")
        assert "There are 78." in text_of(browser, "row")
        fill(browser, search="", by_code="json_syntax")
        assert "json_syntax" in text_of(browser, "row")
        press(browser, "clear")
        fill(browser, jump_to="line", jump_number="100")
        browser.run("document.getElementById('jump').requestSubmit()")
        assert text_of(browser, "status").startswith("rows 99 to 148")
        fill(browser, search="nowhere")
        assert text_of(browser, "row") == "No row passes these filters."
        assert browser.run("window.pwned") is None
        asked = {
            event["params"]["request"]["url"].split("/")[2]
            for event in browser.events
            if event["method"] == "Network.requestWillBeSent"
        }
        assert asked <= {f"127.0.0.1:{client.server.server_port}"}
        problems = [
            e["params"]
            for e in browser.events
            if e["method"] in ("Log.entryAdded", "Runtime.exceptionThrown")
        ]
        assert [p for p in problems if "favicon" not in json.dumps(p)] == []
        hostile.unlink()
        fill(browser, search="")
        assert text_of(browser, "problem").startswith("<b>pairs & co.jsonl is not there any more")
        browser.close()


@pytest.mark.slow
@PICTURED
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True])
def test_the_page_fits_windows_and_is_accessible(tmp_path, hostile, width, dark):
    if not chromium.AXE.is_file():
        pytest.skip("needs axe: make axe")
    with served(str(hostile)) as client:
        browser = chromium.Browser(tmp_path / "profile")
        browser.window(width, dark=dark)
        browser.visit(client.server.url)
        browser.press("j")
        browser.press("j")
        browser.settle()
        assert browser.run("document.documentElement.scrollWidth") <= width
        assert browser.axe() == []
        browser.close()


PEAK = """
import json, sys, time
from pathlib import Path
from fmtkit.browsing.row_pages import RowPages
from fmtkit.browsing.row_filter import RowFilter
from fmtkit.options.inspect_options import InspectOptions
from fmtkit.inspection.reading import read

def peak():
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) // 1024

def pages_of(path):
    return RowPages(read(path, InspectOptions(type="intel")))

small, large = sys.argv[1:]
pages_of(small).page(0, RowFilter(text="nowhere"))
begun = peak()
started = time.process_time()
pages = pages_of(large)
first = pages.page(0, RowFilter())
opened = time.process_time() - started
at, wanted = 0, RowFilter(text="nowhere in it")
while at is not None:
    found = pages.page(at, wanted)
    at = found.get("again", found.get("next"))
last = pages.page_before(pages.book.rows, RowFilter())
print(json.dumps({"grown": peak() - begun, "opened": opened, "rows": pages.book.rows, "first": len(first["rows"]),
    "last": last["rows"][-1][0]}))
"""


@pytest.mark.slow
@pytest.mark.parametrize("form", [Path, "parquet"])
def test_a_large_file_is_paged_in_bounded_memory(tmp_path, form):
    small = written(tmp_path / "small.jsonl")
    made = rows(1000)
    for row in made:
        row["chosen"] += " and" * 250
    count = 100
    large = tmp_path / ("large.jsonl" if form is Path else "large.parquet")
    if form is Path:
        block = "".join(json.dumps(row) + "\n" for row in made)
        large.write_text(block * count, encoding="utf-8")
        assert large.stat().st_size > 90 << 20
    else:
        table = pa.Table.from_pylist(made)
        with pq.ParquetWriter(
            large, table.schema, compression="none", use_dictionary=False
        ) as file:
            for _ in range(count // 10):
                file.write_table(pa.concat_tables([table] * 10), row_group_size=10_000)
    done = subprocess.run(
        [sys.executable, "-c", PEAK, str(small), str(large)],
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    assert (found["rows"], found["first"], found["last"]) == (100_000, 50, 99_999)
    assert found["grown"] < (64 if form is Path else 160)
    assert found["opened"] < 5
