"""A key of a training configuration: what it holds, where its value goes, and what is said of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

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
    "verifiers",
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
    "verifiers": "fmtkit's player of `verifiers` environments",
    "nothing": "a note in the plan: it changes speed or memory alone, or has nothing to act on",
    "refused": "cannot be honoured",
}


@dataclass(frozen=True, slots=True)
class Key:
    """A key of the configuration and where its value goes.

    `argument` is its name at the destination, where that is another; `values` translates single
    values, and to None those that set nothing; `remarks` are notes for single values. `idle` are the
    values of a refused key that ask for nothing and are let through. `speed_only` keys of a trainer
    are a note where its class has no such argument. `axolotl` says what axolotl does with the key,
    where `about` does not.
    """

    name: str
    kind: str
    to: Destination
    about: str
    argument: str = ""
    aliases: tuple[str, ...] = ()
    values: Mapping[object, object] = field(default_factory=dict)
    idle: tuple[object, ...] = (False, None)
    remarks: Mapping[object, str] = field(default_factory=dict)
    speed_only: bool = False
    axolotl: str = ""
    acts_with: str = ""
    """The key without which it changes nothing."""

    @property
    def target(self) -> str:
        """Return the key's name at its destination."""
        return self.argument or self.name.rpartition(".")[2]

    def translate(self, value: object) -> object:
        """Return the value as its destination spells it."""
        if isinstance(value, (str, bool)):
            return self.values.get(value, value)
        return value

    def remark(self, value: object) -> str | None:
        """Return what the plan says of a value; None where there is nothing to say, or it is idle."""
        if self.to == "nothing":
            if value is False:
                return None
            does = f" (axolotl {self.axolotl})" if self.axolotl else ""
            return f"{self.name} changes nothing: {self.about}{does}"
        if not isinstance(value, (str, bool)) or value not in self.remarks:
            return None
        return f"{self.name}: {value}: {self.remarks[value]}"

    def refusal(self, value: object) -> str | None:
        """Say why the value cannot be honoured, or return None; an idle value asks for nothing."""
        if self.to != "refused" or any(value is idle or value == idle for idle in self.idle):
            return None
        return f"{self.name}: {value!r} cannot be honoured: {self.about}"
