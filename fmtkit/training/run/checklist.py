"""Every check of a run: its code, what it needs, and what it looks for, as declared beside its function.

`fmtkit train` runs them all; all problems are reported at once. `--dry-run` runs those that need no server
and no data, and the plan names the others. A dry run may be made on a different machine, so missing modules
of the user and missing devices are only notes there.
"""

import os
from typing import Any

from fmtkit.core.runner import shipped
from fmtkit.training.config.problems import Problems
from fmtkit.training.online import checks as online
from fmtkit.training.online import tool_templates
from fmtkit.training.online.rewards import needed_columns
from fmtkit.training.planning import first_rows, hooks, model_overrides, trainable, weight_names
from fmtkit.training.planning import plan as planning
from fmtkit.training.planning.check import (
    Check,
    Needs,
    Run,
    advice,
    check_run,
    of_config,
    of_method,
    of_run,
    run_checks,
)
from fmtkit.training.run import resuming, run_folder
from fmtkit.training.vllm import ready as vllm_ready

MODULES = (
    *(planning, first_rows, model_overrides, trainable, weight_names),
    *(needed_columns, online, tool_templates, resuming, run_folder),
)
"""Modules that declare checks, or import those that do: `plan` those of any plan."""

MAKING: tuple[tuple[str, str], ...] = (
    ("unknown_key", "unknown keys, and keys that are written twice"),
    ("value", "invalid values of keys"),
    ("refused_key", "keys that cannot be honoured"),
    ("missing", "required keys that are missing"),
    ("package", "a TRL version without the method's trainer"),
    ("type", "unknown types, and types whose rows the method does not take"),
    ("argument", "arguments that the config class, LoraConfig or from_pretrained does not have"),
    ("conflict", "two keys that set the same argument to different values"),
    ("launch", "launch settings that contradict each other or do not exist"),
    ("section", "keys of a section that contradict each other"),
)
"""Codes of problems that are found while the plan is made, outside these checks."""


def _has_servers(run: Run) -> bool:
    return run.plan.arguments.uses_vllm or any(run.plan.runner.hooks(hooks.CHECK))


@check_run(
    "server",
    "servers",
    "a server of vLLM or of an environment that cannot work with the run",
    concerns=_has_servers,
    promise="the servers answer, and fit the run",
)
def _check_servers(run: Run) -> None:
    for check_section in run.plan.runner.hooks(hooks.CHECK):
        check_section(run.plan)
    vllm_ready.check(run.plan, os.environ)


def check(run: Run, *needs: Needs) -> None:
    """Raise one error with all problems found by the checks of a run that need one of these."""
    problems = Problems()
    run_checks(run, problems, of_run(needs))
    problems.check(run.plan.config.source, run.plan.config.lines)


def waiting(run: Run) -> tuple[Check[Run], ...]:
    """Return the checks that no dry run can make: they need a server, or the rows."""
    return tuple(check for check in of_run(("servers", "data")) if check.concerns(run))


def every() -> tuple[Check[Any], ...]:
    """Return every check: first those made while the plan is made, then all others."""
    of_making = (Check[Any](code, "config", about, lambda _: None) for code, about in MAKING)
    of_runners = (check for runner in shipped() for check in of_method(runner))
    of_trainers = (Check[Any](a.code, "config", a.about, a.say) for a in advice() if a.about)
    named = {check.code: check for check in (*of_trainers, *of_runners)}
    # A check may be declared in parts: for some keys, and for methods that lack something.
    declared = {check.code: check for check in of_config()}
    return (*of_making, *declared.values(), *named.values(), *of_run())
