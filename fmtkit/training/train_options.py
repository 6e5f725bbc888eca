"""The options of `fmtkit train`, beside those of its config, and of the commands on what it has trained."""

from dataclasses import dataclass

from fmtkit.options import (
    COUNT,
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
        "KEY=VALUE over the config's; dotted, lists by index.",
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
    resume: bool = option(SWITCH, "Go on from the run's last checkpoint.", default=False)
    rebuild: bool = option(SWITCH, "Convert the datasets again.", default=False)


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
        "Of the merged weights; as the base model's unless set.",
        choices=("float32", "bfloat16", "float16"),
    )
