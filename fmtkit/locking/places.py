"""Paths of a lock: relative to its folder, the same on every machine, and without credentials."""

import os
from pathlib import Path

from fmtkit.core.credentials import has_credentials, public
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OptionError

HERE, ABOVE = "./", "../"


@dataclass(frozen=True)
class Places:
    """The folder of a lock, from which its paths lead."""

    folder: Path

    def told(self, text: str) -> str:
        """Return a path as the lock has it; a name of the hub, a URL or a shipped template stays as it is."""
        path = Path(text).expanduser()
        if "://" in text or not _is_local(path):
            return public(text)
        relative = Path(os.path.relpath(path, self.folder)).as_posix()
        return relative if relative.startswith(ABOVE) else HERE + relative

    def found(self, text: str) -> str:
        """Return what a path of the lock is called here, from the current folder.

        Raises:
            OptionError: for a URL whose credentials the lock does not keep.
        """
        if has_credentials(text) or "***" in text:
            raise OptionError(
                f"{text}: a lock keeps no credentials; give the address again: --data URL"
            )
        if not text.startswith((HERE, ABOVE)):
            return text
        return os.path.relpath(self.folder / text)


def _is_local(path: Path) -> bool:
    # A glob, or a file of a map with the name of a dataset behind it, is in a folder that is there.
    return path.exists() or (path.parent != Path() and path.parent.exists()) or _is_glob(path)


def _is_glob(path: Path) -> bool:
    return any(letter in str(path) for letter in "*?[")
