"""Whether a host on the network answers, found out within seconds."""

import socket

from fmtkit.core.foreign_calls import OverdueError, within_or_abandoned

CONNECTING = 3.0
"""Timeout in seconds of a connection to a host."""
ANSWERING = 10.0
"""Timeout in seconds of the first request to a store, its credentials and retries included."""


def trouble_with(host: str, port: int) -> str | None:
    """Return why a host does not accept a connection; None if it does."""

    def connect() -> None:
        socket.create_connection((host, port), timeout=CONNECTING).close()

    try:
        # Looking a name up has no time limit of its own.
        within_or_abandoned(CONNECTING, connect)
    except OverdueError:
        return f"{host} does not answer within {CONNECTING:.0f} seconds"
    except OSError as error:
        return f"{host}: {error.strerror or error}"
    return None
