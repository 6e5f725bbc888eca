"""The entries of `trl.reward_funcs`: what each names, before any of it is loaded.

rewards.accuracy                      a function of rewards.py next to the config, or of an installed module
scores/rewards.py:accuracy            the same, by its file
fmtkit.rewards.accuracy               of fmtkit; options: {fmtkit.rewards.length_target: {target: 200}}
models/judge, org/judge               a reward model: a folder with config.json, or a hub id
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OptionError, near_match
from fmtkit.rewards import LIBRARY
from fmtkit.training.config import user_objects
from fmtkit.training.config.problems import NEEDED

KEY = "trl.reward_funcs"
LIBRARY_PATH = "fmtkit.rewards"
OF_MATH = frozenset({"trl.rewards.accuracy_reward", "trl.rewards.reasoning_accuracy_reward"})
"""Rewards of TRL that compare answers by the package math-verify, and look for it when they are called."""

Options = Mapping[str, object]


@dataclass(frozen=True)
class Entry:
    """A reward function (`module.attribute`, looked for in `places`) or a reward model."""

    label: str
    path: str = ""
    places: tuple[Path, ...] = ()
    options: Options = field(default_factory=dict)
    model: str = ""

    @property
    def name(self) -> str:
        """Return the name in TRL's metrics, with its module if a second reward has the same name."""
        return self.path.rpartition(".")[2] or self.model.rstrip("/").rpartition("/")[2]


def read(value: object, places: Sequence[Path]) -> tuple[Entry, ...]:
    """Read the value of `trl.reward_funcs`; raise OptionError for an entry of no known form."""
    listed = value if isinstance(value, (list, tuple)) else [] if value is None else [value]
    return tuple(_entry(item, tuple(places)) for item in listed)


def check(entries: Sequence[Entry]) -> None:
    """Raise OptionError for a function whose module is missing or does not define it."""
    for entry in entries:
        if entry.model:
            continue
        user_objects.check(KEY, entry.path, entry.places)
        if entry.path in OF_MATH and find_spec("math_verify") is None:
            raise OptionError(f"{KEY}: {entry.path} needs math-verify: pip install math-verify")
        reward = of_library(entry)
        if reward is not None:
            make(reward, entry)


def of_library(entry: Entry) -> type | None:
    """Return the reward of fmtkit that an entry names; None for any other."""
    package, _, name = entry.path.rpartition(".")
    return LIBRARY.get(name) if package == LIBRARY_PATH else None


def resolved(value: object) -> object:
    """Return `trl.reward_funcs` with the verifier of each reward that has one, for the plan."""
    if not isinstance(value, (list, tuple)):
        return value if value is None else resolved([value])
    return [_resolved(item) for item in value]


def _resolved(item: object) -> object:
    name, options = _split(item)
    package, _, short = name.rpartition(".")
    default = getattr(LIBRARY.get(short), "verifier", None) if package == LIBRARY_PATH else None
    return item if default is None else {name: {"verifier": default, **options}}


def missing(value: object, places: Sequence[Path]) -> list[str]:
    """Return what is missing for a run, as notes of its plan: a fragment may name files that do not exist."""
    try:
        check(read(value, places))
    except OptionError as error:
        return [f"{error}{NEEDED}"]
    return []


def make(reward: Callable[..., Any], entry: Entry) -> tuple[Callable[..., Any], Options]:
    """Return the callable of a reward, and its options: a class is instantiated with them.

    Raises OptionError for options that the class or the function does not take.
    """
    _check_options(reward, entry)
    if not inspect.isclass(reward):
        return reward, entry.options
    try:
        instance = reward(**entry.options)
    except (TypeError, ValueError) as error:
        raise OptionError(f"{KEY}: {entry.label}: {error}") from error
    if not callable(instance):
        raise OptionError(f"{KEY}: {entry.label}: {reward.__name__} has no __call__")
    return instance, {}


