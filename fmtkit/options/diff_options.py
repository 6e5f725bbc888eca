"""The options of `fmtkit diff`, of `fmtkit compare` and of the environments of other trainers."""

from fmtkit.core.data_classes import dataclass
from fmtkit.core.options import COUNT, NATURAL, PATH, SWITCH, TEXTS, Options, option


@dataclass(frozen=True)
class CompareOptions(Options):
    """Options of `fmtkit compare`."""

    panel = "Comparing"

    rows: int = option(NATURAL, "Number of example rows for each rule.", default=3)
    overrides: tuple[str, ...] = option(
        TEXTS, "KEY=VALUE to override the config; keys are dotted.", default=(), flags=("--set",)
    )


@dataclass(frozen=True)
class DiffOptions(Options):
    """Options of `fmtkit diff`."""

    panel = "Comparing"

    against: str | None = option(
        PATH,
        "trl, axolotl, llama-factory (or NAME==VERSION), fmtkit, a folder that axolotl prepared, or a file "
        "of --record.",
    )
    python: str | None = option(
        PATH,
        "The Python that has the other trainer; default: that of its environment, or this one.",
    )
    rows: int | None = option(COUNT, "Compare the first N rows of each dataset.")
    allow: tuple[str, ...] = option(
        TEXTS,
        "Do not exit 1 for this: a rule by which rows differ, such as eos, or why a row is on one side "
        "only, such as dropped (docs/diff.md lists them).",
        default=(),
    )
    examples: int = option(NATURAL, "Number of example rows for each rule.", default=2)
    overrides: tuple[str, ...] = option(
        TEXTS,
        "KEY=VALUE to override the config, or both where two are compared; keys are dotted.",
        default=(),
        flags=("--set",),
    )
    settings: tuple[str, ...] = option(
        TEXTS,
        "KEY=VALUE of the other trainer's own arguments, such as template=qwen.",
        default=(),
        flags=("--with",),
    )
    as_is: bool = option(
        SWITCH,
        "Let axolotl read the config's datasets by itself, instead of the rows that fmtkit converted.",
        default=False,
    )
    record: str | None = option(
        PATH,
        "Write the rows of the other side, or else of CONFIG, to this file, to compare with later.",
    )

    @property
    def is_record_alone(self) -> bool:
        """Return whether rows are written for later, and nothing is named to compare them with."""
        return bool(self.record) and self.against is None and self.python is None
