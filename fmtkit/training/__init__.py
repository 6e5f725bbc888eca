"""Training: from a configuration to a trained model.

The names are loaded on first use: a training process imports this package and needs no plan.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fmtkit.training.planning.plan import plan
    from fmtkit.training.planning.run_plan import Plan
    from fmtkit.training.run.run import Outcome, train

__all__ = ["Outcome", "Plan", "plan", "train"]

_MODULES = {
    "Outcome": "run.run",
    "Plan": "planning.run_plan",
    "plan": "planning.plan",
    "train": "run.run",
}


def __getattr__(name: str) -> object:
    """Load a public name from the module that defines it."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
