"""Who listens on a port of this machine: the process and how it was started (Linux)."""

import errno
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_LISTEN = "0A"


@dataclass(frozen=True)
class Listener:
    """A process of ours that listens on a port."""

    pid: int
    command: tuple[str, ...]
    environment: Mapping[str, str]


def is_free(host: str, port: int) -> bool:
    """Tell whether a server could listen there; an address that is not of this machine is not free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno in {errno.EADDRINUSE, errno.EACCES, errno.EADDRNOTAVAIL}:
                return False
            raise
    return True


def listener(port: int) -> Listener | None:
    """Return the process that listens on a port; None if there is none that we may look at."""
    sockets = {f"socket:[{inode}]" for inode in _inodes(port)}
    for folder in Path("/proc").glob("[0-9]*") if sockets else ():
        try:
            if any(str(file.readlink()) in sockets for file in (folder / "fd").iterdir()):
                return Listener(
                    int(folder.name),
                    tuple(_fields(folder / "cmdline")),
                    dict(f.split("=", 1) for f in _fields(folder / "environ") if "=" in f),
                )
        except OSError:
            # Another user's process, or one that has ended meanwhile.
            continue
    return None


def _inodes(port: int) -> set[str]:
    """Return the sockets that listen on a port: columns local_address, state, inode of /proc/net/tcp."""
    found = set()
    for name in ("tcp", "tcp6"):
        table = Path("/proc/net") / name
        for line in table.read_text().splitlines()[1:] if table.is_file() else ():
            cells = line.split()
            if cells[3] == _LISTEN and int(cells[1].rpartition(":")[2], 16) == port:
                found.add(cells[9])
    return found


def _fields(file: Path) -> list[str]:
    return [part for part in file.read_text("utf-8", "replace").split("\0") if part]
