"""Prints what fixtures hold where they differ from what fmtkit makes of their sources, to be read line by line.

`make fixtures NAME=debate` is for a format of fixtures/debate, `NAME=targets/quiz` for a target; without a NAME
all are compared. With `WRITE=1` the files are written as they are printed.
"""

import difflib
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import fixture_cases
from fixture_cases import FIXTURES, Case

TARGETS = "targets"


def expected(name: str) -> Iterator[tuple[Path, list[Any]]]:
    """Yield each file of a format or target, and the JSON values that it should hold; none, no file."""
    known = sorted((FIXTURES / name).glob("*source.jsonl"))
    if not known:
        sys.exit(
            f"fixtures: write fixtures/{name}/source.jsonl first: at most ten rows, the difficult ones too"
        )
    for source in known:
        before = source.name.removesuffix("source.jsonl").rstrip(".")
        if name.startswith(f"{TARGETS}/"):
            yield from _of_target(name.removeprefix(f"{TARGETS}/"), before)
        else:
            yield from _of_format(Case(name, before))


def _of_format(case: Case) -> Iterator[tuple[Path, list[Any]]]:
    outcome = fixture_cases.run(case)
    yield case.path("canonical.jsonl"), outcome.rows
    yield case.path("quarantine.jsonl"), outcome.rejects
    yield case.path("warnings.json"), [outcome.warnings] if outcome.warnings else []
    if not fixture_cases.renders(case):
        return
    rendered = fixture_cases.run(case, template="chatml")
    yield case.path("chatml.jsonl"), rendered.rows
    differs = rendered.rejects != outcome.rejects
    yield case.path("chatml.quarantine.jsonl"), rendered.rejects if differs else []


def _of_target(to: str, table: str) -> Iterator[tuple[Path, list[Any]]]:
    with tempfile.TemporaryDirectory() as folder:
        written, rejected = fixture_cases.write_target(to, table, Path(folder))
    yield fixture_cases.target_file(to, table, "written"), written
    yield fixture_cases.target_file(to, table, "rejected"), rejected


def difference(path: Path, values: Sequence[Any]) -> list[str]:
    """Return the lines by which a file differs from what it should hold; none where only the spelling does."""
    held = fixture_cases.read_lines(path) if path.exists() else []
    if path.suffix == ".json" and held:
        held = [b"\n".join(held)]
    if [json.loads(line) for line in held] == list(values):
        return []
    name = path.relative_to(FIXTURES.parent)
    lines = (line.decode(errors="backslashreplace") for line in held)
    return [*difflib.unified_diff([*lines], spelled(values), str(name), "expected", lineterm="")]


def spelled(values: Sequence[Any]) -> list[str]:
    """Return values as the lines of a fixture."""
    return [json.dumps(value, ensure_ascii=False) for value in values]


def names() -> list[str]:
    """Return every format and target with fixtures."""
    formats = {case.name for case in fixture_cases.cases()}
    return sorted(formats) + [
        f"{TARGETS}/{path.name}" for path in sorted((FIXTURES / TARGETS).iterdir())
    ]


def main(arguments: Sequence[str]) -> None:
    """Compare the fixtures that the arguments name; --write writes what differs."""
    differing = 0
    for name in [one for one in arguments if one != "--write"] or names():
        for path, values in expected(name):
            lines = difference(path, values)
            differing += bool(lines)
            if lines:
                print(*lines, "", sep="\n")
            if lines and "--write" in arguments:
                path.write_text("".join(f"{line}\n" for line in spelled(values)), encoding="utf-8")
                if not values:
                    path.unlink()
    if not differing:
        print("all fixtures hold what fmtkit makes of their sources")


if __name__ == "__main__":
    main(sys.argv[1:])
