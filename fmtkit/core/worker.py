"""Worker processes for foreign code, with limits on time, memory and output.

A worker serves one target, a function `setup -> (bytes -> bytes)` named `package.module:function`.
It is spawned (never forked from a process with threads), takes a batch of items, and answers
each with one frame. If an answer does not come within the time limit, the worker is killed, and the item
without an answer is the one at fault. Only bytes are exchanged and nothing is unpickled, so that an answer
cannot run code here.
"""

import json
import resource
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import FmtkitError
from fmtkit.core.user_modules import child_path

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

Serve = Callable[[bytes], bytes]

STDERR = 2
"""User code's output to stdout is not a result: it goes to stderr, as messages do."""

BOOT = (
    "import sys; sys.path[:] = sys.argv[2:]; from fmtkit.core.worker import serve; "
    "serve(int(sys.argv[1]))"
)


class WorkerError(FmtkitError, RuntimeError):
    """A worker could not start; the message says why."""


_STALLED = 5.0
"""Seconds, beyond the limit of an item, for which a worker may fail to read its input."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a worker: seconds for one item, bytes of memory (None: no limit), bytes of one answer."""

    seconds: float = 5.0
    memory: int | None = 2 << 30
    answer: int = 256 << 20
    start_seconds: float = 120.0


@dataclass(frozen=True, slots=True)
class Overrun:
    """An item without an answer: its worker exceeded a limit or died."""

    message: str


class Worker:
    """A long-lived process that answers items one after another; threads take turns."""

    def __init__(
        self, target: str, setup: Mapping[str, Any], limits: Limits, *, quiet: bool = False
    ) -> None:
        """Keep the target; the process starts with the first item. `quiet` discards its stderr."""
        first = {"target": target, "setup": setup, "memory": limits.memory}
        self._first = json.dumps(first | {"seconds": limits.seconds}).encode()
        self._limits = limits
        self._stderr = subprocess.DEVNULL if quiet else None
        self._process: subprocess.Popen[bytes] | None = None
        self.connection: Connection | None = None
        """To the process, while there is one."""
        self._lock = Lock()

    def answer(self, items: Sequence[bytes]) -> list[bytes | Overrun]:
        """Answer items in their order; raises WorkerError if the worker cannot start."""
        answers: list[bytes | Overrun] = []
        with self._lock:
            while len(answers) < len(items):
                answers += self._serve(items[len(answers) :])
        return answers

    def _serve(self, items: Sequence[bytes]) -> Iterator[bytes | Overrun]:
        """Answer items up to the first that exceeds a limit."""
        connection = self._started()
        try:
            connection.send_bytes(len(items).to_bytes(8, "little"))
            for item in items:
                connection.send_bytes(item)
        except OSError:
            self.close()
            yield Overrun("the process that ran it died or stopped accepting input")
            return
        for _ in items:
            answer = self._received(connection, self._limits.seconds)
            yield answer
            if isinstance(answer, Overrun):
                return

    def _received(self, connection: "Connection", seconds: float) -> bytes | Overrun:
        try:
            if connection.poll(seconds):
                return connection.recv_bytes(self._limits.answer)
            self.close()
            return Overrun(f"no answer within {seconds:g} seconds")
        except (EOFError, ConnectionError):
            self.close()
            return Overrun("the process that ran it died (out of memory?)")
        except OSError:
            self.close()
            return Overrun(f"an answer of more than {self._limits.answer:,} bytes")

    def _started(self) -> "Connection":
        if self._process is not None and self._process.poll() is not None:
            self.close()
        if self.connection is not None:
            return self.connection
        ours, theirs = socket.socketpair()
        _limit_waits(ours, self._limits.seconds + _STALLED)
        # -P: modules in the working directory are not importable.
        boot = [sys.executable, "-P", "-c", BOOT, str(theirs.fileno()), *child_path()]
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and code
            boot,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=STDERR,
            stderr=self._stderr,
        )
        theirs.close()
        self.connection = connection = _connection(ours.detach())
        connection.send_bytes(self._first)
        greeting = self._received(connection, self._limits.start_seconds)
        if isinstance(greeting, Overrun) or greeting:
            self.close()
            reason = greeting.message if isinstance(greeting, Overrun) else greeting.decode()
            raise WorkerError(f"the worker process does not start: {reason}")
        return connection

    def close(self) -> None:
        """Kill the process; the next item starts a new one."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def kill(self) -> None:
        """Kill the process from another thread: the waiting caller gets an Overrun."""
        process = self._process
        if process is not None:
            process.kill()
            process.wait()

    def __del__(self) -> None:
        self.close()


def _connection(descriptor: int) -> "Connection":
    from multiprocessing.connection import Connection

    class ClosedOnce(Connection):
        """A connection that, once collected, is closed for those that are collected with it.

        The standard one's finalizer leaves the descriptor in place: a worker that is closed after it
        would close the same number again, which by then may be another file's.
        """

        def __del__(self) -> None:
            self.close()

    return ClosedOnce(descriptor)


def _limit_waits(ours: socket.socket, seconds: float) -> None:
    """Limit how long reads and writes of a frozen worker's socket wait; then they raise an OSError."""
    limit = struct.pack("ll", int(seconds) + 1, 0)
    for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
        ours.setsockopt(socket.SOL_SOCKET, option, limit)


def serve(descriptor: int) -> None:
    """Answer items until the connection ends; this is the main function of a worker process."""
    from multiprocessing.connection import Connection

    connection = Connection(descriptor)
    first = json.loads(connection.recv_bytes())
    module, _, name = first["target"].partition(":")
    function = getattr(import_module(module), name)
    try:
        answer: Serve = function(first["setup"])
    except FmtkitError as error:
        connection.send_bytes(str(error).encode())
        return
    _limit(first["memory"])
    connection.send_bytes(b"")
    try:
        while True:
            count = int.from_bytes(connection.recv_bytes(), "little")
            items = [connection.recv_bytes() for _ in range(count)]
            for item in items:
                # If the parent was killed, nobody kills this process: an alarm does, even inside C code.
                signal.setitimer(signal.ITIMER_REAL, 2 * first["seconds"])
                connection.send_bytes(answer(item))
            signal.setitimer(signal.ITIMER_REAL, 0)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return


def _limit(memory: int | None) -> None:
    """Limit this process to its present memory plus `memory` bytes, and write no core files."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform != "linux" or memory is None:
        return
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = pages * resource.getpagesize() + memory
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
