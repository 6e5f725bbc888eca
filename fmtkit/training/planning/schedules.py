"""Settings of the learning-rate schedule, checked on the function that makes it.

transformers passes `lr_scheduler_kwargs` to it only when training begins; its parameters are read in the
installed source, without importing it.
"""

import ast
from collections.abc import Mapping
from functools import cache

from fmtkit.core.errors import near_match
from fmtkit.training.config.problems import Problem
from fmtkit.training.config.trainer_source import find_class, module_named
from fmtkit.training.planning.check import check_config
from fmtkit.training.planning.run_plan import Plan

_FUNCTIONS = "TYPE_TO_SCHEDULER_FUNCTION"
"""The table of transformers.optimization from a schedule to its function."""
_PASSED = ("optimizer", "num_warmup_steps", "num_training_steps")
"""Parameters that the trainer itself gives."""
_FLOORS = ("min_lr", "min_lr_rate")
_LIKELY = {
    "num_decay_steps": "trainer_args: {lr_scheduler_kwargs: {num_decay_steps: 100}}",
    _FLOORS[1]: "lr_scheduler: cosine with cosine_min_lr_ratio: 0.1, or trainer_args: "
    "{lr_scheduler_kwargs: {min_lr_rate: 0.1}}",
}
"""Setting that a schedule needs -> how it is written."""


@check_config(
    "schedule",
    "config",
    "a learning-rate schedule without a setting that it needs, or with one that it does not have",
    keys=("lr_scheduler", "lr_scheduler_kwargs", "cosine_min_lr_ratio"),
)
def check(plan: Plan) -> Problem | None:
    """Return the problem of a schedule that lacks a setting, or has no such one."""
    trainer = plan.arguments.trainer
    named, given = trainer.get("lr_scheduler_type"), trainer.get("lr_scheduler_kwargs")
    function = _functions().get(str(named.value)) if named is not None else None
    if named is None or function is None:
        return None
    settings = given.value if given is not None and isinstance(given.value, Mapping) else {}
    fault = _fault(function, settings)
    if fault is None:
        return None
    return Problem("", f"lr_scheduler: {named.value} {fault}", "lr_scheduler")


def _fault(function: ast.FunctionDef, settings: Mapping[str, object]) -> str | None:
    """Return what the settings lack, or which of them the function does not take."""
    taken = [a.arg for a in (*function.args.args, *function.args.kwonlyargs)]
    optional = taken[len(function.args.args) - len(function.args.defaults) :]
    needed = [name for name in taken if name not in (*optional, *_PASSED)]
    own = [name for name in taken if name not in (*_PASSED, "last_epoch")]
    if {*_FLOORS} <= {*own} and all(settings.get(name) is None for name in _FLOORS):
        needed.append(_FLOORS[1])
    for name in needed:
        if settings.get(name) is None:
            return f"needs {name}: write {_LIKELY.get(name, name)}"
    wrong = next((str(name) for name in settings if name not in own), None)
    if wrong is None or function.args.kwarg is not None:
        return None
    near = near_match(wrong, own)
    known = f"known: {', '.join(own)}" if own else "it takes none"
    return f"has no setting {wrong!r}; {f'did you mean {near!r}?' if near else known}"


@cache
def _functions() -> Mapping[str, ast.FunctionDef]:
    """Return schedule -> the function that makes it; none where transformers is not installed."""
    names = find_class("transformers:SchedulerType")
    module = module_named("transformers.optimization")
    if names is None or module is None:
        return {}
    defined = {node.name: node for node in module.tree.body if isinstance(node, ast.FunctionDef)}
    members, out = names.members(), {}
    for node in module.tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Dict(keys=keys, values=values)):
                for key, value in zip(keys, values, strict=True) if name == _FUNCTIONS else ():
                    function = defined.get(ast.unparse(value))
                    if isinstance(key, ast.Attribute) and function is not None:
                        out[members[key.attr]] = function
    return out
