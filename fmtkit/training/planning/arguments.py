"""The arguments of a run by destination, each with its origin; two values for one are refused."""

from dataclasses import dataclass, field
from typing import Any

from fmtkit.core.errors import OptionError


@dataclass(frozen=True)
class Argument:
    """An argument, its value and its origin."""

    name: str
    value: object
    origin: str


@dataclass
class Arguments:
    """The arguments of each destination, each with its origin, and notes on what was left out.

    It fills while a plan is made: by the keys, by what follows from several of them, and by sections.
    """

    trainer: dict[str, Argument] = field(default_factory=dict)
    model: dict[str, Argument] = field(default_factory=dict)
    peft: dict[str, Argument] = field(default_factory=dict)
    quantization: dict[str, Argument] = field(default_factory=dict)
    teacher: dict[str, Argument] = field(default_factory=dict)
    own: dict[str, Argument] = field(default_factory=dict)
    sections: dict[str, dict[str, Argument]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def value(self, name: str, destination: str = "trainer") -> Any:
        """Return the value of an argument; None where nothing sets it."""
        argument = self.of(destination).get(name)
        return None if argument is None else argument.value

    def values(self, destination: str) -> dict[str, Any]:
        """Return the values of a destination's arguments by name."""
        return {argument.name: argument.value for argument in self.of(destination).values()}

    def of(self, destination: str) -> dict[str, Argument]:
        """Return the arguments of a destination."""
        own = {
            "trainer": self.trainer,
            "model": self.model,
            "peft": self.peft,
            "quantization": self.quantization,
            "teacher": self.teacher,
            "own": self.own,
        }
        return own[destination] if destination in own else self.sections.setdefault(destination, {})

    @property
    def is_quantized(self) -> bool:
        """Return whether bitsandbytes quantizes the weights, which needs a CUDA device."""
        return bool(self.quantization) and "config_class" not in self.quantization

    @property
    def max_length(self) -> int | None:
        """Return the most tokens of a row, whether the trainer cuts it or fmtkit; None for no limit."""
        limit = self.value("max_length") or self.value("max_length", "own")
        return limit if isinstance(limit, int) else None

    @property
    def evaluates(self) -> bool:
        """Return whether rows are evaluated on while the run trains."""
        return self.value("eval_strategy") not in (None, "no")

    @property
    def uses_vllm(self) -> bool:
        """Return whether vLLM samples the answers, in a server or inside the trainer."""
        return self.value("use_vllm") is True

    def put(self, destination: str, argument: Argument) -> None:
        """Set an argument; two keys that set it to different values are an error."""
        where = self.of(destination)
        before = where.get(argument.name)
        if before is not None and before.value != argument.value and not _is_default(before):
            raise OptionError(
                f"{argument.origin} sets {argument.name} to {argument.value!r}, "
                f"but {before.origin} sets it to {before.value!r}; keep one"
            )
        where[argument.name] = argument

    def default(self, name: str, value: object, origin: str) -> None:
        """Set an argument of the trainer that nothing has set yet."""
        self.trainer.setdefault(name, Argument(name, value, origin))


def _is_default(argument: Argument) -> bool:
    return argument.origin.startswith("default of ")
