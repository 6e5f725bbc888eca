"""The plan of a run: every dataset, argument and command, where each came from, and what is missing."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fmtkit.core import runner
from fmtkit.core.errors import OptionError
from fmtkit.core.runner import Runner
from fmtkit.formats import registry
from fmtkit.training.config.config import Config, Setting, is_plain_path, load
from fmtkit.training.config.problems import Problem, Problems
from fmtkit.training.planning import (
    chat_templates,
    checks,
    dataset_entries,
    device_checks,
    extensions,
    hooks,
    idle,
    launch,
    model_refusals,
    plugin_entries,
    refusals,
    sampling,
    schedules,
    trainer_choice,
    trl_refusals,
)
from fmtkit.training.planning.check import add_notes, of_plan, run_checks
from fmtkit.training.planning.max_steps import few_steps
from fmtkit.training.planning.resolve import derive, resolve
from fmtkit.training.planning.run_plan import Plan
from fmtkit.training.planning.types import TEST, DatasetPlan, Launch
from fmtkit.writing.outputs import local_path

_DECLARING = (
    checks,
    device_checks,
    dataset_entries,
    extensions,
    idle,
    model_refusals,
    plugin_entries,
    refusals,
    sampling,
    schedules,
    trl_refusals,
)
"""Modules that declare checks and notes of any plan; those of a section are for methods that take it."""


def plan(
    source: str | Path | Mapping[str, object] | Config,
    overrides: Sequence[str] = (),
    *,
    partial: bool = False,
) -> Plan:
    """Plan a run, and run every check that is declared and needs no model and no data.

    With `partial` a fragment is planned too, and what it lacks is listed. Raises one error with every
    problem that was found: a RefusalError, or where there is only one its own class: UnknownNameError,
    OptionError, DependencyError where the installed TRL is not one that the method works with.
    """
    config = source if isinstance(source, Config) else load(source, overrides, collect=True)
    if partial:
        config = _completed(config)
    problems = Problems()
    problems.found += config.problems
    made = _started(config, problems)
    derive(made, problems)
    add_notes(made)
    made = _with_datasets(made, problems)
    run_checks(made, problems, of_plan(made))
    readings = tuple(dataset.reading for dataset in made.all_datasets)
    with problems.collecting("template"):
        made = replace(made, template=chat_templates.template_of(config, readings))
    made = replace(made, missing=tuple(_missing(config, made.runner)))
    if made.missing and not partial:
        problems.found.append(_incomplete(made.missing))
    problems.check(config.source, config.lines)
    notes = (
        *config.notes,
        *trainer_choice.notes(config, made.runner),
        *made.arguments.notes,
        *made.launch.notes,
        *dataset_entries.notes(config, readings),
        *dataset_entries.absent_functions(config, readings),
    )
    return replace(made, notes=notes, limits=few_steps(made))


def _started(config: Config, problems: Problems) -> Plan:
    """Return a plan with what the keys say one by one."""
    chosen = trainer_choice.runner_of(config)
    package = trainer_choice.package_of(config, chosen, problems)
    made = Plan(config, chosen, Path("runs") / _stem(config), package)
    made = replace(made, arguments=resolve(config, chosen, problems))
    with problems.collecting("value", "output_dir"):
        named = config.text("output_dir") or str(made.run)
        run = Path(named) if is_plain_path(named) else local_path(named, "output_dir")
        made = replace(made, run=run)
    made = replace(made, launch=Launch.of_one_process(made.run))
    if config.sets("to launch"):
        with problems.collecting("launch"):
            made = replace(made, launch=launch.make(config, made.run))
    return made


def _with_datasets(made: Plan, problems: Problems) -> Plan:
    """Return a plan with the datasets whose type is understood."""
    if made.config.sets("plugins"):
        with problems.collecting("user_code", "plugins"):
            for plugin in plugin_entries.plugin_files(made.config):
                registry.load_plugin(plugin)
    planned = list(_datasets(made.config, made.runner, problems))
    train = tuple(one for one in planned if not one.is_test)
    return replace(made, datasets=train, test_datasets=tuple(o for o in planned if o.is_test))


def _completed(config: Config) -> Config:
    """Return a fragment with the method that its keys suggest, if it names none."""
    if config.method() != runner.DEFAULT or config.get("rl") is not None:
        return config
    tables = dataset_entries.tables_of(config.datasets[0]) if config.datasets else ()
    method = None
    # The default method's tables are no evidence for other methods.
    if not {*tables} & {*runner.find(runner.DEFAULT).tables}:
        method = next(filter(None, (runner.guess({table}) for table in tables)), None)
    if method is None:
        method = runner.guess({name.partition(".")[0] for name in config.settings})
    if method is None:
        return config
    guess = Setting(method, "guess for a fragment")
    return replace(config, settings={**config.settings, "rl": guess})


def _missing(config: Config, chosen: Runner) -> list[str]:
    """Return the required keys that are missing."""
    needed = ["base_model"] if config.is_fragment else []
    provided = chosen.provided(config)
    if not config.datasets and "datasets" not in provided:
        needed.append("datasets")
    needed += [key for part in chosen.hooks(hooks.MISSING) for key in part(config)]
    if "teacher" in chosen.needs and config.get("teacher_model") is None:
        needed.append("teacher_model")
    is_rewarded = config.get("trl.reward_funcs") or config.get("trl.environment_factory")
    if "rewards" in chosen.needs and not is_rewarded and "rewards" not in provided:
        needed.append("trl.reward_funcs")
    if "reward_model" in chosen.needs and config.get("reward_model_path") is None:
        needed.append("reward_model_path")
    return needed


def _datasets(config: Config, chosen: Runner, problems: Problems) -> Iterator[DatasetPlan]:
    """Yield every dataset whose type is understood."""
    named = dataset_entries.entries(config)
    with problems.collecting("section"):
        for datasets in chosen.hooks(hooks.DATASETS):
            if listed := datasets(config):
                tests = {name: entry for name, entry in named.items() if name.startswith(TEST)}
                named = {**listed, **tests}
    for name, entry in named.items():
        with problems.collecting("type", f"{name}.type"):
            yield DatasetPlan(name, entry, dataset_entries.read(entry, config, chosen))


def _incomplete(missing: tuple[str, ...]) -> Problem:
    return Problem(
        "missing",
        f"{', '.join(missing)}: needed to train; --dry-run --partial plans what is there",
        error=OptionError,
    )


def _stem(config: Config) -> str:
    return Path(config.source).stem if config.source != "<mapping>" else config.method()