def parameters(function: Callable[..., Any]) -> tuple[frozenset[str], bool]:
    """Return the names that a function takes, and whether it takes any other as well."""
    declared = inspect.signature(function).parameters.values()
    takes_all = any(p.kind is p.VAR_KEYWORD for p in declared)
    named = frozenset(
        p.name for p in declared if p.kind in {p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY}
    )
    return named, takes_all


def _check_options(reward: Callable[..., Any], entry: Entry) -> None:
    names, takes_all = parameters(reward)
    for name in entry.options:
        if name not in names and not takes_all:
            near = near_match(name, names)
            advice = f"did you mean {near!r}?" if near else f"it takes {', '.join(sorted(names))}"
            raise OptionError(f"{KEY}: {entry.label} has no option named {name!r}; {advice}")
    if not inspect.isclass(reward):
        return
    needed = [p.name for p in inspect.signature(reward).parameters.values() if is_needed(p)]
    missing = [name for name in needed if name not in entry.options]
    if missing:
        raise OptionError(f"{KEY}: {entry.label} needs the option {', '.join(missing)}")


def is_needed(parameter: inspect.Parameter) -> bool:
    """Return whether a parameter takes an argument by its name, and has no default."""
    is_named = parameter.kind in {parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY}
    return is_named and parameter.default is parameter.empty


def check_weights(weights: object, entries: Sequence[object]) -> None:
    """Raise OptionError unless there is one weight for each function."""
    if isinstance(weights, (list, tuple)) and len(weights) != len(entries):
        raise OptionError(
            f"trl.reward_weights has {len(weights)} numbers for {len(entries)} reward_funcs; "
            "write one for each"
        )


def _entry(item: object, places: tuple[Path, ...]) -> Entry:
    name, options = _split(item)
    file, colon, function = name.rpartition(":")
    if colon and file.endswith(".py"):
        return _of_file(name, file, function, places, options)
    if user_objects.is_dotted(name) and not _is_model(name, places):
        return Entry(name, name, places, options)
    model = _model(name, places)
    if options:
        raise OptionError(f"{KEY}: {name} is a reward model, which takes no options")
    return Entry(name, model=model)


def _split(item: object) -> tuple[str, Options]:
    """Return the name and the options of NAME or {NAME: {option: value}}."""
    if isinstance(item, str):
        return item, {}
    if isinstance(item, Mapping) and len(item) == 1:
        name, options = next(iter(item.items()))
        if options is None or isinstance(options, Mapping):
            return str(name), {str(key): value for key, value in (options or {}).items()}
    raise OptionError(f"{KEY}: {item!r}: write NAME, or NAME: {{option: value}}")


def _of_file(
    name: str, file: str, function: str, places: tuple[Path, ...], options: Options
) -> Entry:
    for place in places:
        path = (place / Path(file).expanduser()).resolve()
        if path.is_file():
            return Entry(name, f"{path.stem}.{function}", (path.parent, *places), options)
    looked = ", ".join(dict.fromkeys(map(str, places)))
    raise OptionError(f"{KEY}: {name}: no {file} in {looked}")


def _is_model(name: str, places: tuple[Path, ...]) -> bool:
    return any((place / name / "config.json").is_file() for place in places)


def _model(name: str, places: tuple[Path, ...]) -> str:
    """Return the folder or the hub id of a reward model."""
    for place in (Path.cwd(), *places):
        path = (place / Path(name).expanduser()).resolve()
        if (path / "config.json").is_file():
            return str(path)
        if path.is_dir():
            raise OptionError(
                f"{KEY}: {name}: {path} has no config.json, so it is not a reward model"
            )
    if name.count("/") == 1 and not name.startswith((".", "/", "~")) and name[-3:] != ".py":
        return name
    near = name if name in LIBRARY else near_match(name, LIBRARY)
    advice = f"; did you mean fmtkit.rewards.{near}?" if near else ""
    raise OptionError(
        f"{KEY}: {name!r} is neither module.function, nor FILE.py:function, nor a folder or hub id "
        f"of a reward model{advice}"
    )
