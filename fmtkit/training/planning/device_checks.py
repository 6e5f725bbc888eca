"""Checks of the machine: GPUs that a run needs, and packages of its optimizer and trackers."""

import re
from collections.abc import Iterator
from importlib.util import find_spec

from fmtkit.core.errors import DependencyError, UnknownNameError
from fmtkit.training.config.problems import Problem
from fmtkit.training.planning import hooks, visible_gpus
from fmtkit.training.planning.check import Run, check_config, check_run
from fmtkit.training.planning.run_plan import Plan


@check_run("device", "device", "a run that needs GPUs where none are visible")
def find_device(run: Run) -> str | None:
    """Report why a run that needs a GPU cannot have one; the training process asks torch again."""
    plan = run.plan
    what = _needing_cuda(plan)
    if what is None or visible_gpus.may_be_there(visible_gpus.of_run(plan.arguments)):
        return next(
            filter(None, (why(plan) for why in plan.runner.hooks(hooks.LACKING_DEVICE))), None
        )
    return f"{what} a CUDA device, and none is visible; nothing was converted or loaded"


_OF_GPUS = (
    *("to quantization", ("adapter", "qlora"), "peft.loftq_config", "peft_init_lora_weights"),
    *("to model", "to launch"),
)
"""Keys without which no run needs a GPU, by itself."""


@check_config(
    "cpu_only",
    "config",
    "`use_cpu` with quantized weights, LoftQ or a way of launching that needs GPUs",
    keys=_OF_GPUS,
)
def find_cpu_only(plan: Plan) -> Problem | None:
    """Return the problem of `use_cpu` beside what needs a GPU: no machine can train that."""
    if not plan.uses_cpu:
        return None
    what = _needing_cuda(plan)
    if what is None:
        return None
    text = f"{what} a CUDA device, and use_cpu: true trains without; leave one of the two out"
    return Problem("", text, "use_cpu")


def _needing_cuda(plan: Plan) -> str | None:
    """Return what of a run needs a GPU, with its verb."""
    if plan.arguments.is_quantized:
        return "quantized weights need"
    if _is_loftq(plan):
        return "peft.loftq_config: LoftQ needs"
    if plan.arguments.value("attn_implementation", "model") == "flex_attention":
        # It has no backward pass on a CPU.
        return "attn_implementation: flex_attention needs"
    return f"launching by {plan.launch.profile} needs" if plan.launch.needs_cuda else None


_OF_PACKAGES: tuple[tuple[str, str, str], ...] = (
    (r"adamw_torch_[48]bit", "torchao", "torchao"),
    (r"galore_.*", "galore_torch", "galore-torch"),
    (r".*_(8bit|bnb)(_.*)?|paged_.*|lion_.*|ademamix", "bitsandbytes", "bitsandbytes"),
    (r"(ada)?lomo", "lomo_optim", "lomo-optim"),
    (r"grokadamw", "grokadamw", "grokadamw"),
    (r"schedule_free_.*", "schedulefree", "schedulefree"),
    (r"apollo_.*", "apollo_torch", "apollo-torch"),
    (r"stable_adamw", "optimi", "torch-optimi"),
)
"""Names of transformers' optimizers, the module that each needs, and the package that has it."""


_LOFTQ = ("bitsandbytes", "scipy")
"""The packages by which PEFT quantizes weights for LoftQ."""


def _is_loftq(plan: Plan) -> bool:
    """Return whether an adapter of the run starts by LoftQ."""
    starts_by_it = plan.arguments.value("init_lora_weights", "peft") == "loftq"
    return bool(plan.adapter) and starts_by_it


@check_run("optimizer_package", "device", "an optimizer or LoftQ without its package")
def find_packages(run: Run) -> Problem | None:
    """Return the problem of an optimizer, or of LoftQ, whose package is not installed."""
    lacking = [name for name in _LOFTQ if find_spec(name) is None]
    if lacking and _is_loftq(run.plan):
        message = (
            f"peft.loftq_config: LoftQ needs {' and '.join(lacking)}: pip install "
            f"{' '.join(lacking)}, or leave it out"
        )
        return Problem("", message, "peft.loftq_config")
    optimizer = str(run.plan.arguments.value("optim") or "")
    needed = next((one for one in _OF_PACKAGES if re.fullmatch(one[0], optimizer)), None)
    if needed is not None and find_spec(needed[1]) is None:
        package = needed[2]
        message = f"optimizer: {optimizer} needs the package {package}: pip install {package}, or adamw_torch"
        return Problem("", message, "optimizer")
    return None


TRACKERS: dict[str, tuple[str, ...]] = {
    "tensorboard": ("tensorboard", "tensorboardX"),
    "wandb": ("wandb",),
    "trackio": ("trackio",),
    "mlflow": ("mlflow",),
    "comet_ml": ("comet_ml",),
    "azure_ml": ("azureml",),
    "clearml": ("clearml",),
    "codecarbon": ("codecarbon",),
    "dagshub": ("dagshub",),
    "dvclive": ("dvclive",),
    "flyte": ("flytekit",),
    "kubeflow": (),
    "neptune": ("neptune",),
    "swanlab": ("swanlab",),
}
"""Tracker's name in transformers 5.23 -> packages, one of which must be installed."""


@check_config(
    "tracker",
    "config",
    "an unknown tracker in `report_to`",
    keys=("report_to",),
)
def check_trackers(plan: Plan) -> None:
    """Raise UnknownNameError for an unknown tracker."""
    for name in plan.arguments.trackers:
        if name not in TRACKERS:
            raise UnknownNameError("tracker (report_to)", name, TRACKERS)


@check_run("tracker_package", "device", "trackers of `report_to` that are not installed")
def find_absent_trackers(run: Run) -> Iterator[Problem]:
    """Yield trackers that are not installed."""
    for name in run.plan.arguments.trackers:
        packages = TRACKERS[name]
        if packages and not any(map(find_spec, packages)):
            text = (
                f"report_to: {name} is not installed: pip install {packages[0]}, or leave it out; "
                "metrics.jsonl and the run's page are still written"
            )
            yield Problem("", text, "report_to", DependencyError)


@check_run("processes", "device", "more processes than visible GPUs")
def find_processes(run: Run) -> Problem | None:
    """Return the problem of more processes than GPUs; a run without GPUs is a separate check."""
    plan = run.plan
    count = plan.config.processes
    seen = visible_gpus.visible(visible_gpus.of_run(plan.arguments))
    is_here = run.trains_here and plan.launch.is_local and not plan.uses_cpu
    if count is not None and is_here and 0 < len(seen) < count:
        return Problem(
            "",
            f"num_processes: {count} processes for {len(seen)} visible GPUs; each takes one: set "
            f"num_processes: {len(seen)}, or use_cpu: true",
            "num_processes",
        )
    return None
