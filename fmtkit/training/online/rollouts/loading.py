"""The user's rollout function, tools and environments: named in the configuration, checked before use.

Light: it is read by the plan too, which looks at the names and runs none of the user's code.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fmtkit.core.errors import OptionError
from fmtkit.training.config import user_objects
from fmtkit.training.config.signatures import signature_of

ROLLOUT, TOOLS, ENVIRONMENT = "trl.rollout_func", "trl.tools", "trl.environment_factory"


def check_names(section: Mapping[str, object], places: Sequence[Path]) -> None:
    """Raise OptionError for a name whose module is missing or does not define it, or of a former form."""
    for key, name in _named(section):
        user_objects.check(key, name, places)
        taken = signature_of(key, name, places) if key == ROLLOUT else None
        if taken is not None and "model" in taken.names and "trainer" not in taken.names:
            raise OptionError(
                f"{ROLLOUT}: {name} takes {', '.join(taken.names)}, a form that TRL has given up; write "
                "f(prompts, trainer) that returns prompt_ids, completion_ids and logprobs"
            )


def rollout_objects(section: Mapping[str, object], places: Sequence[Path]) -> dict[str, Any]:
    """Return rollout_func, tools and environment_factory, those that the section names."""
    out: dict[str, Any] = {}
    if section.get("rollout_func"):
        out["rollout_func"] = _rollout(str(section["rollout_func"]), places)
    if section.get("tools"):
        out["tools"] = [_tool(name, places) for key, name in _named(section) if key == TOOLS]
    factory = section.get("environment_factory")
    if isinstance(factory, Mapping):
        out["environment_factory"] = {
            str(name): _environment(str(path), places) for name, path in factory.items()
        }
    elif factory:
        out["environment_factory"] = _environment(str(factory), places)
    return out


def _named(section: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    if section.get("rollout_func"):
        yield ROLLOUT, str(section["rollout_func"])
    tools = section.get("tools")
    for name in tools if isinstance(tools, list) else [tools] if tools else []:
        yield TOOLS, str(name)
    factory = section.get("environment_factory")
    for name in factory.values() if isinstance(factory, Mapping) else [factory] if factory else []:
        yield ENVIRONMENT, str(name)


def _rollout(name: str, places: Sequence[Path]) -> Any:
    from fmtkit.training.online.rollouts.contract import RolloutFunction

    return RolloutFunction(f"{ROLLOUT} {name}", user_objects.load_function(ROLLOUT, name, places))


def _tool(name: str, places: Sequence[Path]) -> Callable[..., Any]:
    function = user_objects.load_function(TOOLS, name, places)
    _check_described(f"{TOOLS}: {name}", function)
    return function


def _environment(name: str, places: Sequence[Path]) -> Callable[..., Any]:
    """Return a class of environments, or a function that makes one."""
    factory = user_objects.load_function(ENVIRONMENT, name, places)
    if not isinstance(factory, type):
        return factory
    if not callable(getattr(factory, "reset", None)):
        raise OptionError(
            f"{ENVIRONMENT}: {name} has no method reset(**row), which begins an episode and returns "
            "the first observation or None"
        )
    for method, function in inspect.getmembers(factory, inspect.isfunction):
        if not method.startswith("_") and method not in {"reset", "get_reward"}:
            _check_described(f"{ENVIRONMENT}: {name}.{method}", function)
    return factory


def _check_described(label: str, function: Callable[..., Any]) -> None:
    """Raise OptionError unless a tool has a description and typed arguments for the model."""
    from transformers.utils.chat_template_utils import (
        DocstringParsingException,
        TypeHintParsingException,
        get_json_schema,
    )

    try:
        get_json_schema(function)
    except (DocstringParsingException, TypeHintParsingException) as error:
        raise OptionError(
            f"{label} cannot be offered as a tool: {str(error).strip()}; give each parameter a type "
            "and a line under Args: in the docstring"
        ) from error
