"""Checks of a run: what a check is, how checks are run, and those of a method or of a section.

A check of a configuration names the keys that it is about: a plan runs only those whose keys are set.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import field, replace
from functools import wraps
from typing import Any, Generic, Literal, TypeVar

from fmtkit.core import section
from fmtkit.core.data_classes import dataclass
from fmtkit.core.runner import Refusal, Runner, shipped
from fmtkit.training.config.config import Config, Keys
from fmtkit.training.config.keys import is_nameable
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
Lacking = Literal["evaluates"]
"""A field of a runner that is false for methods of which something cannot be asked."""
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
    keys: Keys | None = None
    """The keys that a check of a configuration is about: without one of them it finds nothing."""
    lacking: Lacking | None = None
    """What a method must lack for the check to apply."""


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


def check_config(
    code: str,
    needs: Needs,
    about: str,
    *,
    section: str = "",
    keys: Keys | None = None,
    lacking: Lacking | None = None,
) -> Callable[[F], F]:
    """Declare that a function of a `Plan` checks it while it is made; it returns what is wrong, or raises it.

    Args:
        code: The name of its problems, which no other check has.
        needs: What it looks at besides the keys.
        about: What it finds, for the page of checks.
        section: The section whose keys it is about, if it is for methods that take that section.
        keys: The keys that it is about, as `Config.sets` takes them: it is run where one of them is set; in
            every plan where None.
        lacking: A field of the runner, if it is only for methods that lack what the field says.
    """

    def declare(find: F) -> F:
        _OF_CONFIG.append(
            Check(code, needs, about, find, section=section, keys=keys, lacking=lacking)
        )
        return find

    return declare


Rule = Callable[[Config, Runner], "str | Iterator[str] | None"]
"""Returns why keys cannot be honoured and what to do instead; None or nothing if they can."""
R = TypeVar("R", bound=Rule)


def refuse(
    code: str, about: str, *, keys: Keys, lacking: Lacking | None = None
) -> Callable[[R], R]:
    """Declare a rule about keys alone; the arguments are those of `check_config`."""

    def declare(rule: R) -> R:
        @check_config(code, "config", about, keys=keys, lacking=lacking)
        @wraps(rule)
        def find(plan: Plan) -> str | Iterator[str] | None:
            return rule(plan.config, plan.runner)

        return rule

    return declare


Tell = Callable[[Plan], Iterable[str]]


@dataclass(frozen=True)
class Note:
    """What a plan says of keys that are set, as they are read: `tell` returns it."""

    tell: Tell
    keys: Keys
    unless: Keys


_NOTES: list[Note] = []
T = TypeVar("T", bound=Tell)


def note(*keys: str | tuple[str, object], unless: Keys = ()) -> Callable[[T], T]:
    """Declare that a function of a `Plan` says what the user should know of these keys.

    Args:
        keys: The keys that it is about, as `Config.sets` takes them: it is called where one of them is set.
        unless: Keys with one of which there is nothing to say.
    """

    def declare(tell: T) -> T:
        _NOTES.append(Note(tell, keys, unless))
        return tell

    return declare


def notes() -> list[Note]:
    """Return the notes that are declared: those of a module in its order, the modules in one of their own."""
    return sorted(_NOTES, key=lambda one: one.tell.__module__)


def add_notes(plan: Plan) -> None:
    """Add the notes on the keys that are set to those of a plan's arguments."""
    for one in notes():
        if is_due(plan.config, one.keys, one.unless):
            plan.arguments.notes += one.tell(plan)


def is_due(config: Config, keys: Keys | None, unless: Keys = ()) -> bool:
    """Return whether what is about some keys has something to look at."""
    return (keys is None or config.sets(*keys)) and not config.sets(*unless)


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


def of_plan(plan: Plan) -> list[Check[Plan]]:
    """Return the checks that are declared for the keys of a plan and for its method."""
    every = (*of_config(plan.runner), *of_method(plan.runner))
    return [check for check in every if is_due(plan.config, check.keys)]


def of_config(runner: Runner | None = None) -> list[Check[Plan]]:
    """Return the checks of a plan that are declared, for a method's sections, or for all without one."""
    taken = _taken(runner)
    found = (
        check
        for check in _OF_CONFIG
        if (not check.section or check.section in taken)
        and not (check.lacking and runner and getattr(runner, check.lacking))
    )
    return _in_order(_of_section(check) if check.section else check for check in found)


def _of_section(check: Check[Plan]) -> Check[Plan]:
    """Return a check of a section whose errors name the section's package; its keys must be there."""
    if section.is_added(check.section):
        named = (one if isinstance(one, str) else one[0] for one in check.keys or ())
        for name in named:
            if not is_nameable(name):
                why = f"its check {check.code} is about {name!r}, which is no key"
                raise section.unusable(check.section, why)
    return replace(check, find=section.guarded(check.section, check.find))


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
    if runner is not None and not runner.sections:
        return set()
    taken = [one for one in section.every() if runner is None or one.name in runner.sections]
    for one in taken:
        one.load_modules()
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
