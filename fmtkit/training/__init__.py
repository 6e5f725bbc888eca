"""Training: from a configuration to a trained model."""

from fmtkit.training.planning import Plan, plan
from fmtkit.training.run import Outcome, train

__all__ = ["Outcome", "Plan", "plan", "train"]
