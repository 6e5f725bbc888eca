"""Checks of a run: what a check is, how checks are run, and those of a method or of a section."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Generic, Literal, TypeVar

from fmtkit.core.runner import SECTIONS, Refusal, Runner
from fmtkit.training.config.config import Config, Entry
from fmtkit.training.config.problem import Problem, Problems
from fmtkit.training.planning.job import Source
from fmtkit.training.planning.run_plan import Plan
from fmtkit.training.planning.types import FirstRows, Launch, Reading, Resolution

Needs = Literal["config", "files", "modules", "device", "servers", "data"]

NEEDS: dict[Needs, str] = {
    "config": "only the keys",
    "files": "models, data files, templates and folders",
    "modules": "the user's Python modules",
    "device": "GPUs and packages of the training machine",
    "servers": "a vLLM server or a NeMo Gym",
    "data": "the converted rows",
}


@dataclass(frozen=True)
class Subject:
    """What checks examine while a plan is made: the keys, and what follows from them so far."""

    config: Config
    runner: Runner
    resolution: Resolution = field(default_factory=Resolution)
    launching: Launch = field(default_factory=lambda: Launch((), "one process"))
    readings: tuple[tuple[str, Entry, Reading], ...] = ()
    """Datasets whose type is understood: dotted name, entry, reading."""


@dataclass(frozen=True)
class Run:
    """What checks examine of a complete plan, and later of its rows."""

    plan: Plan
    resume: bool = False
    trains_here: bool = True
    """Whether the training processes start on this machine, from this command."""
    asks_hub: bool = True
    """Whether models that are not here may be looked for on the hub."""
    train: tuple[Source, ...] = ()
    evaluation: tuple[Source, ...] = ()
    first_rows: Mapping[str, FirstRows] = field(default_factory=dict)
    """Dotted name of a local dataset -> what its first rows became, before anything is converted."""

    @property
    def files(self) -> list[str]:
        """Return the converted files to train on."""
        return [file for source in self.train for file in source.files]


S = TypeVar("S")
FindResult = Iterable[Problem | str] | Problem | str | None
Find = Callable[[S], FindResult]


def _always(_: Any) -> bool:
    return True


@dataclass(frozen=True)
class Check(Generic[S]):
    """A check: `find` returns what is wrong, or raises it."""

    code: str
    needs: Needs
    about: str
    find: Find[S]
    concerns: Callable[[S], bool] = _always
    """Whether the check applies."""
    promise: str = ""
    """What holds if the check passes, for the plan of a dry run that leaves it for later."""


def run_checks(subject: S, problems: Problems, checks: Sequence[Check[S]]) -> None:
    """Run checks one by one; an error of one does not keep the others from running."""
    for check in checks:
        with problems.collecting(check.code):
            result = check.find(subject) if check.concerns(subject) else None
            for one in [result] if isinstance(result, str | Problem) else result or ():
                key, error = (one.key, one.error) if isinstance(one, Problem) else ("", None)
                text = one.message if isinstance(one, Problem) else one
                problems.found.append(Problem(check.code, text, key, error))


def that_need(checks: Iterable[Check[S]], needs: Collection[Needs]) -> tuple[Check[S], ...]:
    """Return the checks that need one of these."""
    return tuple(check for check in checks if check.needs in needs)


def of_keys(
    rules: Iterable[tuple[str, str, Callable[[Config, Runner], str | None]]],
) -> list[Check[Subject]]:
    """Make checks from rules about keys only."""

    def bound(rule: Callable[[Config, Runner], str | None]) -> Find[Subject]:
        return lambda subject: rule(subject.config, subject.runner)

    return [Check(code, "config", about, bound(rule)) for code, about, rule in rules]


def of_sections(runner: Runner | None = None) -> tuple[Check[Subject], ...]:
    """Return the checks of the sections that a method takes; of all sections without one."""
    taken = SECTIONS if runner is None else [s for s in SECTIONS if s in runner.sections]
    modules = (import_module(name) for section in taken for name in SECTIONS[section])
    return tuple(check for module in modules for check in getattr(module, "CHECKS", ()))


def of_method(runner: Runner) -> tuple[Check[Subject], ...]:
    """Return the checks of a method's runner."""

    def bound(rule: Refusal) -> Find[Subject]:
        return lambda subject: rule(subject.config)

    about = f"what {runner.method} cannot honour"
    return tuple(Check(code, "config", about, bound(r)) for code, r in runner.refusals.items())
