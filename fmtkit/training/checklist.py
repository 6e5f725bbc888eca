"""Every check of a run, in one list: its code, what it needs to be answered, and what it looks for.

`fmtkit train` runs them all, `--dry-run` those that need no data; all problems are told at once. What a
check needs: `config` the keys alone, `files` what lies on this machine (models, data files, templates,
modules), `device` its GPUs and packages, `data` the converted rows. A dry run may be made elsewhere than
the run: what is missing of `device` is a note there.
"""

from importlib import import_module

from fmtkit.runner import SECTIONS, Refusal, Runner, shipped
from fmtkit.training import (
    argument_checks,
    data_checks,
    refusals_data,
    refusals_method,
    refusals_model,
    refusals_run,
    trackers,
)
from fmtkit.training.check import Check, Find, Needs, of_keys

KEYS: tuple[Check, ...] = (
    *of_keys(refusals_method.RULES),
    *of_keys(refusals_model.RULES),
    *of_keys(refusals_data.RULES),
    *of_keys(refusals_run.RULES),
    Check(
        "split",
        "config",
        "slices that are no slices or hold no row, shards that are not there",
        lambda s: data_checks.check_slices(s.config),
    ),
    Check(
        "template",
        "files",
        "chat templates that are not known, not there or do not compile",
        lambda s: data_checks.check_template(s.config),
    ),
    Check(
        "source",
        "files",
        "datasets whose files are not there",
        lambda s: data_checks.check_sources(s.config),
    ),
)
"""Checks that need the keys alone, before anything is made of them."""

ARGUMENTS: tuple[Check, ...] = (
    Check(
        "type_options",
        "config",
        "options, columns and formats that a dataset's type does not take",
        lambda s: data_checks.check_types(s.readings),
    ),
    Check("tracker", "config", "a tracker of no such name in `report_to`", trackers.check_names),
    Check(
        argument_checks.CODE,
        "config",
        "arguments that the trainer's own source refuses together",
        lambda s: argument_checks.check(s.config, s.runner, s.resolution, s.launching),
    ),
)
"""Checks of the arguments that were made of the keys."""

MAKING: tuple[tuple[str, str], ...] = (
    ("unknown_key", "keys that nothing takes, or that are written twice"),
    ("value", "values that a key does not take"),
    ("refused_key", "keys that ask for what cannot be done"),
    ("missing", "keys without which nothing can train"),
    ("package", "a TRL that lacks the method's trainer"),
    ("type", "types that are not known, or make rows that the method does not take"),
    ("argument", "arguments that the trainer's class, LoraConfig or from_pretrained does not take"),
    ("conflict", "two keys that set one argument to different values"),
    ("launch", "ways of launching that contradict each other or are not there"),
    ("section", "keys of `ebft` or of a NeMo Gym that do not go together"),
)
"""Codes of what is found while the plan is made, beside the checks."""


PREFLIGHT: tuple[tuple[str, Needs, str], ...] = (
    ("model", "files", "models and adapters that are not there, or have another head"),
    (
        "tokenizer",
        "files",
        "tokenizers without a padding token, a template or a token that is named",
    ),
    ("user_code", "files", "rewards, rollouts, tools and environments that are not there"),
    ("device", "device", "a run that needs GPUs where none, or fewer, are visible"),
    ("tracker_package", "device", "trackers of `report_to` that are not installed"),
    ("server", "device", "what keeps a vLLM server or a NeMo Gym from working with the run"),
    ("rows", "data", "no rows, rows of one label, prompts that end with an answer"),
)
"""Code, need and meaning of what fmtkit.training.run looks for once the plan is made."""


def of_sections(runner: Runner | None = None) -> tuple[Check, ...]:
    """Return the checks of the sections that a method takes; of all sections without one."""
    taken = SECTIONS if runner is None else [s for s in SECTIONS if s in runner.sections]
    modules = (import_module(name) for section in taken for name in SECTIONS[section])
    return tuple(check for module in modules for check in getattr(module, "CHECKS", ()))


def of_method(runner: Runner) -> tuple[Check, ...]:
    """Return the checks that a method's runner makes itself."""

    def bound(rule: Refusal) -> Find:
        return lambda subject: rule(subject.config)

    about = f"what {runner.method} cannot honour"
    return tuple(Check(code, "config", about, bound(r)) for code, r in runner.refusals.items())


def every() -> tuple[Check, ...]:
    """Return everything that is looked for: while the plan is made, then check by check."""
    later = (Check(code, needs, about, lambda _: None) for code, needs, about in PREFLIGHT)
    made = (Check(code, "config", about, lambda _: None) for code, about in MAKING)
    own = (check for runner in shipped() for check in of_method(runner))
    return (*made, *KEYS, *own, *of_sections(), *ARGUMENTS, *later)
