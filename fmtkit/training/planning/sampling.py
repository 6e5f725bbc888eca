"""`generate_samples`: how many prompts are answered at each evaluation, and which runs cannot do it."""

from collections.abc import Callable, Iterator, Mapping

from fmtkit.core.runner import Runner, methods
from fmtkit.training.planning.check import Run, check_config, check_run
from fmtkit.training.planning.images import has_images
from fmtkit.training.planning.run_plan import Plan

KEY = "generate_samples"
COUNT = "num_generation_samples"
TOKENS = "generation_max_new_tokens"
TEMPERATURE = "generation_temperature"
FEW = 3
"""Prompts that are answered where only `true` is asked for: the number of axolotl."""


def count_of(setting: Callable[[str], object]) -> int:
    """Return how many prompts are answered at each evaluation; 0 for none."""
    asked, count = setting(KEY), setting(COUNT)
    if asked is True:
        return count if isinstance(count, int) else FEW
    return asked if isinstance(asked, int) else 0


def answers(runner: Runner) -> bool:
    """Return whether a method's model answers prompts that nothing else of the run shows answers to."""
    return runner.head == "causal" and bool(runner.mask)


@check_config(
    KEY,
    "config",
    "`generate_samples` for methods and launches that it is not for",
    keys=(KEY,),
)
def find_unsampled(plan: Plan) -> Iterator[str]:
    """Yield why no samples can be made during the run."""
    config = plan.config
    if not count_of(config.get):
        return
    if config.get(COUNT) not in (None, count_of(config.get)):
        yield f"{KEY} and {COUNT} are two numbers for one thing; keep one"
    runner = plan.runner
    if runner.head != "causal":
        yield f"{KEY}: {plan.method} trains a head that scores, and answers nothing; leave it out"
    elif not answers(runner):
        yield (
            f"{KEY}: {plan.method} samples answers as it trains, and keeps some in completions.parquet; "
            f"leave it out (it is for {methods(answers)})"
        )
    kind = (plan.launch.accelerate or {}).get("distributed_type")
    inside = (plan.launch.accelerate or {}).get("deepspeed_config")
    is_split = kind == "FSDP" or (isinstance(inside, Mapping) and inside.get("zero_stage") == 3)
    if is_split:
        yield (
            f"{KEY}: {plan.launch.profile} splits the weights over processes, and none can answer alone; "
            "leave it out, and use `fmtkit try RUN --checkpoint N`"
        )


@check_run("sampled_images", "files", "`generate_samples` for rows with images")
def find_sampled_images(run: Run) -> str | None:
    """Return why rows with images are not answered."""
    if count_of(run.plan.config.get) and has_images(run):
        return f"{KEY}: prompts with images are not answered during training; leave it out"
    return None
