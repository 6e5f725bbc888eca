"""The keys of a training configuration: what each holds, where it goes, and why some go nowhere.

The table is data. A key is spelled as users of axolotl know it; a key of a section has a dotted
name (`trl.beta`). What a key means for one method follows from its destination: a trainer argument
that the method's config class does not have is an error, found by `fmtkit.training.arguments`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from typing import Literal

from fmtkit.errors import OptionError, UnknownNameError, near_match

Destination = Literal[
    "trainer",
    "model",
    "peft",
    "quantization",
    "teacher",
    "launch",
    "environment",
    "fmtkit",
    "rl",
    "vllm",
    "ebft",
    "nemo_gym",
    "nothing",
    "refused",
]

DESTINATIONS: dict[Destination, str] = {
    "trainer": "an argument of the trainer's config class (TRL or transformers)",
    "model": "an argument of `from_pretrained`",
    "peft": "an argument of peft's `LoraConfig`",
    "quantization": "an argument of `BitsAndBytesConfig`",
    "teacher": "an argument of the teacher's `from_pretrained`",
    "launch": "how the training processes are started",
    "environment": "an environment variable of the training processes",
    "fmtkit": "fmtkit itself",
    "rl": "fmtkit's own online methods",
    "vllm": "`fmtkit vllm-serve`",
    "ebft": "fmtkit's EBFT",
    "nemo_gym": "fmtkit's NeMo Gym client",
    "nothing": "accepted, and has nothing to change here",
    "refused": "cannot be honoured",
}


@dataclass(frozen=True, slots=True)
class Key:
    """A key of the configuration and where its value goes.

    `argument` is its name at the destination, where that is another; `values` translates single
    values; `idle` are the values of a refused key that ask for nothing and are let through.
    """

    name: str
    kind: str
    to: Destination
    about: str
    argument: str = ""
    aliases: tuple[str, ...] = ()
    values: Mapping[object, object] = field(default_factory=dict)
    idle: tuple[object, ...] = (False, None)

    @property
    def target(self) -> str:
        """Return the key's name at its destination."""
        return self.argument or self.name.rpartition(".")[2]

    def translate(self, value: object) -> object:
        """Return the value as its destination spells it."""
        if isinstance(value, (str, bool)):
            return self.values.get(value, value)
        return value


@cache
def table() -> dict[str, Key]:
    """Return every key outside of `datasets`, by name."""
    from fmtkit.training import keys_data, keys_method, keys_model, keys_online, keys_run

    modules = (keys_model, keys_data, keys_run, keys_method, keys_online)
    rows = [key for module in modules for key in module.KEYS]
    by_name = {key.name: key for key in rows}
    if len(by_name) != len(rows):
        raise ValueError("a key stands twice in the table of keys")
    return by_name


@cache
def aliases() -> dict[str, str]:
    """Return the key that each other spelling stands for."""
    return {alias: key.name for key in table().values() for alias in key.aliases}


@cache
def sections() -> dict[str, tuple[str, ...]]:
    """Return the sections of the configuration and the keys of each; "" is the top level."""
    out: dict[str, list[str]] = {"": []}
    for name in table():
        section, _, last = name.rpartition(".")
        out.setdefault(section, []).append(last)
    return {section: tuple(names) for section, names in out.items()}


def section_names() -> frozenset[str]:
    """Return the names of the keys whose value is a section of further keys."""
    return frozenset(section for section in sections() if section)


def check_known(names: Iterable[str]) -> None:
    """Raise UnknownNameError for the first name that is neither a key nor an alias."""
    for name in names:
        if name in table() or name in aliases():
            continue
        raise UnknownNameError("key", name, _near(name), "; all of them: docs/config.md")


def _near(name: str) -> list[str]:
    """Return the keys that may have been meant: near ones of its section, or a section's own."""
    section, _, last = name.rpartition(".")
    own = [f"{section}.{key}" if section else key for key in sections().get(section, ())]
    spellings = [*own, *(alias for alias in aliases() if alias.rpartition(".")[0] == section)]
    near = near_match(name, spellings)
    if near is not None:
        return [near]
    elsewhere = [key for key in table() if key.rpartition(".")[2] == last]
    return elsewhere or get_close_matches(name.lower(), spellings, n=5, cutoff=0.0)


def refuse(key: Key, value: object) -> None:
    """Raise OptionError if the key cannot be honoured and its value asks for something."""
    if key.to == "refused" and not any(value is idle or value == idle for idle in key.idle):
        raise OptionError(f"{key.name}: {value!r} cannot be honoured: {key.about}")
