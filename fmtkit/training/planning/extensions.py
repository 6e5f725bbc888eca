"""Checks of the objects that a configuration adds to a trainer by their named paths; none is loaded."""

import ast
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from fmtkit.core.errors import DependencyError, OptionError
from fmtkit.core.runner import Runner, methods
from fmtkit.training.config import user_objects
from fmtkit.training.config.keys import arguments_of
from fmtkit.training.config.named_objects import (
    CALLBACKS,
    METRICS,
    OF_OPTIMIZER,
    OF_TRAINER,
    OPTIMIZER,
    Named,
    read_named,
)
from fmtkit.training.config.signatures import Signature, constructor, signature_of
from fmtkit.training.config.trainer_source import find_class
from fmtkit.training.config.user_objects import places_of
from fmtkit.training.planning.check import Run, check_config, check_run
from fmtkit.training.planning.resolve import has_evaluation
from fmtkit.training.planning.run_plan import Plan

_OF_EVALUATION = frozenset({"LogCompletionsCallback", "WeaveCallback"})
"""Callbacks of TRL that answer prompts of the evaluation rows."""
_PACKAGES = {"MergeModelCallback": "mergekit", "WeaveCallback": "weave"}
"""Callbacks of TRL that do nothing without a package."""
_BUILDS = "create_optimizer"
"""The beginning of the methods of transformers by which a trainer makes its optimizer."""


def signature(key: str, one: Named, places: Sequence[Path]) -> Signature | None:
    """Return what an object takes; None where it cannot be told, or its module is not there yet."""
    try:
        return signature_of(key, one.path, places)
    except OptionError:
        # That it is not there is reported where the user's modules must be (find_absent).
        return None


def _all(entries: Sequence[Named]) -> Iterator[Named]:
    """Yield objects, and those among their arguments."""
    for one in entries:
        yield one
        yield from _all([value for value in one.given.values() if isinstance(value, Named)])


@check_config(
    "callbacks",
    "modules",
    "callbacks that are none, or take other arguments",
    keys=(CALLBACKS,),
)
def find_callbacks(plan: Plan) -> Iterator[str]:
    """Yield the problems of the callbacks whose source can be read."""
    entries = read_named(CALLBACKS, plan.config.get(CALLBACKS))
    places = places_of(plan.config.source)
    for one in _all(entries):
        taken = signature(CALLBACKS, one, places)
        if taken is None:
            continue
        if one in entries and taken.bases is not None and "TrainerCallback" not in taken.bases:
            yield f"{CALLBACKS}: {one.path} is no TrainerCallback of transformers"
        fault = taken.problem(one.given, OF_TRAINER)
        if fault is not None:
            yield f"{CALLBACKS}: {one.path} {fault}"
        if _of_trl(one) in _OF_EVALUATION and not has_evaluation(plan.config):
            yield (
                f"{CALLBACKS}: {one.path} answers prompts of the evaluation rows, and there are none; set "
                "val_set_size or test_datasets, or generate_samples: N for answers in the run's page"
            )
        yield from (f"{CALLBACKS}: {one.path} {lack}" for lack in _lacks(one, plan))


def _lacks(one: Named, plan: Plan) -> Iterator[str]:
    """Yield what a callback of TRL needs of the run and does not find there, with what to do."""
    name = _of_trl(one)
    if name == "MergeModelCallback":
        if not plan.arguments.saves:
            yield "merges checkpoints, and save_strategy: no writes none; write steps or epoch"
        if plan.adapter is not None:
            yield (
                "merges checkpoints of whole models, and those of an adapter hold none; leave adapter "
                "out, or `fmtkit merge` the run afterwards"
            )
    is_named = one.given.get("project_name") or "wandb" in plan.arguments.trackers
    if name == "WeaveCallback" and not is_named:
        yield "needs the name of its project; give kwargs: {project_name: NAME}, or use_wandb: true"


