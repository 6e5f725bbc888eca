"""Checks of a config class and its trainer on their arguments, run on a plan's values.

TRL says what it refuses in Python: `if self.loss_type not in (...): raise ValueError`. A copied list of such
rules would go out of date, so the statements themselves are followed in the installed source
(`interpreter`). A check is a problem only if it fails whatever the values are that a plan does not know. What
the model's config has and which packages are installed is known once files and the machine may be looked at.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

from fmtkit.training.config.keys import arguments_of
from fmtkit.training.config.problems import Problem
from fmtkit.training.config.trainer_source import UNKNOWN, find_class, installed
from fmtkit.training.planning import images, model_overrides
from fmtkit.training.planning.check import Run, advice, check_config, check_run
from fmtkit.training.planning.interpreter import NOTHING, Known, failures, loader_failures
from fmtkit.training.planning.run_plan import Plan
from fmtkit.training.planning.types import Argument

_DECIDED_LATER = (
    "assistant_only_loss",
    "bf16",
    "dataloader_pin_memory",
    "device",
    "model_init_kwargs",
    "n_gpu",
    "remove_unused_columns",
    "teacher_model_init_kwargs",
    "use_cpu",
)
"""Arguments that the training process sets from the device and the rows, if the configuration does not."""


_SET_HERE: dict[str, object] = {
    "output_dir": "checkpoints",
    "disable_tqdm": True,
    "logging_nan_inf_filter": False,
}


@check_config(
    "trainer_rule", "config", "combinations of arguments that the trainer's own source refuses"
)
def check(plan: Plan) -> Iterator[Problem]:
    """Yield what the trainer's config class and the trainer would raise for these arguments."""
    yield from _problems(plan, NOTHING)


@check_run(
    "trainer_rule_model",
    "files",
    "arguments that the trainer's own source refuses for a local model",
)
def find_with_model(run: Run) -> Iterator[Problem]:
    """Yield what the trainer would raise for these arguments and a model with this config."""
    settings = model_overrides.settings_of(run.plan.config)
    if settings:
        yield from _problems(run.plan, Known(settings=settings))


@check_run(
    "trainer_rule_package",
    "device",
    "arguments that the trainer's own source refuses without a package that is not installed",
)
def find_with_packages(run: Run) -> Iterator[Problem]:
    """Yield what the trainer would raise for these arguments and the packages of this machine."""
    yield from _problems(run.plan, Known(packages=True))


@check_run(
    "trainer_rule_images",
    "files",
    "arguments that the trainer's own source refuses for rows with images",
)
def find_with_images(run: Run) -> Iterator[Problem]:
    """Yield what the trainer would raise for these arguments and rows with images."""
    if run.plan.runner.takes_images and images.has_images(run):
        yield from _problems(run.plan, Known(images=True))


def _problems(plan: Plan, known: Known) -> Iterator[Problem]:
    out, fields = plan.arguments, arguments_of(plan.runner)
    config_class = find_class(plan.runner.config) if fields.checked else None
    if config_class is None:
        return
    trainer = find_class(plan.runner.trainer)
    values = values_of(plan)
    made_by = f"{fields.class_name} of {fields.package}"
    found = [(made_by, one) for one in failures(config_class, values, trainer, known)]
    found += [(f"DataLoader of torch {installed('torch')}", one) for one in loader_failures(values)]
    if plan.config.is_fragment:
        # What there is advice on lies in the keys that are there, whatever the rest of the config sets.
        whole = failures(config_class, values_of(plan, is_whole=True), trainer, known)
        yield from filter(None, (_advised(plan, one) for one in whole))
    seen: set[str] = set()
    for source, failure in found:
        named = _named(failure, out.trainer.values())
        if seen.isdisjoint(named):
            # A later rule about an argument that an earlier one refuses is the same fault.
            yield _advised(plan, failure) or Problem(
                "", f"{source}: {_shortened(failure)}", _key(named)
            )
        seen |= named.keys()


def _advised(plan: Plan, failure: str) -> Problem | None:
    """Return what fmtkit says in place of an error, if anything."""
    text = " ".join(failure.split())
    told = ((one.code, one.say(plan)) for one in advice(plan.runner) if one.words in text)
    return next((Problem(code, said) for code, said in told if said is not None), None)


def values_of(plan: Plan, *, is_whole: bool = False) -> dict[str, object]:
    """Return the arguments of the config class, defaults included; what a plan does not know is UNKNOWN.

    With `is_whole` a fragment is taken for a whole config: what it leaves out has its default.
    """
    config, out, fields = plan.config, plan.arguments, arguments_of(plan.runner)
    values = {name: entry.default for name, entry in fields.fields.items()}
    values |= dict.fromkeys(_DECIDED_LATER, UNKNOWN) | _SET_HERE
    values |= {a.name: a.value for a in out.trainer.values() if a.value != "auto"}
    values |= {a.name: UNKNOWN for a in out.trainer.values() if a.value == "auto"}
    if config.is_fragment and not is_whole:
        # The rest of a fragment may say how large its batches are.
        values |= dict.fromkeys(set(fields.fields) - set(out.trainer), UNKNOWN)
    processes = plan.launch.processes
    values["world_size"] = UNKNOWN if processes is None else processes
    return values


def _named(failure: str, arguments: Iterable[Argument]) -> dict[str, Argument]:
    """Return the arguments that a message names and that a key set."""
    return {
        a.name: a
        for a in arguments
        if a.origin.startswith(("key ", "--set ")) and re.search(rf"\b{a.name}\b", failure)
    }


def _key(named: Mapping[str, Argument]) -> str:
    """Return the key that set the first of these arguments."""
    first = next((a.origin for a in named.values() if a.origin.startswith("key ")), "")
    return first.removeprefix("key ")


def _shortened(failure: str) -> str:
    text = " ".join(failure.split())
    return text if len(text) <= 300 else text[:299] + "…"
