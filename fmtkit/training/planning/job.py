"""A job: a resolved training run as plain JSON values, which the training processes read.

The parent process plans, converts and writes `job.json` into the run folder; each training process reads it.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, field
from pathlib import Path
from typing import cast

from fmtkit.core import atomic
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import ResumeError

FILE = "job.json"
VERSION = 2
"""Of a job: raised where a value means another thing or has another place. fmtkit 0.2 wrote none, so 1."""
ALL_LINEAR = "all-linear"
"""PEFT's name for all linear layers except the output head."""
BY_DEVICE = "bfloat16 or float32"
"""The dtype of weights for `bf16: auto`: bfloat16 where the device supports it, else float32."""

WITHOUT = "none"
"""The chat template of a run whose rows need none: the tokenizer keeps its own, if it has one."""


@dataclass(frozen=True)
class Source:
    """The converted files of one dataset, and how the trainer uses them.

    `columns` are the columns that the trainer gets; empty for all of them. Files may have more, carried
    through with `--keep`.
    """

    files: tuple[str, ...]
    weight: float = 1.0
    columns: tuple[str, ...] = ()
    turns: Mapping[str, object] | None = None
    """Which turns of its conversations are trained on (TurnRule.as_dict); None for the default."""


@dataclass(frozen=True)
class Job:
    """A resolved run. Arguments are those that were set; any other has the default of its class."""

    run: str
    method: str
    variant: str
    model: str
    tokenizer: str
    trainer: Mapping[str, object]
    own: Mapping[str, object]
    model_arguments: Mapping[str, object]
    peft: Mapping[str, object] | None
    quantization: Mapping[str, object] | None
    teacher: str | None
    teacher_arguments: Mapping[str, object]
    template: str
    template_text: str | None
    train: tuple[Source, ...]
    evaluation: tuple[Source, ...]
    settings: Mapping[str, object] = field(default_factory=dict)
    """The keys that fmtkit itself uses, by their names in the configuration."""
    sections: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """The keys of each section (`fmtkit.core.section`)."""
    places: tuple[str, ...] = ()
    """The folders in which the user's own modules are searched."""
    resume: str | None = None
    needs_cuda: bool = False
    processes: int | None = None
    """How many processes train together; None if the launcher decides."""
    on_demand_from: int | None = None
    """From how many rows on they are tokenized when a step draws them; None: all before the first step."""
    version: int = VERSION
    """Of the fmtkit that wrote it."""

    def dumps(self) -> str:
        """Return the job as JSON text."""
        return json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n"

    def write(self) -> Path:
        """Write the job into its run folder."""
        path = Path(self.run) / FILE
        atomic.write_bytes(path, self.dumps().encode())
        return path

    @property
    def max_length(self) -> int | None:
        """Return the most tokens of a row, whether the trainer cuts it or fmtkit; None for no limit."""
        limit = self.trainer.get("max_length") or self.own.get("max_length")
        return limit if isinstance(limit, int) else None

    @property
    def reward_weights(self) -> object:
        """Return the weights of the rewards, in their order; None where all count alike."""
        return self.trainer.get("reward_weights")

    @property
    def trusts_code(self) -> bool:
        """Return whether code that comes with a model or a tokenizer may run."""
        return self.trainer.get("trust_remote_code") is True

    @property
    def uses_cpu(self) -> bool | None:
        """Return whether the run trains without a device where there is one; None if no key says."""
        value = self.trainer.get("use_cpu")
        return value if isinstance(value, bool) else None

    def setting(self, name: str) -> object:
        """Return the value of a key that fmtkit itself uses, or None if it is not set."""
        return self.settings.get(name)

    def section(self, name: str) -> Mapping[str, object]:
        """Return the values of a section's keys."""
        return self.sections.get(name, {})

    def of_rollouts(self) -> Mapping[str, object]:
        """Return the keys of `trl` about rollouts: of the section, and those that TRL's own trainer lacks."""
        return {**self.own, **self.section("rl")}


def read(run: Path, *, oldest: int = VERSION) -> Job:
    """Read a run folder's job, of a version from `oldest` to this one.

    Raises ResumeError if it is missing, incomplete or of a different version.
    """
    work = _whole(run)
    if not oldest <= work.version <= VERSION:
        raise ResumeError(
            f"{run / FILE} was written by a different version of fmtkit (job of version {work.version}; this "
            f"one writes {VERSION}); resume the run with the fmtkit that began it, or start again in a "
            "different folder"
        )
    return work


def _whole(run: Path) -> Job:
    try:
        return _read(run)
    except FileNotFoundError as error:
        raise ResumeError(f"{run / FILE}: no such file; prepare the run by fmtkit train") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        first = str(error).partition("\n")[0]
        raise ResumeError(
            f"{run / FILE} is incomplete, or of a different version ({first}); start again in a "
            "different folder"
        ) from error


def _read(run: Path) -> Job:
    raw = cast("dict[str, object]", json.loads((run / FILE).read_text(encoding="utf-8")))
    for name in ("train", "evaluation"):
        sources = cast("list[dict[str, object]]", raw[name])
        raw[name] = tuple(
            Source(
                tuple(cast("list[str]", s["files"])),
                cast("float", s["weight"]),
                tuple(cast("list[str]", s.get("columns", []))),
                cast("Mapping[str, object] | None", s.get("turns")),
            )
            for s in sources
        )
    raw.setdefault("version", 1)
    raw["places"] = tuple(cast("list[str]", raw.get("places", [])))
    return Job(**raw)  # type: ignore[arg-type]
