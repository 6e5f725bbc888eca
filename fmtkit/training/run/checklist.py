"""Every check of a run, in one list: its code, what it needs, and what it looks for.

`fmtkit train` runs them all, in the order of this file; all problems are reported at once. `--dry-run` runs
those that need no server and no data, and the plan names the others. A dry run may be made on a different
machine, so missing modules of the user and missing devices are only notes there. Those that a plan
is made with are in `planning.checklist`.
"""

import os
from typing import Any

from fmtkit.core.runner import shipped
from fmtkit.training.config.problem import Problems
from fmtkit.training.planning import (
    checks,
    first_rows,
    model_overrides,
    trainable,
    trainer_rules,
    weight_names,
)
from fmtkit.training.planning.check import (
    Check,
    Needs,
    Run,
    of_method,
    of_sections,
    run_checks,
    that_need,
)
from fmtkit.training.planning.checklist import ARGUMENTS, KEYS, MAKING
from fmtkit.training.rl.grpo import checks as online
from fmtkit.training.rl.grpo import tool_templates
from fmtkit.training.rl.rewards import needed_columns
from fmtkit.training.run import resuming, run_folder
from fmtkit.training.vllm import ready as vllm_ready


def _has_servers(run: Run) -> bool:
    return vllm_ready.is_used(run.plan) or any(run.plan.runner.hooks("check"))


def _check_servers(run: Run) -> None:
    for check_section in run.plan.runner.hooks("check"):
        check_section(run.plan)
    vllm_ready.check(run.plan, os.environ)


RUN: tuple[Check[Run], ...] = (
    Check(
        "run_folder",
        "files",
        "an output_dir that contains other files, or inputs of the run",
        run_folder.check,
    ),
    Check(
        "resume",
        "files",
        "a checkpoint to resume from that does not exist or is incomplete",
        resuming.check,
    ),
    Check(
        "own_template",
        "files",
        "a user's template that fails or does not terminate",
        checks.check_template,
    ),
    Check(
        "model",
        "files",
        "models, tokenizers and adapters that do not exist",
        checks.find_absent_models,
    ),
    Check("head", "files", "a model with a head for a different task", checks.find_head),
    Check("weights", "files", "weight files that are truncated or missing", checks.find_weights),
    Check(
        "module_names",
        "files",
        "keys that name modules or weights which a local model does not have",
        weight_names.find,
    ),
    Check(
        "model_overrides",
        "files",
        "`overrides_of_model_config` that a local model does not have, or that its weights do not fit",
        model_overrides.find,
    ),
    Check(
        "trainer_rule_model",
        "files",
        "arguments that the trainer's own source refuses for a local model",
        trainer_rules.find_with_model,
    ),
    Check(
        "tokenizer",
        "files",
        "tokenizers without a padding token, a chat template or a token that the config names, or with "
        "more tokens than the model has embeddings",
        checks.find_tokenizer,
    ),
    Check(
        "first_rows",
        "files",
        "local datasets that lack a column of their type, or whose first rows all fail",
        first_rows.find_unreadable,
    ),
    Check(
        "held_out",
        "files",
        "a `val_set_size` that leaves no row to train on",
        trainable.find_held_out,
    ),
    Check(
        "full_batch",
        "files",
        "fewer rows than one batch, where only full ones are trained on",
        trainable.find_no_batch,
    ),
    Check(
        "one_label",
        "files",
        "labels that are all the same, in the rows of small datasets",
        trainable.find_one_label,
    ),
    Check(
        "untrained",
        "files",
        "small datasets of which no message is trained on",
        trainable.find_untrained,
    ),
    Check(
        "turnless",
        "files",
        "`assistant_only_loss` for rows of text",
        trainable.find_turnless,
    ),
    Check(
        "user_code",
        "modules",
        "rewards, rollouts, tools and environments that do not exist",
        online.check_users_names,
        online.is_online,
    ),
    Check(
        "reward_columns",
        "files",
        "rewards that need a column which no row of the local datasets has",
        needed_columns.find,
        needed_columns.are_known,
    ),
    Check(
        "tool_template",
        "files",
        "tools with a chat template that cannot write tool calls, or whose replies TRL cannot read",
        tool_templates.find,
        tool_templates.has_tools,
    ),
    Check("device", "device", "a run that needs GPUs where none are visible", checks.find_device),
    Check("processes", "device", "more processes than visible GPUs", checks.find_processes),
    Check(
        "optimizer_package",
        "device",
        "an optimizer or LoftQ without its package",
        checks.find_packages,
    ),
    Check(
        "trainer_rule_package",
        "device",
        "arguments that the trainer's own source refuses without a package that is not installed",
        trainer_rules.find_with_packages,
    ),
    Check(
        "tracker_package",
        "device",
        "trackers of `report_to` that are not installed",
        checks.find_absent_trackers,
    ),
    Check(
        "server",
        "servers",
        "a vLLM server or NeMo Gym that cannot work with the run",
        _check_servers,
        _has_servers,
        "the servers answer, and fit the run",
    ),
    Check(
        "no_rows",
        "data",
        "no rows to train on",
        checks.find_no_rows,
        promise="there are rows to train on",
    ),
    Check(
        "answered_prompts",
        "data",
        "prompts that end with an answer",
        online.find_prompts,
        online.answers_prompts,
        "no prompt holds its answer",
    ),
    Check(
        "labels",
        "data",
        "labels that are all the same, or fewer rows than one batch",
        checks.find_labels,
        checks.has_labels,
        "labels of both kinds, in rows enough for a batch",
    ),
)
"""Checks of a complete plan, before anything is converted, and checks of the converted rows."""


def check(run: Run, *needs: Needs) -> None:
    """Raise one error with all problems found by the checks of a run that need one of these."""
    problems = Problems()
    run_checks(run, problems, that_need(RUN, needs))
    problems.check(run.plan.config.source, run.plan.config.lines)


def waiting(run: Run) -> tuple[Check[Run], ...]:
    """Return the checks that no dry run can make: they need a server, or the rows."""
    later = that_need(RUN, ("servers", "data"))
    return tuple(check for check in later if check.concerns(run))


def every() -> tuple[Check[Any], ...]:
    """Return every check: first those made while the plan is made, then all others."""
    of_making = (Check[Any](code, "config", about, lambda _: None) for code, about in MAKING)
    of_runners = (check for runner in shipped() for check in of_method(runner))
    return (*of_making, *KEYS, *of_runners, *of_sections(), *ARGUMENTS, *RUN)
