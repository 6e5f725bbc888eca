"""What a plan is made of, as data: arguments and their origins, datasets, and how the run is launched.

Functions that decide anything import it, and it imports none of them.
"""

import sys
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import FmtkitError, OptionError
from fmtkit.core.runner import Head
from fmtkit.training.config.config import Entry

if TYPE_CHECKING:
    import pyarrow as pa


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
    def batch_size(self) -> int | None:
        """Return the rows of a step of one process; None where no key says."""
        size = self.value("per_device_train_batch_size")
        return size if isinstance(size, int) else None

    @property
    def rows_of_batch(self) -> int | None:
        """Return the rows of a step of one process, transformers' default among them; None where unclear."""
        size = self.value("per_device_train_batch_size")
        return 8 if size is None else self.batch_size

    @property
    def batches_of_step(self) -> int | None:
        """Return the batches whose gradients are summed before an optimizer step; None where unclear."""
        count = self.value("gradient_accumulation_steps")
        return 1 if count is None else count if isinstance(count, int) else None

    @property
    def packs(self) -> bool:
        """Return whether several rows are packed into one."""
        return self.value("packing") is True

    @property
    def sampling(self) -> str:
        """Return by which order rows are drawn, as transformers names it."""
        return str(self.value("train_sampling_strategy") or "random")

    @property
    def reward_weights(self) -> object:
        """Return the weights of the rewards, in their order; None where all count alike."""
        return self.value("reward_weights")

    @property
    def evaluates(self) -> bool:
        """Return whether rows are evaluated on while the run trains."""
        return self.value("eval_strategy") not in (None, "no")

    @property
    def saves(self) -> bool:
        """Return whether checkpoints are written while the run trains."""
        return bool(self.value("save_strategy") != "no")

    @property
    def trackers(self) -> list[str]:
        """Return the trackers that `report_to` and its short keys name."""
        value = self.value("report_to")
        listed = value if isinstance(value, list) else [value] if value else []
        return [str(name) for name in listed if name not in {"all", "none"}]

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


def training_command(run: Path) -> tuple[str, ...]:
    """Return the command of one training process."""
    # -P: a module in the working directory, such as trl.py, must not shadow an installed one.
    return (sys.executable, "-P", "-m", "fmtkit.training.run.process", str(run))


@dataclass(frozen=True)
class Launch:
    """The command that starts training, and the accelerate file that it reads, if any."""

    command: tuple[str, ...] = ()
    profile: str = "one process"
    accelerate: Mapping[str, object] | None = None
    notes: tuple[str, ...] = ()
    needs_cuda: bool = False
    trainer: Mapping[str, object] = field(default_factory=dict)
    """Arguments of the trainer that follow from the way of launching."""
    processes: int | None = 1
    """How many processes train; None where that depends on the machine."""
    is_local: bool = True
    """Whether all processes are on this machine; a user's accelerate file may name others."""

    @classmethod
    def of_one_process(cls, run: Path) -> "Launch":
        """Make the launch of a run of which no key says how it is started."""
        return cls(training_command(run))


@dataclass(frozen=True)
class Reading:
    """A dataset's type as the pipeline takes it, and the template that it names, if any."""

    type: str
    tables: tuple[str, ...]
    template: str | None = None
    is_text: bool = False
    """Whether its rows are prerendered text, which is trained on as it is."""
    is_segments: bool = False
    """Whether its rows are segments of text, which no template writes."""
    options: Mapping[str, object] = field(default_factory=dict)
    is_plain: bool = False
    """Whether its rows are no conversations: steps of solutions, or tokens of text."""
    function: bool = False
    """Whether the type is a user function."""
    source: str = ""
    """Name of the type's converters; the type itself where it is empty."""

    @property
    def needs_template(self) -> bool:
        """Return whether its rows are messages, which a chat template renders."""
        return not (self.is_text or self.is_segments or self.is_plain)


TEST = "test_"
"""How the dotted names of datasets to evaluate on begin."""


