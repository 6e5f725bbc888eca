"""Whether somebody on the network answers, found out within seconds."""

import socket
from collections.abc import Callable
from threading import Thread
from typing import TypeVar

from fmtkit.abandoning import AbandonedError, within_or_abandoned

T = TypeVar("T")

CONNECTING = 3.0
"""Seconds that a host has to take a connection."""
ANSWERING = 10.0
"""Seconds that the first question to a storage may take, its credentials and retries included."""


def trouble_with(host: str, port: int) -> str | None:
    """Return why a host takes no connection; None where it does."""
    said = [f"{host} does not answer within {CONNECTING:.0f} seconds"]

    def connect() -> None:
        try:
            socket.create_connection((host, port), timeout=CONNECTING).close()
            said[0] = ""
        except OSError as error:
            said[0] = f"{host}: {error.strerror or error}"

    # Looking a name up has no time limit of its own.
    thread = Thread(target=connect, daemon=True)
    thread.start()
    thread.join(CONNECTING)
    return said[0] or None


def answer_of(call: Callable[[], T]) -> T:
    """Return what a call returns; raise TimeoutError, and leave it to itself, if it takes too long."""
    try:
        return within_or_abandoned(ANSWERING, call)
    except AbandonedError:
        raise TimeoutError(f"no answer within {ANSWERING:g} seconds") from None
