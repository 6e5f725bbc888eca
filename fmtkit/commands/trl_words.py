"""Command lines of TRL (`trl dpo --config FILE --KEY VALUE`), answered with those of fmtkit."""

import shlex
from collections.abc import Iterator, Sequence

from fmtkit.core.credentials import public

FILE, ALONE = "config", "true"
"""TRL's option of a file, and what an option without a value means."""


def answer(words: Sequence[str]) -> str:
    """Return what to run in place of a method and its options."""
    method, *options = words
    given = dict(_pairs(options))
    file = given.pop(FILE, "FILE")
    run = f"fmtkit train {shlex.quote(file)} --method {method}"
    if not given:
        return f"run: {run}"
    if file == "FILE":
        keys = "; ".join(f"{name}: {value}" for name, value in given.items())
        return public(f"write its options as lines of a file ({keys}), then run: {run}")
    sets = " ".join(f"--set {name}={shlex.quote(value)}" for name, value in given.items())
    return public(f"run: {run} {sets}")


def _pairs(options: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each option's name and value; several values are a list."""
    name, values = "", list[str]()
    for word in (*options, "--"):
        if not word.startswith("--"):
            values.append(word)
            continue
        if name:
            yield _pair(name, values)
        name, equals, value = word.removeprefix("--").partition("=")
        values = [value] if equals else []


def _pair(name: str, values: Sequence[str]) -> tuple[str, str]:
    key = name.replace("-", "_")
    if not values and key.startswith("no_"):
        return key.removeprefix("no_"), "false"
    if len(values) > 1:
        return key, f"[{', '.join(values)}]"
    return key, values[0] if values else ALONE
