"""Where a Gym's files lie: in its folder, or among the packages of its environment."""

import shutil
from collections.abc import Iterator
from pathlib import Path

from fmtkit.training.rl.nemo_gym.settings import GymSettings

_PACKAGES = "lib/python3*/site-packages"


def folders(settings: GymSettings) -> Iterator[Path]:
    """Yield the folders in which a relative path is looked for, the Gym's own first.

    A Gym that pip installed has its data and its configurations among the packages, which its own
    commands look through as well.
    """
    yield settings.folder
    yield from sorted((settings.folder / ".venv").glob(_PACKAGES))
    yield from sorted(settings.folder.glob(_PACKAGES))
    program = shutil.which("ng_run")
    if program is not None:
        yield from sorted(Path(program).resolve().parent.parent.glob(_PACKAGES))


def find(settings: GymSettings, path: str) -> Path:
    """Return the file of a path; where there is none, what it would be in the Gym's folder."""
    given = Path(path).expanduser()
    found = (folder / given for folder in folders(settings))
    return next((file for file in found if file.is_file()), settings.folder / given)
