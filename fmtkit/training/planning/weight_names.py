"""Keys that name modules or weights of the model, checked on the names in its weight files.

Only headers are read. A model whose experts are joined when it is loaded has other names then, and is left
to the training process.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from fmtkit.core.errors import OptionError, near_match
from fmtkit.training.config.problems import Problem
from fmtkit.training.planning import freezing, weight_files
from fmtkit.training.planning.check import Run, check_run

_HEADS = ("lm_head", "score", "classifier")
"""Heads that a weight file may lack: tied to the embedding, or made for the method."""
_ALL_LINEAR = "all-linear"
_SHOWN = 12


_PREFIXES = ("", "model.", "transformer.", "gpt_neox.", "model.language_model.")
"""What a model may have before the names in its files, which may be those of the model without its head."""


@check_run(
    "module_names", "files", "keys that name modules or weights which a local model does not have"
)
def find(run: Run) -> Iterator[Problem]:
    """Yield keys that name no module or weight of a local model."""
    config = run.plan.config
    weights = _weights(Path(run.plan.model or "").expanduser())
    if not weights:
        return
    modules = _modules(weights)
    if run.plan.adapter:
        yield from _targets(config.get("lora_target_modules"), weights, modules)
        saved = config.get("lora_modules_to_save")
        absent = [n for n in _listed(saved) if not any(m.endswith(n) for m in modules)]
        yield from (_absent("lora_modules_to_save", name, modules) for name in absent)
        for name in _listed(config.get("lora_target_parameters")):
            if not any(weight.endswith(name) for weight in weights):
                text = f"lora_target_parameters: base_model has no parameter {name!r}"
                yield Problem("", text, "lora_target_parameters", OptionError)
    patterns = _listed(config.get("unfrozen_parameters"))
    chosen = [freezing.read(pattern).name for pattern in patterns]
    named = [*weights, *(f"{head}.weight" for head in _HEADS)]
    named = [prefix + name for name in named for prefix in _PREFIXES]
    if chosen and not any(one.match(name) for one in chosen for name in named):
        text = (
            f"unfrozen_parameters: {patterns} match no parameter of base_model, such as {named[0]}"
        )
        yield Problem("", text, "unfrozen_parameters", OptionError)


def _targets(
    given: object, weights: Mapping[str, int], modules: Sequence[str]
) -> Iterator[Problem]:
    """Yield names for which there is no layer that an adapter can change.

    A list may have names that only other models have: those are a note.
    """
    key = "lora_target_modules"
    names = _listed(given)
    if not names or given == _ALL_LINEAR:
        return
    if isinstance(given, str):
        try:
            pattern = re.compile(given)
        except re.error as error:
            text = f"{key}: {given!r} is not a regular expression: {error}"
            yield Problem("", text, key, OptionError)
            return
        found = [m for m in modules if any(pattern.fullmatch(p + m) for p in _PREFIXES)]
    else:
        found = [m for m in modules if _is_one_of(m, names)]
    if not found and _ALL_LINEAR not in names:
        yield _absent(key, names[0], modules)
    layers = {name.rpartition(".")[0] for name, dimensions in weights.items() if dimensions > 1}
    unfit = next((m for m in found if m not in layers and m not in _HEADS), None)
    if unfit is not None:
        text = (
            f"{key}: {unfit} is no linear layer or embedding, which are all that an adapter can change; "
            "name those inside it, or write lora_target_linear: true"
        )
        yield Problem("", text, key, OptionError)


def _is_one_of(module: str, names: Iterable[str]) -> bool:
    return any(module == name or module.endswith(f".{name}") for name in names)


def notes(run: Run) -> list[str]:
    """Return a note on names of which an adapter has no module, where it has others."""
    weights = _weights(Path(run.plan.model or "").expanduser())
    names = run.plan.config.get("lora_target_modules")
    if not weights or not run.plan.adapter or not isinstance(names, list):
        return []
    modules = _modules(weights)
    absent = [
        name for name in map(str, names) if name != _ALL_LINEAR and not _has_module(name, modules)
    ]
    if not absent or len(absent) == len(names):
        return []
    return [
        f"lora_target_modules: {', '.join(absent)} change nothing: base_model has no such module"
    ]


def _has_module(name: str, modules: Iterable[str]) -> bool:
    return any(_is_one_of(module, [name]) for module in modules)


def _absent(key: str, name: str, modules: Iterable[str]) -> Problem:
    ends = list(dict.fromkeys(module.rpartition(".")[2] for module in modules))
    own = [end for end in ends if not end.isdigit()]
    near = near_match(name, own)
    it_has = f"did you mean {near!r}?" if near else f"it has {', '.join(own[:_SHOWN])}"
    return Problem("", f"{key}: base_model has no module {name!r}; {it_has}", key, OptionError)


def _listed(value: object) -> list[str]:
    return [str(one) for one in (value if isinstance(value, list) else [value] if value else [])]


def _weights(folder: Path) -> dict[str, int]:
    """Return the names of a model's weights, each with the number of its dimensions.

    None where they are elsewhere, or are joined on loading.
    """
    files = (f for f in folder.glob("*.safetensors") if weight_files.fault_of_file(f) is None)
    shapes = [weight_files.shapes_of(file) for file in sorted(files)]
    weights = {name: len(shape) for one in shapes for name, shape in one.items()}
    for index in sorted(folder.glob("*.safetensors.index.json")):
        if weight_files.fault_of_file(index) is None and weight_files.missing_shard(index):
            return {}
    return {} if any("expert" in name for name in weights) else weights


def _modules(weights: Iterable[str]) -> list[str]:
    """Return the modules of these weights, with those that contain them."""
    layers = dict.fromkeys(name.rpartition(".")[0] for name in weights)
    parts = (layer.split(".") for layer in layers)
    around = (".".join(part[:end]) for part in parts for end in range(1, len(part)))
    return [*dict.fromkeys((*layers, *around, *_HEADS))]
