"""Whether the rows have the columns that the rewards of a run need, before anything is converted.

fmtkit's own rewards say which they need. Of a function in a file, the parameters are read from its source,
and none of it is run: where they do not tell, the training process finds out when it loads the function.
"""

import ast
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from fmtkit.core.errors import FmtkitError, OptionError
from fmtkit.training.config import user_objects
from fmtkit.training.config.problems import Problem
from fmtkit.training.data.tokenized_rows import VARIABLES
from fmtkit.training.online.conversations import naming
from fmtkit.training.online.rewards import entries
from fmtkit.training.online.rewards.calls import Called, check_columns, check_needed
from fmtkit.training.online.rewards.entries import KEY, Entry
from fmtkit.training.planning.check import check_run

if TYPE_CHECKING:
    from fmtkit.training.planning.check import Run


def are_known(run: "Run") -> bool:
    """Return whether the rows that the rewards get are those of the datasets, and all of these are here."""
    plan = run.plan
    is_known = "rewards" in plan.runner.needs and "rewards" not in plan.runner.provided(plan.config)
    return is_known and _columns(run) is not None


def _columns(run: "Run") -> frozenset[str] | None:
    """Return the columns of all rows to train on: one that a dataset lacks is null in its rows."""
    found = [rows.columns for name, rows in run.first_rows.items() if name.startswith("datasets.")]
    known = [columns for columns in found if columns is not None]
    if not known or len(known) != len(run.plan.datasets):
        return None
    return frozenset().union(*known)


@check_run(
    "reward_columns",
    "files",
    "rewards that need a column which no row of the local datasets has",
    concerns=are_known,
)
def find(run: "Run") -> Iterator[Problem]:
    """Yield a problem for each reward that needs a column which the rows do not have."""
    config = run.plan.config
    given = {VARIABLES} if config.get(VARIABLES) else set()
    columns = (_columns(run) or frozenset()) | given
    named = naming.others(config.get(KEY))
    try:
        rewards = entries.read(named, user_objects.places_of(config.source))
    except OptionError:
        # check_users_names reports names that cannot be read.
        return
    said: set[str] = set()
    for reward in rewards:
        message = _missing(reward, columns)
        if message and message not in said:
            said.add(message)
            yield Problem("", f"{KEY}: {message}", KEY, OptionError)


def _missing(reward: Entry, columns: frozenset[str]) -> str | None:
    try:
        check = _check_of(reward)
    except FmtkitError:
        # check_users_names reports what cannot be found or made.
        return None
    try:
        check(columns)
    except OptionError as error:
        return str(error)
    return None


def _check_of(reward: Entry) -> Callable[[frozenset[str]], None]:
    """Return the check of a reward's columns; one that finds nothing where they are not known."""
    of_library = entries.of_library(reward)
    if of_library is not None:
        function, options = entries.make(of_library, reward)
        return partial(check_columns, Called(reward.label, function, options, seconds=0))
    source = None if reward.model else user_objects.definition(KEY, reward.path, reward.places)
    if source is None:
        return lambda _: None
    return partial(check_needed, reward.label, _needed(source), reward.options)


def _needed(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """Return the parameters that take an argument by their name, and have no default."""
    declared = function.args
    places = [*declared.posonlyargs, *declared.args]
    needed = places[: len(places) - len(declared.defaults)][len(declared.posonlyargs) :]
    by_name = zip(declared.kwonlyargs, declared.kw_defaults, strict=True)
    return [one.arg for one in (*needed, *(one for one, default in by_name if default is None))]
