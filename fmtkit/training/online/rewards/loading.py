"""Loading of a run's reward functions: checked, limited in time, cut into groups, and run on workers."""

import inspect
import warnings
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from fmtkit.core.errors import OptionError
from fmtkit.training.config import user_objects
from fmtkit.training.online.failed_samples import Failures
from fmtkit.training.online.rewards.call_limits import RewardOptions, read_options
from fmtkit.training.online.rewards.calls import Called, check_columns
from fmtkit.training.online.rewards.entries import KEY, Entry, Options, check_weights, make
from fmtkit.training.online.rewards.entries import read as read_entries
from fmtkit.training.online.rewards.functions import AsyncReward, Cutting, Lengths, Reward, Waited
from fmtkit.training.online.rewards.pool import Pool, Spec, spec_of
from fmtkit.training.online.rewards.verdicts import OneBatch, Value
from fmtkit.training.planning.job import Job


class Rewards:
    """The rewards of a run. `functions` go to any trainer of TRL as its `reward_funcs`."""

    def __init__(
        self,
        named: Sequence[Entry | Callable[..., Any]],
        options: RewardOptions,
        *,
        judged: bool = True,
    ) -> None:
        """Load every function; `judged`: batches for which all of them say None are counted.

        Raises OptionError for what cannot be loaded.
        """
        self.options = options
        self._cutting = Cutting(options.groups)
        self.failures = Failures()
        self._named = list(named)
        self.labels = labels = [
            item.label if isinstance(item, Entry) else _name(item) for item in named
        ]
        models = any(isinstance(item, Entry) and item.model for item in named)
        self.judge = judge = OneBatch(labels) if judged and not models else None
        self._members = [
            self._member(index, item, label, judge)
            for index, (item, label) in enumerate(zip(named, labels, strict=True))
        ]
        _tell_apart([m for m in self._members if not isinstance(m, str)], labels)
        self._pool = self._spread() if options.workers > 1 else None

    def end_at_a_failure(self) -> None:
        """Let a function that fails end the run, where the trainer cannot leave a sample out."""
        for member in self._members:
            if not isinstance(member, str):
                member.failures = None
        if self.judge is not None:
            self.judge.is_fatal = True

    def log_lengths(self, ends: Collection[int]) -> None:
        """Let the functions log how long answers are, and whether they end with one of these tokens."""
        members = [member for member in self._members if not isinstance(member, str)]
        lengths = Lengths(ends, len(members))
        for member in members:
            member.lengths = lengths

    @property
    def functions(self) -> list[Any]:
        """Callables and, for reward models, folders or hub ids; a new list, since TRL changes it."""
        return list(self._members)

    @property
    def waited_for(self) -> list[Any]:
        """The same for trainers that call coroutine functions like others, as online DPO's does."""
        return [Waited(m) if isinstance(m, AsyncReward) else m for m in self._members]

    @property
    def names(self) -> list[str]:
        """The names that TRL's metrics show."""
        return [
            m.rstrip("/").split("/")[-1] if isinstance(m, str) else m.__name__
            for m in self._members
        ]

    @property
    def group_size(self) -> int | None:
        """Completions per prompt at the moment; None if groups are identified by their prompts."""
        size = self._cutting.group_size
        return size() if callable(size) else size

    @group_size.setter
    def group_size(self, size: int | Callable[[], int] | None) -> None:
        self._cutting.group_size = size

    def check_columns(self, columns: Collection[str]) -> None:
        """Raise OptionError for a function that needs a column that the rows do not have."""
        for member in self._members:
            if not isinstance(member, str):
                check_columns(member.called, columns)

    def score(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        completion_ids: Sequence[Any] | None = None,
        **columns: Any,
    ) -> list[list[Value]]:
        """Return the rewards of each function, without a trainer; reward models cannot be asked."""
        models = [member for member in self._members if isinstance(member, str)]
        if models:
            raise OptionError(f"{KEY}: {models[0]} is a reward model, which a trainer runs")
        return [f(prompts, completions, completion_ids, **columns) for f in self.waited_for]

    def close(self) -> None:
        """Stop the workers."""
        if self._pool is not None:
            self._pool.close()

    def _member(
        self, index: int, item: Entry | Callable[..., Any], label: str, judged: OneBatch | None
    ) -> Reward | AsyncReward | str:
        if isinstance(item, Entry) and item.model:
            return item.model
        function, options = load_entry(item) if isinstance(item, Entry) else (item, {})
        limits = self.options
        called = Called(label, function, options, limits.seconds, limits.retries, limits.masks)
        kind = AsyncReward if _is_async(function) else Reward
        member = kind(_name(function), index, called, self._cutting, judged)
        member.failures = self.failures
        return member

    def _spread(self) -> Pool | None:
        """Start the workers for all functions that can run there."""
        members = [m for m in self._members if isinstance(m, Reward)]
        specs: dict[int, Spec] = {}
        for member in members:
            item = self._named[member.index]
            spec = spec_of(item, member.called)
            if spec is None:
                warnings.warn(
                    f"reward {member.called.label} cannot be pickled: it runs in the training "
                    "process, not in reward_num_workers",
                    stacklevel=2,
                )
                continue
            specs[member.index] = spec
        if not specs:
            return None
        pool = Pool(self.options, specs, {m.index: m.called for m in members})
        for member in members:
            member.pool = pool if member.index in specs else None
        return pool


def load_rewards(
    value: object,
    places: Sequence[Path],
    *,
    weights: object = None,
    options: RewardOptions | None = None,
) -> Rewards:
    """Load what `trl.reward_funcs` names; a list may hold callables as well.

    Raises OptionError for what cannot be loaded, and if there are not as many weights.
    """
    listed = value if isinstance(value, (list, tuple)) else [] if value is None else [value]
    named: list[Entry | Callable[..., Any]] = []
    for item in listed:
        named += [item] if callable(item) else read_entries([item], places)
    check_weights(weights, named)
    return Rewards(named, options or RewardOptions())


def rewards_of(job: Job) -> Rewards:
    """Load the rewards that a job names."""
    section = job.section("rl")
    return load_rewards(
        section.get("reward_funcs"),
        [Path(place) for place in job.places],
        weights=job.reward_weights,
        options=read_options(section),
    )


def load_entry(entry: Entry) -> tuple[Callable[..., Any], Options]:
    """Load what an entry names, as what is called and its options."""
    return make(user_objects.load_function(KEY, entry.path, entry.places), entry)


def _name(function: Any) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def _is_async(function: Any) -> bool:
    of_class = inspect.getattr_static(type(function), "__call__", None)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(of_class)


def _tell_apart(members: Sequence[Reward | AsyncReward], labels: Sequence[str]) -> None:
    """Give functions of the same name distinct ones: TRL would average their metrics."""
    names = [member.__name__ for member in members]
    for member in members:
        if names.count(member.__name__) == 1:
            continue
        label = labels[member.index]
        again = [m for m in members if labels[m.index] == label and m.index < member.index]
        member.__name__ = f"{label}_{len(again) + 1}" if again else label
