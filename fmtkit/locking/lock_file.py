"""The file of a lock: sorted YAML, whose budgets are edited by hand and whose rest has a checksum."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import field
from hashlib import sha256
from pathlib import Path
from typing import Any

import yaml

from fmtkit.core import atomic
from fmtkit.core.codes import REASONS, WARNINGS
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OptionError, OutputExistsError, UnknownNameError
from fmtkit.findings.advice import ADVICE
from fmtkit.running.ledger import TERMS

FORMAT = 2
"""The version of the format; another one is refused."""
KIND = "fmtkit_lock"
HEAD = """\
# The contract of a dataset (fmtkit, docs/lock.md).
#   fmtkit check {name}             exits with 1 if something is not as it is here, and says what
#   fmtkit check {name} --update    writes what is so now, after you have looked at it
# Edit `budgets` by hand, nothing else: the checksum is that of all other lines.
"""
WRITTEN_BY = ("budgets", "checksum")
"""Keys that the checksum does not cover."""
NEEDED = ("checksum", "datasets", "versions")


@dataclass(frozen=True)
class Lock:
    """A lock: the state of its datasets, and the budgets of findings."""

    datasets: list[dict[str, Any]]
    versions: Mapping[str, str]
    budgets: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, str] | None = None
    """The path of the training config that names the datasets, if one does."""

    def dumps(self, name: str) -> str:
        """Return the text of the file."""
        own = self._own()
        data = {**own, "budgets": dict(self.budgets), "checksum": _checksum(own)}
        text = yaml.dump(data, Dumper=_Dumper, sort_keys=True, allow_unicode=True, width=120)
        return HEAD.format(name=name) + text

    def _own(self) -> dict[str, Any]:
        config = {} if self.config is None else {"config": dict(self.config)}
        own = {"datasets": self.datasets, "versions": dict(self.versions), KIND: FORMAT}
        return own | config


class _Dumper(yaml.SafeDumper):
    """Writes no anchors: the same list twice is written twice."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True


def write(path: Path, lock: Lock) -> None:
    """Write a lock atomically."""
    atomic.write_bytes(path, lock.dumps(path.name).encode())


def refuse_existing(path: Path) -> None:
    """Raise OutputExistsError for a path that is taken, also if it is by a lock, whose budgets count."""
    if path.is_dir():
        raise OptionError(f"-o {path}: is a folder; give the name of a file, such as data.lock")
    if not path.exists():
        return
    advice = "choose another name"
    if _is_lock(path):
        advice = f"`fmtkit check {path} --update` writes what is so now, --overwrite a new lock"
    raise OutputExistsError(f"{path} exists already; {advice}")


def refuse_foreign(path: Path) -> None:
    """Raise OutputExistsError for a file that --overwrite does not replace, since it is no lock."""
    if path.exists() and not _is_lock(path):
        raise OutputExistsError(f"{path} exists already, and is no lock; choose another name")


def _is_lock(path: Path) -> bool:
    return path.is_file() and f"{KIND}:".encode() in path.read_bytes()


def budgets_of(path: Path) -> dict[str, int | str]:
    """Return the budgets of a lock that is replaced, whatever became of its other lines."""
    return read_budgets(_parsed(path).get("budgets"), path)


def read(path: Path) -> Lock:
    """Read a lock.

    Raises:
        OptionError, UnknownNameError: if it is no lock, one of another version, or was edited by hand;
            the message names the key.
    """
    data = _parsed(path)
    _check_kind(path, data)
    own = {key: value for key, value in data.items() if key not in WRITTEN_BY}
    if data["checksum"] != _checksum(own):
        raise OptionError(
            f"{path}: checksum: the lines below `budgets` were edited by hand, or merged; take them from "
            "git again, or write the lock anew with `fmtkit lock ... --overwrite`"
        )
    budgets = read_budgets(data.get("budgets"), path)
    return Lock(data["datasets"], data["versions"], budgets, data.get("config"))


def _parsed(path: Path) -> dict[str, Any]:
    from fmtkit.training.config import yaml_file

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise OptionError(f"{path}: cannot be read: {reason}; `fmtkit lock` writes one") from error
    return yaml_file.parse(text, str(path))


def _check_kind(path: Path, data: Mapping[str, Any]) -> None:
    if KIND not in data:
        raise OptionError(
            f"{path}: is no lock of fmtkit: it has no key {KIND}; `fmtkit lock SOURCE -o FILE` writes one"
        )
    if data[KIND] != FORMAT:
        raise OptionError(
            f"{path}: {KIND}: {data[KIND]!r} is another version of the format than {FORMAT}, which this "
            "fmtkit reads; take the fmtkit that wrote it, or write it anew: fmtkit lock ... --overwrite"
        )
    missing = [key for key in NEEDED if key not in data]
    unknown = sorted(data.keys() - {*NEEDED, KIND, "budgets", "config"})
    if missing or unknown:
        what = f"{missing[0]}: is missing" if missing else f"{unknown[0]}: is not a key of a lock"
        raise OptionError(f"{path}: {what}; take the file from git again")


def read_budgets(given: Any, path: Path) -> dict[str, int | str]:
    """Return the budgets of a lock, as they were written.

    Raises:
        UnknownNameError: for a code that is never counted.
        OptionError: for a value that is neither a number of rows nor a percentage.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise OptionError(f"{path}: budgets: give codes and limits, such as too_long: 1%")
    for code, value in given.items():
        if code not in _known():
            raise UnknownNameError(f"code of a budget ({path}: budgets)", str(code), _known())
        limit_of(value, 1, f"{path}: budgets.{code}")
    return dict(given)


def _known() -> set[str]:
    return {*ADVICE, *REASONS, *WARNINGS, *TERMS} - {"converted"}


def limit_of(value: Any, rows: int, key: str) -> float:
    """Return how many of so many rows a budget allows; raise OptionError for a bad value."""
    text = str(value)
    try:
        number = float(text.removesuffix("%")) if text.endswith("%") else int(text)
    except ValueError:
        number = -1
    if isinstance(value, bool) or not 0 <= number < float("inf"):
        raise OptionError(f"{key}: {value!r}: give a number of rows, or a percentage such as 0.1%")
    return number / 100 * rows if text.endswith("%") else number


def _checksum(own: Mapping[str, Any]) -> str:
    text = json.dumps(own, sort_keys=True, ensure_ascii=True, default=str)
    return sha256(text.encode()).hexdigest()


def lines_of(digests: list[str], each: int = 10) -> list[str]:
    """Return digests as lines of several, which keeps the file short and its changes readable."""
    return [" ".join(digests[i : i + each]) for i in range(0, len(digests), each)]


def digests_of(lines: list[str]) -> Iterator[str]:
    """Yield the digests of such lines."""
    for line in lines:
        yield from line.split()
