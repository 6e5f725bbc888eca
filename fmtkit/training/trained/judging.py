"""A judge of answers: which of two it prefers, asked in both orders, and the share of pairs that are won."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fmtkit.core.errors import OptionError
from fmtkit.core.user_modules import describe
from fmtkit.training.config import user_objects
from fmtkit.training.trained.server_judge import ServerJudge

KEY = "--judge"
TRIES = 3
"""Times that a judge is asked for a verdict."""
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

    def figures(self) -> dict[str, float]:
        """Return the win rate, where a tie is half a win, and what it is made of."""
        counts = {name: self.outcomes.count(name) for name in ("win", "tie", "loss")}
        judged = sum(counts.values())
        rate = (counts["win"] + counts["tie"] / 2) / judged if judged else float("nan")
        failed = self.outcomes.count(None)
        return {
            "win_rate": rate,
            **{f"{name}s" if name != "loss" else "losses": n for name, n in counts.items()},
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
        return judge
    try:
        made = judge()
    except Exception as error:
        raise OptionError(f"{KEY}: {name}: {describe(error, _file(judge))}") from error
    ask = getattr(made, "judge", None)
    if ask is None:
        if callable(made):
            return made  # type: ignore[no-any-return]
        raise OptionError(f"{KEY}: {name} has no method judge(prompts, completions)")

    def asked(prompt: str, first: str, second: str) -> object:
        (verdict,) = ask([prompt], [[first, second]])
        return verdict

    return asked


def judged(name: str, ask: Ask, pairs: Sequence[tuple[str, str, str]]) -> Verdicts:
    """Ask for each pair of answers to a prompt in both orders.

    Raises OptionError where more than `MOST_FAILED` of the pairs are without a verdict.
    """
    outcomes: list[Outcome | None] = []
    swayed = retried = 0
    last = ""
    for prompt, ours, theirs in pairs:
        places: list[int | str | None] = []
        for first, second in ((ours, theirs), (theirs, ours)):
            verdict, tries, fault = _verdict(ask, prompt, first, second)
            retried += tries - 1
            last = fault or last
            places.append(verdict)
        swayed += places in ([0, 0], [1, 1])
        outcomes.append(_outcome(places))
    failed = outcomes.count(None)
    if failed > MOST_FAILED * len(pairs):
        raise OptionError(
            f"{KEY}: {name} gave no verdict on {failed} of {len(pairs)} pairs, asked {TRIES} times each; "
            f"the last: {last}"
        )
    return Verdicts(tuple(outcomes), swayed, retried)


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
            said = ask(prompt, first, second)
        except Exception as error:  # noqa: BLE001 - counted, and told with the share
            fault = describe(error, _file(ask))
            continue
        if said == "tie" or (isinstance(said, int) and said in (0, 1)):
            return said, tries, ""
        fault = f"it answered {said!r}, not 0, 1 or 'tie'"
    return None, TRIES, fault


def _file(thing: Any) -> str:
    module = getattr(thing, "__globals__", {})
    return str(module.get("__file__", ""))
