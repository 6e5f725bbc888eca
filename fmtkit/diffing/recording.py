"""Runs the recorder in a trainer's own Python, and reads the rows that it, or `--record`, has written."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from fmtkit.core import atomic
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import DependencyError, OptionError, SourceError
from fmtkit.core.escaping import one_line
from fmtkit.diffing import environments, recorder
from fmtkit.diffing.trainer import Request, Trainer
from fmtkit.masks.masked import TokenRow, given
from fmtkit.tokenizers.tokens import Tokenizer

_LAST = 300
"""Characters of what a process printed that are told where it ended."""


@dataclass(frozen=True)
class Recorded:
    """A file of recorded rows, and what it says of the trainer."""

    file: Path
    facts: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    refused: Mapping[int, str] = field(default_factory=dict)
    """Row -> why the trainer refused it."""

    @property
    def versions(self) -> dict[str, str]:
        """Return the versions of the trainer and its packages."""
        return dict(self.facts["versions"])

    def rows(self, *, with_numbers: bool = True) -> Iterator[TokenRow]:
        """Yield the rows in their order; their numbers are left out where they count other rows than ours."""
        for line in _lines(self.file):
            if "ids" not in line:
                continue
            names = ("chosen", "rejected") if len(line["ids"]) > 1 else ("",)
            made = map(given, line["ids"], line["labels"], names)
            yield TokenRow(tuple(made), line["label"], line["row"] if with_numbers else None)


def python_of(trainer: Trainer, python: str | None) -> str:
    """Return the Python that has a trainer: the one given, that of its environment, or this one.

    Raises DependencyError where none has it.
    """
    if python is not None:
        found = Path(python).expanduser()
        if not found.exists():
            raise OptionError(f"--python {python}: no such file")
        return str(found)
    made = environments.python_of(trainer)
    if made is not None:
        return str(made)
    if environments.is_here(trainer):
        return sys.executable
    asked = f"{trainer.name}=={trainer.version}" if trainer.is_exact else trainer.name
    raise DependencyError(
        f"--against {asked}: there is no environment with {asked}; make one with "
        f"`fmtkit env create {asked}`, or name the Python that has it: --python PATH"
    )


def record(trainer: Trainer, python: str, request: Request, folder: Path) -> Recorded:
    """Let a trainer prepare rows in its own process.

    Raises OptionError with what it said where it prepares none, DependencyError where it is not there.
    """
    out = folder / "recorded.jsonl"
    work = folder / "work"
    work.mkdir()
    whole = {**request, "out": str(out), "work": str(work), "stubs": list(trainer.stubs)}
    asked = folder / "request.json"
    asked.write_text(json.dumps(whole), encoding="utf-8")
    # What leads to this process's packages is not for the other Python.
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    kept |= {"TOKENIZERS_PARALLELISM": "false", "HF_DATASETS_CACHE": str(work / "cache")}
    with (folder / "printed.log").open("wb+") as printed:
        try:
            done = subprocess.run(  # noqa: S603
                [python, "-I", recorder.__file__, str(asked)],
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                env=kept,
                check=False,
            )
        except OSError as error:
            raise OptionError(f"--python {python}: cannot be run: {error.strerror}") from error
        printed.seek(0)
        said = printed.read().decode(errors="replace")
    named = f"--against {trainer.name} ({python})"
    if not out.is_file() or done.returncode:
        raise OptionError(
            f"{named}: the recorder ended with exit code {done.returncode}: {_last(said)}"
        )
    recorded = read(out, named, trainer)
    has = recorded.versions.get(trainer.distribution)
    if trainer.is_exact and has != trainer.version:
        raise OptionError(f"{named}: has {trainer.name} {has}, not {trainer.version}")
    return recorded


def run_fmtkit(command: Sequence[str], python: str) -> None:
    """Run a command of the fmtkit of another Python; raise OptionError with what it said where it fails."""
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    try:
        done = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, errors="replace", env=kept, check=False
        )
    except OSError as error:
        raise OptionError(f"--python {python}: cannot be run: {error.strerror}") from error
    if done.returncode:
        raise OptionError(f"--python {python}: its fmtkit ended: {_last(done.stderr)}")


def read(file: Path, named: str, trainer: Trainer | None = None) -> Recorded:
    """Look through recorded rows; raise OptionError for an error in them or a file that is not whole."""
    facts: Mapping[str, Any] | None = None
    notes: list[str] = []
    refused: dict[int, str] = {}
    rows, end = 0, None
    for line in _lines(file):
        if "error" in line:
            raise _failed(str(line["error"]), named, trainer)
        if "facts" in line:
            facts = line["facts"]
        elif "ids" in line:
            rows += 1
        elif "refused" in line:
            refused[int(line["row"])] = str(line["refused"])
        elif "note" in line:
            notes.append(str(line["note"]))
        elif "end" in line:
            end = line["end"]
    if facts is None or end != rows:
        raise SourceError(f"{named}: {file} is not whole: its end is missing; record it again")
    return Recorded(file, facts, tuple(notes), refused)


def _failed(error: str, named: str, trainer: Trainer | None) -> OptionError | DependencyError:
    if trainer is not None and error.startswith(("ModuleNotFoundError", "ImportError")):
        return DependencyError(
            f"{named}: {one_line(error, 300)}; this Python lacks something of {trainer.name} "
            f"{trainer.package.partition('==')[2]}: make its environment with "
            f"`fmtkit env create {trainer.name}`"
        )
    return OptionError(f"{named}: it refuses the rows or the settings: {one_line(error, 500)}")


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    try:
        with file.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    found = json.loads(line)
                except ValueError as error:
                    raise SourceError(f"{file}:{number}: no JSON: {error}") from error
                if not isinstance(found, dict):
                    raise SourceError(f"{file}:{number}: no line of recorded rows")
                yield found
    except (OSError, UnicodeError) as error:
        if isinstance(error, SourceError):
            raise
        raise SourceError(f"{file} cannot be read: {error}") from error


def _last(said: str) -> str:
    lines = [line for line in said.splitlines() if line.strip()]
    return one_line(lines[-1], _LAST) if lines else "it printed nothing"


def write(path: Path, facts: Mapping[str, Any], rows: Iterable[TokenRow]) -> None:
    """Write rows as the recorder does, for a later comparison."""
    with atomic.writing(path):
        file = atomic.PartialFile(path)
        file.write(_encoded({"facts": dict(facts)}))
        count = 0
        for row in rows:
            ids = [one.ids.tolist() for one in row.sequences]
            labels = [one.labels.tolist() for one in row.sequences]
            line = {"row": row.number, "ids": ids, "labels": labels, "label": row.label}
            file.write(_encoded(line))
            count += 1
        file.write(_encoded({"end": count}))
        file.publish()


def _encoded(line: Mapping[str, Any]) -> bytes:
    return (json.dumps(line) + "\n").encode()


def facts_of(tokenizer: Tokenizer) -> dict[str, Any]:
    """Return what the recorder tells of a tokenizer, of one of ours."""
    found: dict[str, Any] = recorder.facts_of_vocabulary(
        tokenizer.backend.get_vocab(with_added_tokens=False),
        {name: tokenizer.special_id(f"{name}_token") for name in ("bos", "eos", "pad", "unk")},
        lambda text, special: tokenizer.encode(text, add_special_tokens=special).ids,
        lambda texts: [one.ids for one in tokenizer.encode_batch(texts)],
    )
    return found
