"""Environments under time limits: a failure masks its sample, and the others continue.

TRL shows the model what a tool raises, and continues. That is right for a wrong argument, so ValueError and
TypeError are treated like this here too; where `trl.max_failed_share` lets samples fail, any other exception
is the environment's own failure, and so is a call that never ends.
"""

import functools
import inspect
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from fmtkit.core.errors import OptionError
from fmtkit.core.foreign_calls import OverdueError, retried, retried_coroutine, within
from fmtkit.training.online.failed_samples import Timings, processes
from fmtkit.training.online.rollouts.contract import in_one_line
from fmtkit.training.vllm.rollout_settings import RolloutSettings

_SHOWN_TO_MODEL = (ValueError, TypeError)
"""Errors by which an environment reports a wrong call to the model."""
_OWN = ("reset", "get_reward")


def guarded(factory: Any, settings: RolloutSettings, timings: Timings) -> Any:
    """Return a factory, or a mapping of them, whose environments are guarded."""
    if isinstance(factory, dict):
        return {name: guarded(one, settings, timings) for name, one in factory.items()}
    if isinstance(factory, type):
        return _guarded_class(factory, settings, timings)

    @functools.wraps(factory)
    def make() -> Any:
        environment = factory()
        kind: Any = type(environment)
        try:
            environment.__class__ = _guarded_class(kind, settings, timings)
        except TypeError as error:
            raise OptionError(
                f"trl.environment_factory: {kind.__name__} cannot be guarded ({error}); name the "
                "class itself"
            ) from error
        return environment

    return make


@functools.cache
def _guarded_class(plain: Any, settings: RolloutSettings, timings: Timings) -> type:
    """Return a class of the same name with guarded methods; always the same one, since TRL compares them."""
    methods: dict[str, Any] = {"fmtkit_failure": None, "__module__": plain.__module__}
    for name, function in inspect.getmembers(plain, inspect.isfunction):
        if name.startswith("_"):
            continue
        guard = _guarded_coroutine if inspect.iscoroutinefunction(function) else _guarded_function
        methods[name] = guard(f"{plain.__name__}.{name}", function, settings, timings)
    return type(plain.__name__, (plain,), methods)


def _guarded_function(
    label: str, function: Callable[..., Any], settings: RolloutSettings, timings: Timings
) -> Callable[..., Any]:
    name = function.__name__

    @functools.wraps(function)
    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        once = partial(function, self, *arguments, **named)
        with _guarding(self, label, settings, timings, f"{arguments}{named}"):
            limited = partial(within, settings.environment_timeout, once)
            return retried(limited, settings.max_retries, final=_final(name))

    return call


def _guarded_coroutine(
    label: str, function: Callable[..., Any], settings: RolloutSettings, timings: Timings
) -> Callable[..., Any]:
    import asyncio

    name, seconds = function.__name__, settings.environment_timeout

    @functools.wraps(function)
    async def call(self: Any, *arguments: Any, **named: Any) -> Any:
        async def limited() -> Any:
            try:
                return await asyncio.wait_for(function(self, *arguments, **named), seconds)
            except TimeoutError as error:
                raise OverdueError(seconds) from error

        with _guarding(self, label, settings, timings, f"{arguments}{named}"):
            return await retried_coroutine(limited, settings.max_retries, final=_final(name))

    return call


@contextmanager
def _guarding(
    environment: Any, label: str, settings: RolloutSettings, timings: Timings, given: str
) -> Iterator[None]:
    """Time one call of an environment; mask the sample if it fails, and return None in its place."""
    name = label.rpartition(".")[2]
    _begin(environment, name)
    started = time.perf_counter()
    try:
        yield
    except Exception as error:  # noqa: BLE001 - the environment's own; its sample is marked
        _failed(environment, label, name, error, settings)
    finally:
        seconds = time.perf_counter() - started
        timings.add(label, [seconds], settings.environment_timeout, [given[:80]])


def _begin(environment: Any, name: str) -> None:
    """Reset an earlier episode's failure; do not call an environment that has failed in this episode."""
    if name == "reset":
        environment.fmtkit_failure = None
    elif environment.fmtkit_failure is not None and name not in _OWN:
        raise ValueError("the environment has failed")


def _final(name: str) -> tuple[type[Exception], ...]:
    return () if name in _OWN else _SHOWN_TO_MODEL


def _failed(
    environment: Any, label: str, name: str, error: Exception, settings: RolloutSettings
) -> None:
    """Mask the sample, or let the exception through to TRL if it is for the model or ends the run."""
    overdue = isinstance(error, OverdueError)
    masks = settings.max_failed_share > 0
    if name not in _OWN and not overdue and (not masks or isinstance(error, _SHOWN_TO_MODEL)):
        raise error
    if name in _OWN and not masks and not overdue and processes() == 1:
        raise error
    what = (
        f"took more than {settings.environment_timeout:g} s"
        if overdue
        else f"raised {in_one_line(error)}"
    )
    environment.fmtkit_failure = environment.fmtkit_failure or f"environment {label} {what}"
    if name not in _OWN:
        raise ValueError("the environment has failed") from error
