"""Options of `fmtkit train` that are not keys of its config, and of the commands for trained runs."""

from fmtkit.core.data_classes import dataclass
from fmtkit.core.options import (
    AMOUNT,
    COUNT,
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

    dry_run: bool = option(
        SWITCH, "Print the plan; write nothing and start nothing.", default=False
    )
    prepare: bool = option(
        SWITCH, "Write the run folder and print the command, but do not start it.", default=False
    )
    partial: bool = option(
        SWITCH,
        "With --dry-run: accept an incomplete config, and guess what is missing.",
        default=False,
    )
    overrides: tuple[str, ...] = option(
        TEXTS,
        "KEY=VALUE to override the config; keys are dotted, with indexes into lists.",
        default=(),
        flags=("--set",),
    )
    method: str | None = option(
        TEXT, "The method, such as sft, dpo or grpo: the key rl of the config.", keys=("rl",)
    )
    num_processes: int | None = option(
        COUNT, "Number of training processes on this machine.", keys=("num_processes",)
    )
    accelerate_config: str | None = option(
        PATH,
        "Config of accelerate: single, multi_gpu, fsdp2, zero1, zero2, zero3, or a file.",
        keys=("accelerate_config",),
    )
    resume: bool = option(SWITCH, "Resume from the run's last checkpoint.", default=False)
    rebuild: bool = option(SWITCH, "Convert the datasets again.", default=False)


@dataclass(frozen=True)
class MergeOptions(Options):
    """Options of `fmtkit merge`."""

    panel = "Merging"

    out: str | None = option(PATH, "Folder to write; default: RUN/merged.", flags=("--out", "-o"))
    checkpoint: str | None = option(TEXT, "A checkpoint of the run, by name or step.")
    adapter: str | None = option(PATH, "Folder of an adapter, instead of a run.")
    model: str | None = option(
        PATH, "The base model, if it is not at the path in the adapter's config."
    )
    dtype: str | None = option(
        OPTIONAL_CHOICE,
        "Data type of the merged weights; default: that of the base model.",
        choices=("float32", "bfloat16", "float16"),
    )


@dataclass(frozen=True)
class TryOptions(Options):
    """Options of `fmtkit try`."""

    prompt: tuple[str, ...] = option(
        TEXTS, "A prompt to answer; without one, each line of stdin is a prompt.", default=()
    )
    data: str | None = option(PATH, "Rows to answer or score: a source, as for `convert`.")
    type: str | None = option(
        TEXT, "Type of the rows; default: that of the run's dataset.", flags=("--type", "-t")
    )
    limit: int = option(COUNT, "Number of rows or lines to read.", default=20)
    checkpoint: str | None = option(TEXT, "A checkpoint of the run, by name or step.")
    model: str | None = option(
        PATH, "The base model, if it is no longer at the path in the run's config."
    )
    max_new_tokens: int = option(COUNT, "Maximum number of tokens in an answer.", default=128)
    temperature: float = option(
        AMOUNT, "Sampling temperature; 0 is greedy decoding.", default=0.0, shown="0"
    )
    n: int = option(
        COUNT,
        "Answers sampled for each prompt, of which --reward picks the best.",
        default=1,
        flags=("--n", "-n"),
    )
    reward: str | None = option(
        TEXT,
        "The reward of best of n, as in trl.reward_funcs: module.function, or one of fmtkit.rewards.",
    )
    judge: str | None = option(
        TEXT,
        "module.function that says which of two answers is better: 0, 1 or 'tie'; or the URL of an "
        "OpenAI-compatible server, such as http://localhost:8000/v1.",
    )
    judge_model: str | None = option(TEXT, "The model of the server that --judge names.")
    against: str = option(
        PATH,
        "What the judge compares with: base, references, or the folder of another run.",
        default="base",
        shown="base",
    )
    seed: int = option(
        NUMBER,
        "Random seed for sampling, and for initializing heads that the base model lacks.",
        default=0,
    )
