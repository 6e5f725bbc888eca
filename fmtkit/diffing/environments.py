"""Environments of other trainers: a venv each below the user's cache, with pinned versions from the registry.

An environment gets its name only when everything in it was installed, so that a half-made one is never used.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

from fmtkit.core.data_classes import dataclass
from fmtkit.core.distributions import version_of
from fmtkit.core.errors import DependencyError, OptionError, UnknownNameError
from fmtkit.core.escaping import one_line
from fmtkit.diffing.trainer import Trainer, every, find

FOLDER = "FMTKIT_ENVS"
"""The variable that names another folder for environments."""
_FACTS = "fmtkit-env.json"
_UNITS = {"B": 1, "kB": 1_000, "MB": 1_000_000, "GB": 1_000_000_000}
_DOWNLOADED = re.compile(r"^\s*Downloading \S+ \((?P<number>[\d.]+) (?P<unit>B|kB|MB|GB)\)")


@dataclass(frozen=True)
class Environment:
    """An environment that is there: what it holds, and what making it took."""

    name: str
    """The trainer and its version: `axolotl==0.19.0`."""
    folder: str
    python: str
    packages: tuple[str, ...]
    download_bytes: int
    disk_bytes: int
    seconds: float

    def as_dict(self) -> dict[str, object]:
        """Return plain values that schemas/environments.schema.json describes."""
        return {**asdict(self), "packages": list(self.packages)}


def folder_of(given: str | None = None) -> Path:
    """Return the folder that environments are in: the one given, that of FMTKIT_ENVS, or the user's cache."""
    named = given or os.environ.get(FOLDER)
    return Path(named).expanduser() if named else _user_cache() / "fmtkit" / "envs"


def _user_cache() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def trainer_named(name: str) -> Trainer:
    """Return a trainer by its name, or in another version: `trl==1.12.0`.

    Raises UnknownNameError for a name that is none, OptionError for a version that is none.
    """
    base, equals, version = name.partition("==")
    trainer = find(base)
    if not equals:
        return trainer
    if not re.fullmatch(r"[0-9][0-9A-Za-z.+!-]*", version):
        raise OptionError(f"{name}: the version is missing or is none, such as {trainer.package}")
    return trainer.in_version(version)


def is_here(trainer: Trainer) -> bool:
    """Return whether this Python has a trainer: in the version that was asked for, or in whatever one."""
    here = version_of(trainer.distribution)
    return here == trainer.version if trainer.is_exact else here is not None


def python_of(trainer: Trainer) -> Path | None:
    """Return the Python of a trainer's environment; None where there is none of its version."""
    place = folder_of() / _name(trainer)
    return _python(place) if (place / _FACTS).is_file() else None


def create(
    name: str, folder: str | None = None, *, say: Callable[[str], None] = lambda _: None
) -> Environment:
    """Make the environment of a trainer; an existing one is returned unchanged.

    Raises:
        UnknownNameError: for a trainer that is none.
        DependencyError: if something cannot be installed or imported.
    """
    trainer = trainer_named(name)
    root = folder_of(folder)
    place = root / _name(trainer)
    if (place / _FACTS).is_file():
        say(f"{place} is there already; `fmtkit env remove {trainer.name}` removes it")
        return _read(place)
    _make_folder(root)
    began = time.monotonic()
    made = Path(tempfile.mkdtemp(prefix=".making-", dir=root))
    try:
        downloaded = _filled(made, trainer, say)
        environment = Environment(
            f"{trainer.name}=={trainer.version}",
            str(place),
            str(_python(place)),
            (trainer.package, *trainer.needs),
            downloaded,
            _size(made),
            round(time.monotonic() - began, 1),
        )
        (made / _FACTS).write_text(json.dumps(environment.as_dict(), indent=1), encoding="utf-8")
        if place.exists():
            # It has no facts, or another process was faster.
            shutil.rmtree(place)
        made.rename(place)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return environment


def list_environments(folder: str | None = None) -> list[Environment]:
    """Return the environments that are there."""
    return [_read(facts.parent) for facts in sorted(folder_of(folder).glob(f"*/{_FACTS}"))]


def remove(name: str, folder: str | None = None) -> list[Environment]:
    """Remove a trainer's environments, or the one of a version, and return them.

    Raises UnknownNameError where there is none.
    """
    trainer = trainer_named(name)
    root = folder_of(folder)
    there = list_environments(folder)
    gone = [
        one
        for one in there
        if one.name == f"{trainer.name}=={trainer.version}"
        or ("==" not in name and one.name.partition("==")[0] == name)
    ]
    if not gone:
        raise UnknownNameError("environment", name, [one.name for one in there], f" in {root}")
    for one in gone:
        # A folder whose removal is cut short is no environment.
        (Path(one.folder) / _FACTS).unlink()
        shutil.rmtree(one.folder)
    return gone


def _name(trainer: Trainer) -> str:
    return f"{trainer.name}-{trainer.version}"


def _make_folder(root: Path) -> None:
    try:
        root.mkdir(parents=True, exist_ok=True)
        for left in root.glob(".making-*"):
            if time.time() - left.stat().st_mtime > 24 * 3600:
                shutil.rmtree(left, ignore_errors=True)
    except OSError as error:
        raise OptionError(
            f"{root}: cannot be written: {error.strerror}; --folder or {FOLDER} names another folder"
        ) from error


def _filled(place: Path, trainer: Trainer, say: Callable[[str], None]) -> int:
    """Install what a trainer needs, look whether it can be imported, and return the bytes downloaded."""
    say(f"making {place.parent / _name(trainer)}: {trainer.package}, {', '.join(trainer.needs)}")
    _run([sys.executable, "-m", "venv", str(place)], trainer, "no venv can be made")
    python = str(_python(place))
    pip = [python, "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
    failed = "pip cannot install it"
    printed = [*_run([*pip, *trainer.needs], trainer, failed)]
    # Its own requirements are those of CUDA and of much else: `needs` has what preparing rows takes.
    printed += _run([*pip, "--no-deps", trainer.package], trainer, failed)
    _run([python, "-I", "-c", f"import {trainer.module}"], trainer, "it cannot be imported")
    sizes = filter(None, map(_DOWNLOADED.match, printed))
    return round(sum(float(one["number"]) * _UNITS[one["unit"]] for one in sizes))


def _run(command: list[str], trainer: Trainer, failed: str) -> Iterator[str] | list[str]:
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run(  # noqa: S603
        command, capture_output=True, text=True, errors="replace", env=kept, check=False
    )
    if done.returncode == 0:
        return done.stdout.splitlines()
    lines = [one for one in done.stderr.splitlines() if one.strip()] or ["it printed nothing"]
    told = next((one for one in lines if one.startswith("ERROR")), lines[-1])
    raise DependencyError(
        f"fmtkit env create {trainer.name}: {failed}: {one_line(told, 300)}; nothing was kept. Where it is "
        f"installed already, name its Python: fmtkit diff --against {trainer.name} --python PATH"
    )


def _python(place: Path) -> Path:
    return place / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def _size(place: Path) -> int:
    return sum(one.lstat().st_size for one in place.rglob("*") if not one.is_dir())


def _read(place: Path) -> Environment:
    try:
        values = json.loads((place / _FACTS).read_text(encoding="utf-8"))
        return Environment(**{**values, "packages": tuple(values["packages"])})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise OptionError(
            f"{place / _FACTS} cannot be read ({error}); remove the folder and make it again"
        ) from error


def table() -> list[Trainer]:
    """Return the trainers whose environments can be made."""
    return sorted(every(), key=lambda one: one.name)
