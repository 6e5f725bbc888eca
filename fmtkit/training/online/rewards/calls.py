"""One call of a reward function: its arguments, its time limit, and the message of what it raised."""

import inspect
import time
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OptionError, near_match
from fmtkit.core.foreign_calls import OverdueError, in_parts, retried, within
from fmtkit.training.online.rewards.batch import CONTEXT, Batch, recording, replay
from fmtkit.training.online.rewards.entries import is_needed, parameters
from fmtkit.training.online.rewards.verdicts import FinalRewardError, RewardError, Value, checked

_OURS = frozenset({"prompts", "completions", "completion_ids"})
_SILENT: dict[str, Callable[..., None]] = {
    "log_extra": lambda *_, **__: None,
    "log_metric": lambda *_, **__: None,
}


class _RaisedError(Exception):
    """Holds what a user's function raised."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


_MASKED = (RewardError, OverdueError, _RaisedError)
"""Errors that count as a failed sample where samples may fail; any other is a bug of fmtkit."""


@dataclass(frozen=True)
class Scored:
    """Rewards of a batch: None and the reason for each place that failed, and the seconds of each."""

    values: list[Value]
    failed: dict[int, str]
    seconds: list[float]

    def add(
        self, values: Sequence[Value], failed: Mapping[int, str], seconds: Sequence[float]
    ) -> None:
        """Append a part; its places are relative to the part."""
        self.values.extend(values)
        self.failed.update(failed)
        self.seconds.extend(seconds)

    @staticmethod
    def joined(parts: Sequence["Scored"]) -> "Scored":
        """Return adjacent parts as one."""
        out = Scored([], {}, [])
        for one in parts:
            begin = len(out.values)
            failed = {begin + place: reason for place, reason in one.failed.items()}
            out.add(one.values, failed, one.seconds)
        return out

    @staticmethod
    def lost(count: int, reason: str, started: float) -> "Scored":
        """Return that many samples that failed for the same reason."""
        return Scored([None] * count, dict.fromkeys(range(count), reason), _each(started, count))


@dataclass(frozen=True)
class Called:
    """A reward function, its name in the configuration, and its time limit in seconds."""

    label: str
    function: Callable[..., Any]
    options: Mapping[str, Any]
    seconds: float
    retries: int = 0
    masks: bool = False
    """Whether single samples may fail; a function that needs the full batch fails for all of it."""

    def __call__(self, batch: Batch) -> list[Value]:
        """Return the rewards of a batch; raise RewardError for any error."""
        try:
            returned = self._tried(batch, self.seconds, self.retries)
        except OverdueError as error:
            raise self.overdue(len(batch), error.where) from error
        except _RaisedError as raised:
            row = self._row(batch, type(raised.error))
            raise self.raised(raised.error, batch, row) from raised.error
        return checked(returned, len(batch), self.label, batch.first)

    def scored(self, batch: Batch) -> Scored:
        """Return the rewards of a batch with what failed in it and how long it took.

        Raises RewardError where nothing may fail.
        """
        started = time.perf_counter()
        if not self.masks:
            values = self(batch)
            return Scored(values, {}, _each(started, len(batch)))
        out = Scored([], {}, [])
        call = partial(self._part, batch)
        for part in in_parts(range(len(batch)), call, self.seconds, whole=self.least(batch)):
            rows = batch.part(part.rows.start, part.rows.stop)
            error = part.error
            if isinstance(error, FinalRewardError) or not isinstance(error, (*_MASKED, type(None))):
                raise error
            values = part.value if part.value is not None else [None] * len(rows)
            failed = {} if error is None else dict.fromkeys(part.rows, self._reason(error, rows))
            out.add(values, failed, _each(started, len(rows)))
            started = time.perf_counter()
        return out

    def least(self, batch: Batch) -> int:
        """Return the least number of completions of a call."""
        return len(batch) if getattr(self.function, "needs_full_batch", False) else 1

    def _part(self, batch: Batch, rows: range, seconds: float) -> list[Value]:
        """Score some rows; what is logged for each answer is left out if not all are scored together."""
        part = batch.part(rows.start, rows.stop)
        ends = len(rows) in {len(batch), self.least(batch)}
        context, logged = recording(part.context)
        quiet = replace(part, context=context)
        returned = self._tried(quiet, seconds, self.retries if ends else 0)
        values = checked(returned, len(part), self.label, part.first)
        is_complete = len(rows) == len(batch)
        replay(batch.context, [one for one in logged if is_complete or one[0] != "log_extra"])
        return values

    def _reason(self, error: Exception, rows: Batch) -> str:
        if isinstance(error, OverdueError):
            return str(self.overdue(len(rows), error.where))
        if isinstance(error, _RaisedError):
            return _one_reason(self.label, error.error, self._place(error.error.__traceback__))
        return str(error)

    def _tried(self, batch: Batch, seconds: float, retries: int) -> Any:
        return retried(partial(self._returned, batch, seconds), retries, final=(FinalRewardError,))

    def _returned(self, batch: Batch, seconds: float) -> Any:
        """Return the function's result; raise _RaisedError for an error that it raises."""
        try:
            return within(seconds, lambda: self._called(batch))
        except (OverdueError, RewardError):
            raise
        except Exception as error:
            raise _RaisedError(error) from error

    def _called(self, batch: Batch) -> Any:
        returned = self.function(**self.arguments(batch))
        # A generator raises its exceptions only when it is consumed.
        return list(returned) if inspect.isgenerator(returned) else returned

    def arguments(self, batch: Batch) -> dict[str, Any]:
        """Return the arguments of a call: all, or those that the function names if it takes no others."""
        given = {**batch.arguments(), **self.options}
        names, takes_all = parameters(self.function)
        return given if takes_all else {n: v for n, v in given.items() if n in names}

    def overdue(self, count: int, where: TracebackType | None = None) -> RewardError:
        """Return the error of a call that exceeded its time limit."""
        place = self._place(where) if where is not None else ""
        return RewardError(
            f"reward {self.label} had not returned after {self.seconds:g} seconds for {count} "
            f"completions{place}; set a time limit on what it waits for, or set "
            "trl.reward_timeout"
        )

    def raised(self, error: BaseException, batch: Batch, row: int | None) -> RewardError:
        """Return the error for an exception of a call, with the row that caused it."""
        of = f"one of {len(batch)} completions"
        if row is not None:
            text = excerpt(batch.completions[row])
            of = f"completion {batch.first + row} ({text})"
        message = str(error) or "no message"
        return RewardError(
            f"reward {self.label} raised {type(error).__name__}: {message}"
            f"{self._place(error.__traceback__)} for {of}; correct it, or return None where it "
            "does not apply (`fmtkit rewards test` runs it without a model)",
            _trace(error, self._file()),
        )

    def _row(self, batch: Batch, kind: type[Exception]) -> int | None:
        """Find the row that a call raises for, by bisection; None if no smaller part raises the same."""
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
        """Return whether a part raises what the full batch did; few rows may also fail in a different way."""
        try:
            self._returned(batch, self.seconds)
        except OverdueError:
            return False
        except _RaisedError as raised:
            return isinstance(raised.error, kind)
        return False

    def _file(self) -> str | None:
        try:
            return inspect.getsourcefile(inspect.unwrap(self.function))
        except TypeError:
            return inspect.getsourcefile(type(self.function))

    def _place(self, where: TracebackType | None) -> str:
        file = self._file()
        frames = traceback.extract_tb(where)
        in_file = [frame for frame in frames if frame.filename == file] or frames
        if not in_file:
            return ""
        return f" ({Path(in_file[-1].filename).name}:{in_file[-1].lineno}: {in_file[-1].line})"


