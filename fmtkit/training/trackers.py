"""Where a run's metrics go besides its folder: what `report_to` names must be installed."""

from importlib.util import find_spec

from fmtkit.errors import DependencyError, UnknownNameError
from fmtkit.training.planning import Plan

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


def check(plan: Plan) -> None:
    """Raise UnknownNameError or DependencyError for a tracker that no run could report to."""
    argument = plan.resolution.trainer.get("report_to")
    wish = argument.value if argument is not None else None
    for name in wish if isinstance(wish, list) else [wish] if wish else []:
        if name in NOT_A_TRACKER:
            continue
        if name not in PACKAGES:
            raise UnknownNameError("tracker (report_to)", str(name), PACKAGES)
        packages = PACKAGES[name]
        if packages and not any(map(find_spec, packages)):
            raise DependencyError(
                f"report_to: {name} is not installed: pip install {packages[0]}, or leave it out; "
                "metrics.jsonl and the run's page are written all the same"
            )
