"""The outcome of `fmtkit train` on stdout: a plan, or the report of a run."""

import json
import shlex
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fmtkit.training.run.run import Outcome


def print_outcome(
    outcome: "Outcome", *, as_json: bool, dry_run: bool, prepared: bool = False
) -> None:
    """Print the plan of a dry run, the command of a prepared one, or where a finished one left its model."""
    if dry_run:
        sys.stdout.write(f"{outcome.plan.dumps() if as_json else outcome.plan}\n")
    elif prepared:
        command = shlex.join(outcome.plan.launch.command)
        sys.stdout.write(f"{outcome.plan.dumps() if as_json else command}\n")
    elif outcome.report is not None:
        whole = json.dumps(outcome.report, indent=1, ensure_ascii=False)
        sys.stdout.write(f"{whole if as_json else outcome.plan.run / 'model'}\n")
