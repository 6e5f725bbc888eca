"""`fmtkit inspect --serve`: the address of the page, a browser that opens it, and an end by Ctrl-C."""

import os
import sys
import webbrowser
from collections.abc import Callable

from fmtkit.browsing.row_pages import RowPages
from fmtkit.browsing.server import server_at
from fmtkit.core.escaping import counted
from fmtkit.inspection.reading import read
from fmtkit.options.inspect_options import InspectOptions


def serve(
    source: object,
    options: InspectOptions,
    port: int | None = None,
    *,
    opens: bool = True,
    say: Callable[[str], None],
) -> None:
    """Serve the rows of sources on a page for this machine, until Ctrl-C.

    Raises OptionError if no type fits or the port is taken, and what an inspection raises before that.
    """
    pages = RowPages(read(source, options))
    with server_at(pages, port) as server:
        # Flushed, so that whoever waits for the address in a pipe reads it.
        sys.stdout.write(server.url + "\n")
        sys.stdout.flush()
        say(
            f"serving {counted(len(pages.book.sources), 'source')} on this machine only; Ctrl-C ends it"
        )
        if opens and has_browser():
            webbrowser.open(server.url)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            say("fmtkit: the server has ended")


def has_browser() -> bool:
    """Return whether a window can be opened: a browser of the terminal would take the terminal."""
    if sys.platform in ("darwin", "win32"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
