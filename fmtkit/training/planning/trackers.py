"""Where a run's metrics go besides its folder: what `report_to` names must be installed."""

from collections.abc import Iterator
from importlib.util import find_spec

from fmtkit.core.errors import DependencyError, UnknownNameError
from fmtkit.training.config.problem import Problem
from fmtkit.training.planning.check import Run, Subject
from fmtkit.training.planning.resolve import Resolution

PACKAGES: dict[str, tuple[str, ...]] = {
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
"""Name of transformers 5.23 -> the packages of which one must be there."""

NOT_A_TRACKER = frozenset({"all", "none"})


def check_names(subject: Subject) -> None:
    """Raise UnknownNameError for a tracker of no such name."""
    for name in _named(subject.resolution):
        if name not in PACKAGES:
            raise UnknownNameError("tracker (report_to)", name, PACKAGES)


def _named(resolution: Resolution) -> list[str]:
    argument = resolution.trainer.get("report_to")
    wish = argument.value if argument is not None else None
    listed = wish if isinstance(wish, list) else [wish] if wish else []
    return [str(name) for name in listed if name not in NOT_A_TRACKER]


def find_absent(run: Run) -> Iterator[Problem]:
    """Yield trackers that are not installed."""
    for name in _named(run.plan.resolution):
        packages = PACKAGES[name]
        if packages and not any(map(find_spec, packages)):
            text = (
                f"report_to: {name} is not installed: pip install {packages[0]}, or leave it out; "
                "metrics.jsonl and the run's page are written all the same"
            )
            yield Problem("", text, "report_to", DependencyError)
