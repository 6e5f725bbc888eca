"""Objects that a configuration adds to a trainer by their named paths: read and checked, and not loaded.

`callbacks` and what is like them; the training process makes them (`fmtkit.training.building.extensions`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fmtkit.core.errors import OptionError
from fmtkit.training.config import user_objects
from fmtkit.training.config.signatures import Signature, signature_of
from fmtkit.training.config.user_objects import places_of
from fmtkit.training.planning.check import Run, check_config, check_run
from fmtkit.training.planning.run_plan import Plan

CALLBACKS = "callbacks"
OF_TRAINER = ("trainer", "ref_model", "accelerator")
"""Parameters of callbacks that are filled from the trainer, where no argument is given for them."""
_CLASS, _GIVEN = "class", "kwargs"


@dataclass(frozen=True)
class Named:
    """An object that is made of a class or a function, by its named path and with arguments.

    An argument may be such an object too: {class: transformers.GenerationConfig, kwargs: {...}}.
    """

    path: str
    given: Mapping[str, object] = field(default_factory=dict)


def named(key: str, value: object) -> tuple[Named, ...]:
    """Read a key's value: a name, or a list of names and of {class, kwargs}; raise OptionError for others."""
    listed = value if isinstance(value, list) else [] if value is None else [value]
    return tuple(_named(key, one) for one in listed)


def _named(key: str, value: object) -> Named:
    if isinstance(value, str):
        return Named(value)
    if isinstance(value, Mapping) and isinstance(value.get(_CLASS), str):
        given = value.get(_GIVEN) or {}
        if isinstance(given, Mapping) and value.keys() <= {_CLASS, _GIVEN}:
            return Named(str(value[_CLASS]), {str(k): _argument(key, v) for k, v in given.items()})
    raise OptionError(
        f"{key}: {value!r}: write module.Class, or {{class: module.Class, kwargs: ...}}"
    )


def _argument(key: str, value: object) -> object:
    return _named(key, value) if isinstance(value, Mapping) and _CLASS in value else value


def signature(key: str, one: Named, places: Sequence[Path]) -> Signature | None:
    """Return what an object takes; None where it cannot be told, or its module is not there yet."""
    try:
        return signature_of(key, one.path, places)
    except OptionError:
        # That it is not there is reported where the user's modules must be (find_absent).
        return None


def _all(entries: Sequence[Named]) -> Iterator[Named]:
    """Yield objects, and those among their arguments."""
    for one in entries:
        yield one
        yield from _all([value for value in one.given.values() if isinstance(value, Named)])


@check_config("callbacks", "modules", "callbacks that are none, or take other arguments")
def find_callbacks(plan: Plan) -> Iterator[str]:
    """Yield what is wrong with the callbacks whose source is there."""
    entries = named(CALLBACKS, plan.config.get(CALLBACKS))
    places = places_of(plan.config.source)
    for one in _all(entries):
        taken = signature(CALLBACKS, one, places)
        if taken is None:
            continue
        if one in entries and taken.bases is not None and "TrainerCallback" not in taken.bases:
            yield f"{CALLBACKS}: {one.path} is no TrainerCallback of transformers"
        fault = taken.problem(one.given, OF_TRAINER)
        if fault is not None:
            yield f"{CALLBACKS}: {one.path} {fault}"


@check_run("absent_callbacks", "modules", "callbacks that do not exist")
def find_absent(run: Run) -> None:
    """Raise OptionError for a class that cannot be found."""
    places = places_of(run.plan.config.source)
    for one in _all(named(CALLBACKS, run.plan.config.get(CALLBACKS))):
        user_objects.check(CALLBACKS, one.path, places)
