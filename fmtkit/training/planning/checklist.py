"""Every check of a run, in one list: its code, what it needs, and what it looks for.

`fmtkit train` runs them all, in the order of this file; all problems are reported at once. `--dry-run` runs
those that need no server and no data, and the plan names the others. A dry run may be made on a different
machine, so missing modules of the user and missing devices are only notes there.
"""

from fmtkit.training.planning import (
    checks,
    dataset_entries,
    refusals,
    schedules,
    trainer_rules,
)
from fmtkit.training.planning.check import (
    Check,
    Subject,
    of_keys,
)

KEYS: tuple[Check[Subject], ...] = (
    *of_keys(refusals.RULES),
    Check(
        "split",
        "config",
        "invalid or empty slices, and shards that do not exist",
        dataset_entries.check_slices,
    ),
    Check(
        "template",
        "files",
        "chat templates that are unknown, do not exist or do not compile",
        dataset_entries.check_template,
    ),
    Check(
        "source",
        "files",
        "datasets whose files do not exist",
        dataset_entries.check_sources,
    ),
)
"""Checks that need only the keys."""

ARGUMENTS: tuple[Check[Subject], ...] = (
    Check(
        "type_options",
        "config",
        "options, columns and formats that a dataset's type does not have",
        dataset_entries.check_types,
    ),
    Check(
        "cpu_only",
        "config",
        "`use_cpu` with quantized weights, LoftQ or a way of launching that needs GPUs",
        checks.find_cpu_only,
    ),
    Check("tracker", "config", "an unknown tracker in `report_to`", refusals.check_trackers),
    Check(
        "schedule",
        "config",
        "a learning-rate schedule without a setting that it needs, or with one that it does not have",
        schedules.check,
    ),
    Check(
        "trainer_rule",
        "config",
        "combinations of arguments that the trainer's own source refuses",
        trainer_rules.check,
    ),
)
"""Checks of the arguments that follow from the keys."""

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
    ("section", "keys of `ebft` or of NeMo Gym that contradict each other"),
)
"""Codes of problems that are found while the plan is made, outside these checks."""
