"""Checks of a run: what a check is, how checks are run, and those of a method or of a section."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, TypeVar

from fmtkit.core import section
from fmtkit.core.runner import Refusal, Runner, shipped
from fmtkit.training.config.problems import Problem, Problems
from fmtkit.training.planning.job import Source
from fmtkit.training.planning.run_plan import Plan
from fmtkit.training.planning.types import FirstRows

Needs = Literal["config", "files", "modules", "device", "servers", "data"]

NEEDS: dict[Needs, str] = {
    "config": "only the keys",
    "files": "models, data files, templates and folders",
    "modules": "the user's Python modules",
    "device": "GPUs and packages of the training machine",
    "servers": "a vLLM server, or those of an environment",
    "data": "the converted rows",
}


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
F = TypeVar("F", bound=Callable[..., FindResult])


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
    section: str = ""
    """The section of a configuration that a method must take for the check to apply; any where empty."""


Say = Callable[[Plan], str | None]


@dataclass(frozen=True)
class Advice:
    """What is said in place of an error of the trainer's source, which alone decides if there is one."""

    words: str
    """Words of that error's message."""
    code: str
    say: Say
    about: str = ""
    """What the error is about, for the page of checks, if no check has this code too."""
    section: str = ""


_OF_CONFIG: list[Check[Plan]] = []
_ADVICE: list[Advice] = []
_OF_RUN: list[Check[Run]] = []


def check_config(code: str, needs: Needs, about: str, *, section: str = "") -> Callable[[F], F]:
    """Declare that a function of a `Plan` checks it while it is made; it returns what is wrong, or raises it.

    Args:
        code: The name of its problems, which no other check has.
        needs: What it looks at besides the keys.
        about: What it finds, for the page of checks.
        section: The section whose keys it is about, if it is for methods that take that section.
    """

    def declare(find: F) -> F:
        _OF_CONFIG.append(Check(code, needs, about, find, section=section))
        return find

    return declare


def advise(
    code: str, words: str, *, about: str = "", section: str = ""
) -> Callable[[Callable[[Plan], str | None]], Say]:
    """Declare that a function says what an error of the trainer's source means, or None for the error itself.

    Args:
        code: The name of the problem.
        words: Words of the error's message, as TRL or transformers write it.
        about: What it is about, for the page of checks; empty where a check has the same code.
        section: The section whose keys it is about, if it is for methods that take that section.
    """

    def declare(say: Say) -> Say:
        _ADVICE.append(Advice(words, code, say, about, section))
        return say

    return declare


def check_run(
    code: str,
    needs: Needs,
    about: str,
    *,
    concerns: Callable[[Run], bool] = _always,
    promise: str = "",
) -> Callable[[F], F]:
    """Declare that a function of a `Run` checks every complete plan, or its rows, before it trains.

    Args:
        code: The name of its problems, which no other check has.
        needs: What it looks at besides the keys.
        about: What it finds, for the page of checks.
        concerns: Whether the check applies to a run.
        promise: What holds if it passes, where a dry run leaves it for later.
    """

    def declare(find: F) -> F:
        _OF_RUN.append(Check(code, needs, about, find, concerns, promise))
        return find

    return declare


def of_config(runner: Runner | None = None) -> list[Check[Plan]]:
    """Return the checks of a plan that are declared, for a method's sections, or for all without one."""
    taken = _taken(runner)
    found = (check for check in _OF_CONFIG if not check.section or check.section in taken)
    return _in_order(
        replace(check, find=section.guarded(check.section, check.find)) if check.section else check
        for check in found
    )


def advice(runner: Runner | None = None) -> list[Advice]:
    """Return the advice on errors of a method's trainer, its own first; that of all methods without one.

    The rest is in an order that no import decides.
    """
    runners = shipped() if runner is None else (runner,)
    own = [
        Advice(words, code, _of_config(say), f"what {one.method} cannot honour")
        for one in runners
        for code, (words, say) in one.advice.items()
    ]
    taken = _taken(runner)
    return [
        *own,
        *(
            replace(one, say=section.guarded(one.section, one.say)) if one.section else one
            for one in sorted(_ADVICE, key=lambda one: (one.code, one.words))
            if not one.section or one.section in taken
        ),
    ]


def _taken(runner: Runner | None) -> set[str]:
    """Return the sections that a method takes, or all without one; their modules are loaded."""
    taken = [one for one in section.every() if runner is None or one.name in runner.sections]
    for one in taken:
        one.loaded()
    return {one.name for one in taken}


def of_run(needs: Collection[Needs] = tuple(NEEDS)) -> list[Check[Run]]:
    """Return the checks of a complete plan that are declared and need one of these."""
    return _in_order(one for one in _OF_RUN if one.needs in needs)


def _in_order(checks: Iterable[Check[S]]) -> list[Check[S]]:
    """Return checks in an order that no import decides."""
    return sorted(checks, key=lambda one: (list(NEEDS).index(one.needs), one.code))


def run_checks(subject: S, problems: Problems, checks: Iterable[Check[S]]) -> None:
    """Run checks one by one; an error of one does not keep the others from running."""
    for check in checks:
        with problems.collecting(check.code):
            result = check.find(subject) if check.concerns(subject) else None
            for one in [result] if isinstance(result, str | Problem) else result or ():
                found = one if isinstance(one, Problem) else Problem("", one)
                problems.found.append(replace(found, code=found.code or check.code))


def of_method(runner: Runner) -> tuple[Check[Plan], ...]:
    """Return the checks of a method's runner."""
    about = f"what {runner.method} cannot honour"
    return tuple(Check(code, "config", about, _of_config(r)) for code, r in runner.refusals.items())


def _of_config(rule: Refusal) -> Say:
    return lambda plan: rule(plan.config)
