"""`overrides_of_model_config` of a local model: names that it has, and sizes that its weights have."""

import ast
import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from fmtkit.core.errors import OptionError, near_match
from fmtkit.training.config.config import Config
from fmtkit.training.config.problems import Problem
from fmtkit.training.config.trainer_source import module_named
from fmtkit.training.planning import weight_files
from fmtkit.training.planning.check import Run, check_run

_KEY = "overrides_of_model_config"
_OF_ANY = frozenset({"rope_theta", "rope_scaling", "partial_rotary_factor"})
"""Names of former versions that transformers still reads."""
_SIZES = frozenset({"hidden_size", "intermediate_size", "vocab_size", "head_dim"})
"""Values by which the shapes of the weights are determined."""


@check_run(
    "model_overrides",
    "files",
    "`overrides_of_model_config` that a local model does not have, or that its weights do not fit",
)
def find(run: Run) -> Iterator[Problem]:
    """Yield overrides of names that the model's config does not have, and of sizes."""
    given, file = run.plan.config.get(_KEY), Path(run.plan.model or "").expanduser() / "config.json"
    if not isinstance(given, Mapping) or not file.is_file() or weight_files.fault_of_file(file):
        return
    facts = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(facts, Mapping):
        return
    known = _names(str(facts.get("model_type")))
    for name, value in given.items():
        text = None
        has = known | facts.keys() | _OF_ANY
        if known and name not in has:
            near = near_match(str(name), sorted(has))
            hint = f"; did you mean {near!r}?" if near else ""
            text = f"{_KEY}: a {facts.get('model_type')} model has no setting {name!r}{hint}"
        elif name in _SIZES and name in facts and facts[name] != value:
            text = (
                f"{_KEY}.{name}: the weights of base_model are for {facts[name]}, not {value}: their shapes "
                "cannot be changed"
            )
        if text is not None:
            yield Problem("", text, _KEY, OptionError)


def settings_of(config: Config) -> frozenset[str]:
    """Return every name that the config of a local text model may have; none where that is not known."""
    file = Path(config.model or "").expanduser() / "config.json"
    if not file.is_file() or weight_files.fault_of_file(file):
        return frozenset()
    facts = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(facts, Mapping):
        return frozenset()
    known = _names(str(facts.get("model_type")))
    # Code of the model's own, and parts with a config of their own, may have other names.
    if (
        not known
        or "auto_map" in facts
        or any(isinstance(part, Mapping) and "model_type" in part for part in facts.values())
    ):
        return frozenset()
    given = config.get(_KEY)
    return known | facts.keys() | (given.keys() if isinstance(given, Mapping) else frozenset())


@cache
def _names(model_type: str) -> frozenset[str]:
    """Return the settings of a type of model, from the source of its config; none where it is elsewhere."""
    module = module_named(f"transformers.models.{model_type}.configuration_{model_type}")
    common = module_named("transformers.configuration_utils")
    if module is None or common is None:
        return frozenset()
    return frozenset(name for one in (module, common) for name in _settings(one.tree))


def _settings(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.FunctionDef(name="__init__", args=arguments):
                yield from (a.arg for a in (*arguments.args, *arguments.kwonlyargs))
            case ast.Assign(targets=[ast.Name(id="attribute_map")], value=ast.Dict(keys=keys)):
                yield from (str(k.value) for k in keys if isinstance(k, ast.Constant))
            case ast.AnnAssign(target=ast.Attribute(attr=name)) | ast.Attribute(attr=name):
                yield name
