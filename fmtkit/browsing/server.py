"""A server of one page, for this machine only: rows are read when the page asks for them.

It listens on the loopback interface, answers GET alone, and only to whoever knows the token in its address.
The name in the Host header must be its own, so that no site's name can be pointed at it. It writes nothing.
"""

import hmac
import json
import secrets
import sys
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from fmtkit.browsing.row_filter import RowFilter
from fmtkit.browsing.row_pages import RowPages
from fmtkit.core.codes import BAD_ROWS
from fmtkit.core.credentials import public
from fmtkit.core.errors import FmtkitError, OptionError
from fmtkit.core.escaping import one_line
from fmtkit.core.message_keys import CANONICAL_ROLES
from fmtkit.findings.advice import ADVICE
from fmtkit.reports import page
from fmtkit.reports.page import without_secrets

HOST = "127.0.0.1"
FIRST_PORT = 8650
PORTS_TRIED = 20
MOST_ASKED = 4_000
"""Characters of a request's path."""
OF_ROWS_TOGETHER = frozenset(
    {
        *("duplicate_rows", "prompt_in_splits", "length_bias", "label_balance", "one_label"),
        *(
            "unread_turns",
            "open_columns",
            "open_keys",
            "rendered_text",
            "mixed_layouts",
            "transcript",
        ),
        *("tools_not_uniform", "equal_after_cutting", "same_images"),
    }
)
"""Findings that no row has by itself: only an inspection of all rows finds them."""
HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class RowServer(ThreadingHTTPServer):
    """Serves the rows of a `RowPages`; each request has a thread, and rows are read by one at a time."""

    daemon_threads = True
    # Else a second server could take the port of the first, on some systems.
    allow_reuse_address = sys.platform != "win32"

    def __init__(self, pages: RowPages, port: int) -> None:
        self.pages = pages
        self.token = secrets.token_urlsafe(24)
        super().__init__((HOST, port), _Handler)

    @property
    def url(self) -> str:
        """Return the address of the page; whoever has it can read the rows."""
        return f"http://{HOST}:{self.server_port}/{self.token}/"

    @property
    def hosts(self) -> frozenset[str]:
        """Return the names under which it may be asked."""
        return frozenset(f"{name}:{self.server_port}" for name in (HOST, "localhost"))

    def page(self) -> str:
        """Return the page, without rows."""
        reading = self.pages.reading
        viewer = reading.shown
        template = reading.viewer.viewer.template
        data = {
            "sources": [source.name for source in self.pages.book.sources],
            "bytes": self.pages.book.size,
            "type": reading.type,
            "table": reading.shown.table,
            "has_tokens": viewer.tokenizer is not None,
            "template": template is not None,
            "notes": list(reading.notes),
            "roles": list(CANONICAL_ROLES),
            "codes": sorted({*ADVICE, *BAD_ROWS} - OF_ROWS_TOGETHER),
        }
        return page.render("browse", data, scripts=("rows.js",), served=True)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """Say what went wrong in one line, and nothing of a browser that went away."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            sys.stderr.write(one_line(f"fmtkit: {type(error).__name__}: {error}") + "\n")


def server_at(pages: RowPages, port: int | None) -> RowServer:
    """Return a server at a port, or at the first that is free.

    Raises OptionError if the port that was asked for is taken.
    """
    if port is not None:
        try:
            return RowServer(pages, port)
        except (OSError, OverflowError) as error:
            raise OptionError(
                f"--port {port} cannot be used: {getattr(error, 'strerror', None) or error}; "
                "without --port a free one is taken"
            ) from error
    for tried in range(FIRST_PORT, FIRST_PORT + PORTS_TRIED):
        try:
            return RowServer(pages, tried)
        except OSError:
            # Another server has it.
            continue
    return RowServer(pages, 0)


class _Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: RowServer
    server_version = "fmtkit"
    sys_version = ""
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_GET(self) -> None:
        """Answer with the page, or with rows as JSON."""
        if self.headers.get("Host") not in self.server.hosts:
            self._refuse(HTTPStatus.FORBIDDEN, "this server answers only at its own address")
            return
        if len(self.path) > MOST_ASKED:
            self._refuse(HTTPStatus.REQUEST_URI_TOO_LONG, "the request is too long")
            return
        asked = urlsplit(self.path)
        _, _, rest = asked.path.partition("/")
        token, slash, name = rest.partition("/")
        if not hmac.compare_digest(token.encode(), self.server.token.encode()) or not slash:
            self._refuse(
                HTTPStatus.FORBIDDEN,
                "the address lacks its token; open the one that `fmtkit inspect --serve` printed",
            )
            return
        if not name:
            self._send(HTTPStatus.OK, "text/html; charset=utf-8", self.server.page())
            return
        answer = ANSWERS.get(name)
        if answer is None:
            self._refuse(HTTPStatus.NOT_FOUND, "there is no such page")
            return
        try:
            query = parse_qs(asked.query, keep_blank_values=True, max_num_fields=20)
            found = answer(self.server.pages, {key: values[-1] for key, values in query.items()})
        except FmtkitError as error:
            found = {"error": one_line(public(str(error)))}
        except ValueError:
            self._refuse(HTTPStatus.BAD_REQUEST, "the request is not one of this page")
            return
        self._send_json(HTTPStatus.OK, found)

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        self.close_connection = True
        self._send_json(status, {"error": why})

    def _send_json(self, status: HTTPStatus, found: Mapping[str, Any]) -> None:
        text = json.dumps(without_secrets(found), ensure_ascii=False, separators=(",", ":"))
        self._send(status, "application/json; charset=utf-8", text)

    def _send(self, status: HTTPStatus, kind: str, text: str) -> None:
        body = text.encode("utf-8", "replace")
        self.send_response(status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Write no log: requests name what was searched."""


Answer = Callable[[RowPages, Mapping[str, str]], dict[str, Any]]


def _rows(pages: RowPages, query: Mapping[str, str]) -> dict[str, Any]:
    wanted = RowFilter(
        query.get("text", ""),
        query.get("code", ""),
        query.get("role", ""),
        _number(query, "least"),
        _number(query, "most"),
        in_tokens=query.get("unit") == "tokens" and pages.reading.shown.tokenizer is not None,
    )
    before = _number(query, "before")
    if before is not None:
        return pages.page_before(before, wanted)
    return pages.page(_number(query, "at") or 0, wanted)


def _row(pages: RowPages, query: Mapping[str, str]) -> dict[str, Any]:
    return pages.row(_number(query, "row") or 0)


def _line(pages: RowPages, query: Mapping[str, str]) -> dict[str, Any]:
    return pages.line(_number(query, "source") or 0, _number(query, "line") or 1)


def _number(query: Mapping[str, str], name: str) -> int | None:
    """Return a natural number of a request; ValueError if it is none."""
    text = query.get(name, "")
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise ValueError(name)
    return int(text)


ANSWERS: Mapping[str, Answer] = {"rows": _rows, "row": _row, "line": _line}