@dataclass(frozen=True)
class DatasetPlan:
    """A dataset of a run: the entry of the configuration, and how its type is read."""

    name: str
    """Its dotted name, `datasets.0`."""
    entry: Entry
    reading: Reading

    @property
    def is_test(self) -> bool:
        """Return whether it is one to evaluate on."""
        return self.name.startswith(TEST)

    @property
    def source(self) -> str:
        """Return how the plan names it: its path, configuration, files and split."""
        files = self.entry.get("data_files")
        listed = ", ".join(map(str, files)) if isinstance(files, list) else str(files or "")
        parts = [str(self.entry[name]) for name in ("path", "name") if name in self.entry]
        split = f" [{self.entry['split']}]" if "split" in self.entry else ""
        return (" ".join(parts + ([listed] if listed else [])) or "-") + split

    @property
    def table(self) -> str:
        """Return the name of the table that its rows become; of all that they may become."""
        return " or ".join(self.reading.tables)


@dataclass(frozen=True)
class FirstRows:
    """What the first rows of a dataset became."""

    source: str = ""
    """The dataset, as the plan names it."""
    tables: tuple["pa.Table", ...] = ()
    """The converted rows of each file, as they are before the trainer renders them."""
    columns: frozenset[str] | None = None
    """The columns of all rows of the dataset, the first ones or not; None where they are not known."""
    read: int = 0
    is_all: bool = False
    """Whether these are all rows of the dataset."""
    written: int = 0
    """Rows that were made: to train on, or to evaluate on."""
    at_most: int | None = None
    """Rows that the whole dataset makes, at most; None if that is not known, or more than it matters."""
    too_long: int = 0
    unseen_images: int = 0
    """Rows with images that are bad since the template writes none."""
    reasons: Mapping[str, int] = field(default_factory=dict)
    """Code -> rows that are bad for it."""
    warnings: Mapping[str, int] = field(default_factory=dict)
    bad: str = ""
    """The first bad row: file, line, code and reason."""
    error: FmtkitError | None = None
    """Why the dataset cannot be read at all."""


_ROWS_PER_BATCH = 200
"""Tokenizing one batch costs 40 ms with a small tokenizer, most of them for the hashes by which `datasets`
names its results; they grow with the vocabulary (not measured). A row of 1 KB costs 1.2 ms otherwise."""


LABELS: Mapping[Head, int] = {"score": 1, "steps": 2}
"""How many labels the head of a model has, where it is not the output layer."""
DEFAULT_LENGTH = 1024
"""Most tokens of a row where no key says another number: the default of TRL's config classes."""
PREPARE = "_prepare_dataset"
"""The method by which TRL's trainers render and tokenize rows."""


@dataclass(frozen=True)
class FewSteps:
    """How many rows the steps of a run draw, and why more of them must be read or tokenized."""

    steps: int
    batches: int
    rows: int
    all_tokenized: str | None
    """Why every row is tokenized before the first step; None where only those that are drawn are."""
    all_converted: str | None
    """Why every row is converted; None where only the first ones are."""

    @property
    def on_demand_from(self) -> int | None:
        """Return from how many rows on they are tokenized when they are drawn; None where all are before."""
        if self.all_tokenized is not None:
            return None
        return max(2 * self.rows, _ROWS_PER_BATCH * self.batches)

    @property
    def first(self) -> int | None:
        """Return how many rows are converted; None for all."""
        return self.rows if self.all_converted is None else None

    def to_json(self) -> dict[str, object]:
        """Return the limits as plain values."""
        return {
            "rows": self.rows,
            "tokenizes_all": self.all_tokenized,
            "converts_all": self.all_converted,
        }

    def described(self) -> tuple[str, str]:
        """Return what is limited, and why not more."""
        if self.all_tokenized is not None:
            return "all are converted and tokenized", self.all_tokenized
        drawn = f"of {self.on_demand_from:,} rows or more only those drawn are tokenized"
        if self.all_converted is not None:
            return f"{drawn}; all are converted", self.all_converted
        return f"{drawn}, and only the first ones converted", "they are taken in their order"