def _of_trl(one: Named) -> str:
    """Return the name of a class of TRL; empty for others."""
    return one.path.rpartition(".")[2] if one.path.startswith("trl.") else ""


@check_config(
    "optimizer_class",
    "modules",
    "an optimizer's class that takes other arguments",
    keys=(OPTIMIZER,),
)
def find_optimizer(plan: Plan) -> Iterator[str]:
    """Yield what is wrong with an optimizer that is named as module.Class."""
    name = plan.arguments.value(OPTIMIZER, "own")
    if name is None:
        return
    if _builds_optimizer(plan.runner):
        yield (
            f"{OPTIMIZER}: the trainer of {plan.method} makes its optimizer itself, of those that "
            "transformers has: write one of their names, such as adamw_torch"
        )
        return
    given = plan.arguments.value("optim_args", "own") or {}
    taken = signature(OPTIMIZER, Named(str(name)), places_of(plan.config.source))
    if taken is None:
        return
    if "params" not in taken.names:
        yield f"{OPTIMIZER}: {name} takes no argument 'params', by which it would get the weights"
    elif "params" in given:
        yield "optim_args.params: the trainer gives the weights; leave it out"
    else:
        fault = taken.problem(given, OF_OPTIMIZER)
        if fault is not None:
            yield f"optim_args: {name} {fault}"


def _builds_optimizer(runner: Runner) -> bool:
    """Return whether a trainer makes its optimizer as it is made, before another class can be set."""
    taker = find_class(runner.trainer)
    constructors = [one.method("__init__") for one in (taker.lineage() if taker else ())]
    nodes = [node for made in constructors if made is not None for node in ast.walk(made)]
    called = [node.func for node in nodes if isinstance(node, ast.Call)]
    return any(isinstance(f, ast.Attribute) and f.attr.startswith(_BUILDS) for f in called)


@check_config(
    "compute_metrics",
    "modules",
    "compute_metrics with a trainer that takes none",
    keys=(METRICS,),
)
def find_metrics(plan: Plan) -> Iterator[str]:
    """Yield why `compute_metrics` cannot be computed."""
    name = plan.config.text(METRICS)
    if name is None:
        return
    # Of a trainer of fmtkit's that is there without TRL's, half of its arguments are not known.
    is_known = arguments_of(plan.runner).checked and find_class(plan.runner.trainer) is not None
    if is_known and not _takes_metrics(plan.runner):
        able = methods(_takes_metrics)
        yield f"{METRICS}: TRL's trainer for {plan.method} takes none; it is for {able}"
    if not has_evaluation(plan.config):
        yield f"{METRICS}: there is nothing to evaluate on; set val_set_size or test_datasets"
    taken = signature(METRICS, Named(name), places_of(plan.config.source))
    if taken is not None and taken.bases is None and len(taken.required) != 1:
        takes = ", ".join(taken.names) or "nothing"
        yield f"{METRICS}: {name} takes {takes}; it is called with one EvalPrediction"


def _takes_metrics(runner: Runner) -> bool:
    taker = find_class(runner.trainer)
    taken = None if taker is None else constructor(taker)
    return taken is not None and METRICS in taken.names


@check_run("absent_extensions", "modules", "callbacks, optimizers and metrics that do not exist")
def find_absent(run: Run) -> None:
    """Raise OptionError for a class or a function that cannot be found."""
    places = places_of(run.plan.config.source)
    for one in _all(read_named(CALLBACKS, run.plan.config.get(CALLBACKS))):
        user_objects.check(CALLBACKS, one.path, places)
        package = _PACKAGES.get(_of_trl(one))
        if package is not None and find_spec(package) is None:
            raise DependencyError(
                f"{CALLBACKS}: {one.path} needs {package}: pip install {package}, or leave it out"
            )
    for key, name in (
        (OPTIMIZER, run.plan.arguments.value(OPTIMIZER, "own")),
        (METRICS, run.plan.config.text(METRICS)),
    ):
        if name is not None:
            user_objects.check(key, str(name), places)