def check_columns(called: Called, columns: Collection[str]) -> None:
    """Raise OptionError if a column that the function needs is missing, or one has an argument's name."""
    own_check = getattr(called.function, "check_columns", None)
    if own_check is not None:
        try:
            own_check(columns)
        except OptionError as error:
            raise OptionError(f"reward {called.label}: {error}") from error
    declared = inspect.signature(called.function).parameters.values()
    needed = (parameter.name for parameter in declared if is_needed(parameter))
    check_needed(called.label, needed, called.options, columns)


def check_needed(
    label: str, needed: Iterable[str], options: Collection[str], columns: Collection[str]
) -> None:
    """Raise OptionError if nothing gives an argument that a function needs, or a column has one's name."""
    taken = sorted({*_OURS, *CONTEXT}.intersection(columns) - {"completion_ids"})
    if taken:
        raise OptionError(
            f"column {taken[0]!r} has the name of an argument of reward functions; rename it"
        )
    given = {*_OURS, *CONTEXT, "environments", *options, *columns}
    missing = next((name for name in needed if name not in given), None)
    if missing is None:
        return
    near = near_match(missing, {*_OURS, *columns})
    advice = f"did you mean {near!r}?" if near else f"they have {', '.join(sorted(columns))}"
    raise OptionError(f"reward {label} takes {missing!r}, which the rows do not have; {advice}")


def _each(started: float, count: int) -> list[float]:
    """Return the seconds since then, divided by the number of samples."""
    return [(time.perf_counter() - started) / max(1, count)] * count


def _one_reason(label: str, error: BaseException, place: str) -> str:
    return f"reward {label} raised {type(error).__name__}: {error or 'no message'}{place}"


def excerpt(completion: Any) -> str:
    """Return the beginning of a completion, for messages."""
    last = completion[-1] if isinstance(completion, list) and completion else completion
    text = str(last.get("content") if isinstance(last, Mapping) else last)
    return repr(text if len(text) <= 40 else text[:37] + "...")


def _trace(error: BaseException, file: str | None) -> str:
    """Return the traceback from the user's file on."""
    frames = traceback.extract_tb(error.__traceback__)
    first = next((i for i, frame in enumerate(frames) if frame.filename == file), 0)
    lines = traceback.format_list(frames[first:])
    return "".join([*lines, *traceback.format_exception_only(error)])
