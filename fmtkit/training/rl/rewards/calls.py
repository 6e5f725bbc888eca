"""One call of a reward function: its arguments, its time limit, and what it raised in words."""

import inspect
import traceback
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from fmtkit.errors import OptionError, near_match
from fmtkit.foreign_calls import OverdueError, within
from fmtkit.training.rl.rewards.batch import CONTEXT, Batch
from fmtkit.training.rl.rewards.entries import parameters
from fmtkit.training.rl.rewards.verdicts import RewardError, Value, checked

_OURS = frozenset({"prompts", "completions", "completion_ids"})
_SILENT: dict[str, Callable[..., None]] = {
    "log_extra": lambda *_, **__: None,
    "log_metric": lambda *_, **__: None,
}


class _RaisedError(Exception):
    """Hold what a user's function raised, whatever it is."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(frozen=True)
class Called:
    """A reward function, the name that the configuration gave it, and the seconds it may take."""

    label: str
    function: Callable[..., Any]
    options: Mapping[str, Any]
    seconds: float

    def __call__(self, batch: Batch) -> list[Value]:
        """Return the rewards of a batch; raise RewardError for whatever is wrong."""
        try:
            returned = self._returned(batch)
        except OverdueError as error:
            raise self.overdue(len(batch), error.where) from error
        except _RaisedError as found:
            row = self._row(batch, type(found.error))
            raise self.raised(found.error, batch, row) from found.error
        return checked(returned, len(batch), self.label, batch.first)

    def _returned(self, batch: Batch) -> Any:
        """Return what the function does; raise _RaisedError for what it raises itself."""
        try:
            return within(self.seconds, lambda: self._called(batch))
        except (OverdueError, RewardError):
            raise
        except Exception as error:
            raise _RaisedError(error) from error

    def _called(self, batch: Batch) -> Any:
        returned = self.function(**self.arguments(batch))
        # What a generator raises, it raises when it is asked.
        return list(returned) if inspect.isgenerator(returned) else returned

    def arguments(self, batch: Batch) -> dict[str, Any]:
        """Return what the function is called with: all, or what it names where it takes no more."""
        given = {**batch.arguments(), **self.options}
        names, takes_all = parameters(self.function)
        return given if takes_all else {n: v for n, v in given.items() if n in names}

    def overdue(self, count: int, where: TracebackType | None = None) -> RewardError:
        """Return the error of a call that took too long."""
        place = self._place(where) if where is not None else ""
        return RewardError(
            f"reward {self.label} had not returned after {self.seconds:g} seconds for {count} "
            f"completions{place}; give what it waits for a time limit of its own, or set "
            "trl.reward_timeout"
        )

    def raised(self, error: BaseException, batch: Batch, row: int | None) -> RewardError:
        """Return the error of a call that raised, with the row that it raised for."""
        of = f"one of {len(batch)} completions"
        if row is not None:
            text = shown(batch.completions[row])
            of = f"completion {batch.first + row} ({text})"
        message = str(error) or "no message"
        return RewardError(
            f"reward {self.label} raised {type(error).__name__}: {message}"
            f"{self._place(error.__traceback__)} for {of}; correct it, or return None where it "
            "does not apply (`fmtkit rewards test` runs it without a model)",
            _trace(error, self._file()),
        )

    def _row(self, batch: Batch, kind: type[Exception]) -> int | None:
        """Find the row that a call raises for, by halves; None where no smaller part raises so."""
        quiet = {name: _SILENT.get(name, value) for name, value in batch.context.items()}
        low, high = 0, len(batch)
        while high - low > 1:
            middle = (low + high) // 2
            for start, stop in ((low, middle), (middle, high)):
                part = batch.part(start, stop)
                if self._raises(replace(part, context=quiet), kind):
                    low, high = start, stop
                    break
            else:
                return None
        return low

    def _raises(self, batch: Batch, kind: type[Exception]) -> bool:
        """Tell whether a part raises what the whole did; few rows may also be wrong in another way."""
        try:
            self._returned(batch)
        except OverdueError:
            return False
        except _RaisedError as found:
            return isinstance(found.error, kind)
        return False

    def _file(self) -> str | None:
        try:
            return inspect.getsourcefile(inspect.unwrap(self.function))
        except TypeError:
            return inspect.getsourcefile(type(self.function))

    def _place(self, where: TracebackType | None) -> str:
        file = self._file()
        frames = traceback.extract_tb(where)
        own = [frame for frame in frames if frame.filename == file] or frames
        if not own:
            return ""
        return f" ({Path(own[-1].filename).name}:{own[-1].lineno}: {own[-1].line})"


def check_columns(called: Called, columns: Collection[str]) -> None:
    """Raise OptionError if the rows lack a column that the function demands, or have one too many."""
    taken = sorted({*_OURS, *CONTEXT}.intersection(columns) - {"completion_ids"})
    if taken:
        raise OptionError(
            f"column {taken[0]!r} has the name of an argument of reward functions; rename it"
        )
    own_check = getattr(called.function, "check_columns", None)
    if own_check is not None:
        own_check(columns)
    given = {*_OURS, *CONTEXT, "environments", *called.options, *columns}
    found = inspect.signature(called.function).parameters.values()
    for parameter in found:
        is_named = parameter.kind in {parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY}
        if not is_named or parameter.default is not parameter.empty or parameter.name in given:
            continue
        near = near_match(parameter.name, columns)
        advice = f"did you mean {near!r}?" if near else f"they have {', '.join(sorted(columns))}"
        raise OptionError(
            f"reward {called.label} takes {parameter.name!r}, which the rows do not have; {advice}"
        )


def shown(completion: Any) -> str:
    """Return the beginning of a completion, to recognise it by."""
    last = completion[-1] if isinstance(completion, list) and completion else completion
    text = str(last.get("content") if isinstance(last, Mapping) else last)
    return repr(text if len(text) <= 40 else text[:37] + "...")


def _trace(error: BaseException, file: str | None) -> str:
    """Return the traceback from the user's file on."""
    frames = traceback.extract_tb(error.__traceback__)
    first = next((i for i, frame in enumerate(frames) if frame.filename == file), 0)
    lines = traceback.format_list(frames[first:])
    return "".join([*lines, *traceback.format_exception_only(error)])
