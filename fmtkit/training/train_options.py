"""The options of `fmtkit train`, beside those of its config."""

from dataclasses import dataclass

from fmtkit.options import COUNT, PATH, SWITCH, TEXTS, Options, option


@dataclass(frozen=True)
class TrainOptions(Options):
    """Options of `fmtkit train`."""

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
