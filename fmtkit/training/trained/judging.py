"""A judge of answers: which of two it prefers, asked in both orders, and the share of pairs that are won."""

import inspect
import operator
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any, Literal

from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OptionError
from fmtkit.core.foreign_calls import OverdueError, within_or_abandoned
from fmtkit.core.secret_keys import beginning
from fmtkit.core.user_modules import describe
from fmtkit.training.config import user_objects
from fmtkit.training.trained.server_judge import ServerJudge

KEY = "--judge"
TRIES = 3
"""Times that a judge is asked for a verdict."""
SECONDS = 300.0
"""Time limit of one call of a function."""
MOST_FAILED = 0.2
"""Share of pairs that may be without a verdict."""
FORMER = frozenset(
    {
        "AllTrueJudge",
        "BaseBinaryJudge",
        "BaseJudge",
        "BasePairwiseJudge",
        "BaseRankJudge",
        "HfPairwiseJudge",
        "OpenAIPairwiseJudge",
        "PairRMJudge",
    }
)
"""Judges of TRL before 1.0, which has none now."""

_SHOWN = 200
"""Characters of an answer that is no verdict, in the message."""

Outcome = Literal["win", "loss", "tie"]
Ask = Callable[[str, str, str], object]
"""Prompt, first and second answer -> 0 or 1, the number of the better one, or "tie"."""


@dataclass(frozen=True)
class Verdicts:
    """What a judge said of pairs: the outcome for the first side of each; None where it gave no verdict."""

    outcomes: tuple[Outcome | None, ...]
    swayed: int
    """Pairs of which it preferred the same place in both orders; they count as ties."""
    retried: int
    equal: int = 0
    """Pairs of two equal answers, of which nothing is asked; they are ties."""

    def figures(self) -> dict[str, float]:
        """Return the win rate, where a tie is half a win, and what it is made of."""
        counts = {name: self.outcomes.count(name) for name in ("win", "tie", "loss")}
        judged = sum(counts.values())
        rate = (counts["win"] + counts["tie"] / 2) / judged if judged else float("nan")
        failed = self.outcomes.count(None)
        return {
            "win_rate": rate,
            **{f"{name}s" if name != "loss" else "losses": n for name, n in counts.items()},
            "equal_answers": self.equal,
            "swayed_by_order": self.swayed,
            "without_verdict": failed,
            "retried": self.retried,
        }


def load(name: str, places: Sequence[Path], model: str | None = None) -> Ask:
    """Return the judge that is named: a function, a class with TRL's former method `judge`, or a URL.

    Raises OptionError for what cannot be loaded, and for a judge that TRL no longer has.
    """
    if name.startswith(("http://", "https://")):
        return ServerJudge(name, model)
    if model is not None:
        raise OptionError(f"--judge-model {model}: it is for a server; {KEY} {name} is none")
    short = name.rpartition(".")[2]
    if short in FORMER and name.partition(".")[0] in {"trl", short}:
        raise OptionError(
            f"{KEY}: {name}: TRL has no judges any more; name a function of your own, "
            "module.function, that takes a prompt and two answers and returns 0, 1 or 'tie'"
        )
    judge = user_objects.load_function(KEY, name, places)
    if not isinstance(judge, type):
        _check_takes(name, judge, ("prompt", "first", "second"))
        return judge
    try:
        made = judge()
    except Exception as error:
        raise OptionError(f"{KEY}: {name}: {describe(error, _file(judge))}") from error
    ask = getattr(made, "judge", None)
    if ask is None:
        if callable(made):
            _check_takes(name, made, ("prompt", "first", "second"))
            return made  # type: ignore[no-any-return]
        raise OptionError(f"{KEY}: {name} has no method judge(prompts, completions)")
    _check_takes(name, ask, ("prompts", "completions"))

    def asked(prompt: str, first: str, second: str) -> object:
        (verdict,) = ask([prompt], [[first, second]])
        return verdict

    return asked


def _check_takes(name: str, judge: Any, arguments: Sequence[str]) -> None:
    """Raise OptionError for a judge that cannot be called as it will be, before any answer is made."""
    asked = ", ".join(arguments)
    if inspect.iscoroutinefunction(judge):
        raise OptionError(f"{KEY}: {name} is a coroutine; name a function that returns a verdict")
    try:
        inspect.signature(judge).bind(*arguments)
    except TypeError as error:
        raise OptionError(f"{KEY}: {name} does not take ({asked}): {error}") from error
    except ValueError:
        # Functions of C say nothing of what they take.
        return


def judged(name: str, ask: Ask, pairs: Sequence[tuple[str, str, str]]) -> Verdicts:
    """Ask for each pair of answers to a prompt in both orders; two equal answers are a tie.

    Raises OptionError as soon as more than `MOST_FAILED` of the pairs are without a verdict.
    """
    outcomes: list[Outcome | None] = []
    swayed = retried = equal = 0
    last = ""
    for prompt, ours, theirs in pairs:
        if ours == theirs:
            equal += 1
            outcomes.append("tie")
            continue
        places: list[int | str | None] = []
        for first, second in ((ours, theirs), (theirs, ours)):
            verdict, tries, fault = _verdict(ask, prompt, first, second)
            retried += tries - 1
            last = fault or last
            places.append(verdict)
            if verdict is None:
                break
        swayed += places in ([0, 0], [1, 1])
        outcomes.append(_outcome(places))
        failed = outcomes.count(None)
        if failed > MOST_FAILED * len(pairs):
            raise OptionError(
                f"{KEY}: {name} gave no verdict on {failed} of the first {len(outcomes)} pairs (of "
                f"{len(pairs)}), asked {TRIES} times each; the last: {last}"
            )
    return Verdicts(tuple(outcomes), swayed, retried, equal)


def _outcome(places: Sequence[object]) -> Outcome | None:
    if None in places:
        return None
    if places == [0, 1]:
        return "win"
    return "loss" if places == [1, 0] else "tie"


def _verdict(ask: Ask, prompt: str, first: str, second: str) -> tuple[int | str | None, int, str]:
    """Return a verdict, how often it was asked for, and what was wrong with the last that is none."""
    fault = ""
    for tries in range(1, TRIES + 1):
        try:
            said = _asked(ask, prompt, first, second)
        except OverdueError:
            fault = f"it did not answer within {SECONDS:g} s"
            continue
        # A function that ends the process would end it without a word.
        except (Exception, SystemExit) as error:  # noqa: BLE001 - counted, and told with the share
            fault = describe(error, _file(ask))
            continue
        verdict = _read(said)
        if verdict is not None:
            return verdict, tries, ""
        fault = f"it answered {beginning(repr(said), _SHOWN)}, not 0, 1 or 'tie'"
    return None, TRIES, fault


def _asked(ask: Ask, prompt: str, first: str, second: str) -> object:
    """Ask within the time limit; what a function prints is no result."""
    if isinstance(ask, ServerJudge):
        return ask(prompt, first, second)
    with redirect_stdout(sys.stderr):
        return within_or_abandoned(SECONDS, partial(ask, prompt, first, second))


def _read(said: object) -> int | str | None:
    """Return the verdict that was said; None where it is none."""
    if isinstance(said, str):
        return "tie" if said.strip().lower() == "tie" else None
    try:
        # Also a number of NumPy's.
        number = operator.index(said)  # type: ignore[arg-type]
    except TypeError:
        return None
    return number if number in (0, 1) else None


def _file(thing: Any) -> str:
    module = getattr(thing, "__globals__", {})
    return str(module.get("__file__", ""))
