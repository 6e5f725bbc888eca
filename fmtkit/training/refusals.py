"""What no run can honour: combinations of keys, each with the reason and what to do instead.

A refusal is named, so that a test can say which configuration ends in which one.
"""

from fmtkit.errors import OptionError
from fmtkit.runner import Runner
from fmtkit.training import refusals_data, refusals_method, refusals_model, refusals_run
from fmtkit.training.config import Config

REFUSALS = (
    refusals_method.REFUSALS
    | refusals_model.REFUSALS
    | refusals_data.REFUSALS
    | refusals_run.REFUSALS
)
"""Name -> why a configuration cannot be honoured, or None; the first of several is told."""


class RefusalError(OptionError):
    """Say which combination cannot be honoured, why, and what to do."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{message} [{name}]")
        self.name = name


def check(config: Config, chosen: Runner) -> None:
    """Raise RefusalError for the first combination that cannot be honoured."""
    for name, why in REFUSALS.items():
        reason = why(config, chosen)
        if reason is not None:
            raise RefusalError(name, reason)
    for name, own in chosen.refusals.items():
        reason = own(config)
        if reason is not None:
            raise RefusalError(name, reason)
