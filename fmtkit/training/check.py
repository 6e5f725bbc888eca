"""What a check of a run is: a code, what it needs to be answered, and a function that finds problems."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from fmtkit.runner import Runner
from fmtkit.training.config import Config, Entry
from fmtkit.training.datatypes import Reading
from fmtkit.training.launch import Launch
from fmtkit.training.problem import Problem, Problems
from fmtkit.training.resolve import Resolution

Needs = Literal["config", "files", "device", "data"]


@dataclass(frozen=True)
class Subject:
    """What checks look at: the keys, and what has been made of them so far."""

    config: Config
    runner: Runner
    resolution: Resolution = field(default_factory=Resolution)
    launching: Launch = field(default_factory=lambda: Launch((), "one process"))
    readings: tuple[tuple[str, Entry, Reading], ...] = ()
    """Datasets whose type is understood: dotted name, entry, reading."""


Find = Callable[[Subject], Iterable[Problem | str] | str | None]


@dataclass(frozen=True)
class Check:
    """A check: `find` returns what is wrong, or raises it."""

    code: str
    needs: Needs
    about: str
    find: Find


def run_checks(subject: Subject, problems: Problems, checks: Sequence[Check]) -> None:
    """Run checks one by one; what one finds does not keep the others from running."""
    for check in checks:
        with problems.collecting(check.code):
            found = check.find(subject)
            for one in [found] if isinstance(found, str) else found or ():
                key = one.key if isinstance(one, Problem) else ""
                problems.add(check.code, one.message if isinstance(one, Problem) else one, key)


def of_keys(
    rules: Iterable[tuple[str, str, Callable[[Config, Runner], str | None]]],
) -> list[Check]:
    """Make checks of rules about keys alone."""

    def bound(rule: Callable[[Config, Runner], str | None]) -> Find:
        return lambda subject: rule(subject.config, subject.runner)

    return [Check(code, "config", about, bound(rule)) for code, about, rule in rules]
