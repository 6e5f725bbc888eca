"""What a configuration adds to a trainer by its named path, made and installed in the training process."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

from fmtkit.core.errors import OptionError
from fmtkit.core.user_modules import describe
from fmtkit.training.building.callbacks import BetweenStepsError, TrainingError
from fmtkit.training.config import user_objects
from fmtkit.training.config.named_objects import (
    CALLBACKS,
    METRICS,
    OF_TRAINER,
    OPTIMIZER,
    Named,
    read_named,
)
from fmtkit.training.planning.job import Job

_HALF_A_STEP = "on_optimizer_step"
"""The event at which the weights are a step ahead of the trainer's count: nothing is saved there."""


class CallbackError(BetweenStepsError):
    """A callback of the user, or a metric, failed; the steps before are saved."""


def install(trainer: Any, work: Job) -> None:
    """Add the configured callbacks and the optimizer's class to a trainer.

    Raises OptionError for one that cannot be loaded or made.
    """
    places = [Path(place) for place in work.places]
    _set_optimizer(trainer, work, places)
    for one in read_named(CALLBACKS, work.setting(CALLBACKS)):
        callback = _made(CALLBACKS, one, places, trainer)
        _check_callback(one, callback)
        _guard(one.path, callback, trainer)
        trainer.add_callback(callback)
        # The trainer sent this event before there was a trainer that the callback could be given.
        callback.on_init_end(trainer.args, trainer.state, trainer.control, model=trainer.model)


def _set_optimizer(trainer: Any, work: Job, places: Sequence[Path]) -> None:
    name = work.own.get(OPTIMIZER)
    if name is None:
        return
    if trainer.optimizer is not None:
        kind = type(trainer).__name__
        raise OptionError(
            f"{OPTIMIZER}: {kind} makes its optimizer itself, and takes no other class"
        )
    make = user_objects.load_function(OPTIMIZER, str(name), places)
    if not isinstance(make, type):
        # transformers takes functions to be factories, which it calls in another way.
        raise OptionError(f"{OPTIMIZER}: {name} is no class")
    options = work.own.get("optim_args")
    given = dict(options) if isinstance(options, Mapping) else {}
    parameters = inspect.signature(make).parameters
    if "lr" in parameters:
        given.setdefault("lr", trainer.args.learning_rate)
    try:
        inspect.signature(make).bind([], **given)
    except TypeError as error:
        raise OptionError(f"optim_args: {name}: {error}") from error

    trainer.optimizer_cls_and_kwargs = (make, given)


def metrics_of(work: Job) -> Callable[..., Any] | None:
    """Return the function of `compute_metrics`, which names its line where it raises; None if unset."""
    name = work.setting(METRICS)
    if name is None:
        return None
    places = [Path(place) for place in work.places]
    compute = user_objects.load_function(METRICS, str(name), places)

    @wraps(compute)
    def computing(*values: Any, **given: Any) -> Any:
        try:
            found = compute(*values, **given)
        except Exception as error:
            where = describe(error, _file(inspect.unwrap(compute)))
            raise CallbackError(f"{METRICS}: {name}: {where}") from error
        if not isinstance(found, Mapping):
            kind = type(found).__name__
            raise CallbackError(f"{METRICS}: {name} returned a {kind}, not a mapping of metrics")
        return found

    return computing


def _made(key: str, one: Named, places: Sequence[Path], trainer: Any = None) -> Any:
    """Load a class and make its object; a parameter of `OF_TRAINER` is filled from the trainer."""
    make = user_objects.load_function(key, one.path, places)
    given = {
        name: _made(key, value, places) if isinstance(value, Named) else value
        for name, value in one.given.items()
    }
    parameters = inspect.signature(make).parameters if trainer is not None else {}
    for name in OF_TRAINER:
        if name in parameters and name not in given:
            given[name] = trainer if name == "trainer" else _part(key, one, name, trainer)
    try:
        return make(**given)
    except Exception as error:
        raise OptionError(f"{key}: {one.path}: {describe(error, _file(make))}") from error


def _part(key: str, one: Named, name: str, trainer: Any) -> Any:
    part = getattr(trainer, name, None)
    if part is None:
        raise OptionError(
            f"{key}: {one.path} needs the trainer's {name}, and this run's {type(trainer).__name__} has none"
        )
    return part


def _check_callback(one: Named, callback: Any) -> None:
    from transformers import TrainerCallback

    if not isinstance(callback, TrainerCallback):
        kind = type(callback).__name__
        raise OptionError(
            f"{CALLBACKS}: {one.path}: a {kind} is no TrainerCallback of transformers"
        )


def _guard(path: str, callback: Any, trainer: Any) -> None:
    """Let what a callback raises end the run with its name and line, between two steps where that can be.

    Its events get the reference as well: some of TRL's change it, and get it from a trainer of their own.
    """
    failed: list[str] = []

    def guarded(event: str, call: Callable[..., Any]) -> Callable[..., Any]:
        kinds = {one.kind for one in inspect.signature(call).parameters.values()}
        takes_more = inspect.Parameter.VAR_KEYWORD in kinds

        @wraps(call)
        def calling(*values: Any, **given: Any) -> Any:
            if failed:
                # The checkpoint that is saved after a failure has events too.
                return None
            if takes_more and hasattr(trainer, "ref_model"):
                given.setdefault("ref_model", trainer.ref_model)
            try:
                return call(*values, **given)
            except Exception as error:
                failed.append(event)
                kind = TrainingError if event == _HALF_A_STEP else CallbackError
                where = describe(error, _file(type(callback)))
                raise kind(f"{CALLBACKS}: {path}: {event}: {where}") from error

        return calling

    for event in (name for name in dir(callback) if name.startswith("on_")):
        setattr(callback, event, guarded(event, getattr(callback, event)))


def _file(thing: Any) -> str:
    try:
        return inspect.getfile(thing)
    except TypeError:
        # Built-in classes have no file.
        return ""
