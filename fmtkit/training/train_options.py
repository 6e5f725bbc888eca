"""The options of `fmtkit train`, beside those of its config, and of the commands on what it has trained."""

from dataclasses import dataclass

from fmtkit.core.options import (
    AMOUNT,
    COUNT,
    NATURAL,
    NUMBER,
    OPTIONAL_CHOICE,
    PATH,
    SWITCH,
    TEXT,
    TEXTS,
    Options,
    option,
)


@dataclass(frozen=True)
class TrainOptions(Options):
    """Options of `fmtkit train`."""

    panel = "Run"

    dry_run: bool = option(SWITCH, "Print the plan; write and start nothing.", default=False)
    prepare: bool = option(
        SWITCH, "Write the run folder, print the command, start nothing.", default=False
    )
    partial: bool = option(
        SWITCH, "With --dry-run: guess what a fragment leaves out.", default=False
    )
    overrides: tuple[str, ...] = option(
        TEXTS,
        "KEY=VALUE that overrides the config; dotted keys, lists by index.",
        default=(),
        flags=("--set",),
    )
    num_processes: int | None = option(
        COUNT, "Processes that train together on this machine.", keys=("num_processes",)
    )
    accelerate_config: str | None = option(
        PATH,
        "single, multi_gpu, fsdp2, zero1, zero2, zero3, or a file.",
        keys=("accelerate_config",),
    )
    resume: bool = option(SWITCH, "Resume from the run's last checkpoint.", default=False)
    rebuild: bool = option(SWITCH, "Convert the datasets again.", default=False)


@dataclass(frozen=True)
class CompareOptions(Options):
    """Options of `fmtkit compare`."""

    rows: int = option(NATURAL, "Examples of each rule.", default=3)
    overrides: tuple[str, ...] = option(
        TEXTS, "KEY=VALUE that overrides the config; dotted keys.", default=(), flags=("--set",)
    )


@dataclass(frozen=True)
class MergeOptions(Options):
    """Options of `fmtkit merge`."""

    panel = "Merging"

    out: str | None = option(PATH, "Folder to write; RUN/merged unless set.", flags=("--out", "-o"))
    checkpoint: str | None = option(TEXT, "A checkpoint of the run, by name or by step.")
    adapter: str | None = option(PATH, "Folder of an adapter, in place of a run.")
    model: str | None = option(PATH, "The base model, where it is not where the adapter says.")
    dtype: str | None = option(
        OPTIONAL_CHOICE,
        "Data type of the merged weights; the base model's unless set.",
        choices=("float32", "bfloat16", "float16"),
    )


@dataclass(frozen=True)
class TryOptions(Options):
    """Options of `fmtkit try`."""

    prompt: tuple[str, ...] = option(
        TEXTS, "A text to answer; lines on stdin where none is given.", default=()
    )
    data: str | None = option(PATH, "Rows to answer or to score: a source as of convert.")
    type: str | None = option(
        TEXT, "Type of the rows; that of the run's dataset unless set.", flags=("--type", "-t")
    )
    limit: int = option(COUNT, "The first N rows or lines.", default=20)
    checkpoint: str | None = option(TEXT, "A checkpoint of the run, by name or by step.")
    model: str | None = option(PATH, "The base model, where it is not where the run found it.")
    max_new_tokens: int = option(COUNT, "Maximum number of tokens in an answer.", default=128)
    temperature: float = option(
        AMOUNT, "Sampling temperature; 0 takes the likeliest token.", default=0.0, shown="0"
    )
    seed: int = option(NUMBER, "Seed of sampling, and of heads that a base model lacks.", default=0)
