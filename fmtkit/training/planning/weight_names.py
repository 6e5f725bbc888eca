"""Keys that name modules or weights of the model, checked on the names in its weight files.

Only headers are read. A model whose experts are joined when it is loaded has other names then, and is left
to the training process.
"""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from fmtkit.core.errors import OptionError, near_match
from fmtkit.training.config.problem import Problem
from fmtkit.training.planning.check import Run
from fmtkit.training.run import checkpoints, freezing

_HEADS = ("lm_head", "score", "classifier")
"""Heads that a weight file may lack: tied to the embedding, or made for the method."""
_ALL_LINEAR = "all-linear"
_SHOWN = 12


def find(run: Run) -> Iterator[Problem]:
    """Yield keys that name no module or weight of a local model."""
    config = run.plan.config
    weights = _weights(Path(run.plan.model or "").expanduser())
    if not weights:
        return
    modules = _modules(weights)
    if config.get("adapter"):
        yield from _targets(config.get("lora_target_modules"), modules)
        saved = config.get("lora_modules_to_save")
        absent = [n for n in _listed(saved) if not any(m.endswith(n) for m in modules)]
        yield from (_absent("lora_modules_to_save", name, modules) for name in absent)
    patterns = _listed(config.get("unfrozen_parameters"))
    chosen = [freezing.read(pattern).name for pattern in patterns]
    named = [*weights, *(f"{head}.weight" for head in _HEADS)]
    if chosen and not any(one.match(name) for one in chosen for name in named):
        text = f"unfrozen_parameters: {patterns} match no parameter of base_model, such as {weights[0]}"
        yield Problem("", text, "unfrozen_parameters", OptionError)


def _targets(given: object, modules: Iterable[str]) -> Iterator[Problem]:
    """Yield names of which an adapter finds no module, if it finds none at all; others are a note."""
    key = "lora_target_modules"
    if isinstance(given, str) and given != _ALL_LINEAR:
        try:
            re.compile(given)
        except re.error as error:
            text = f"{key}: {given!r} is not a regular expression: {error}"
            yield Problem("", text, key, OptionError)
        return
    names = _listed(given)
    absent = _without_module(names, modules)
    if names and len(absent) == len(names):
        yield from (_absent(key, name, modules) for name in absent[:1])


def notes(run: Run) -> list[str]:
    """Return a note on names of which an adapter has no module, where it has others."""
    weights = _weights(Path(run.plan.model or "").expanduser())
    if not weights or not run.plan.config.get("adapter"):
        return []
    names = _listed(run.plan.config.get("lora_target_modules"))
    absent = _without_module(names, _modules(weights))
    if not absent or len(absent) == len(names):
        return []
    return [
        f"lora_target_modules: {', '.join(absent)} change nothing: base_model has no such module"
    ]


def _without_module(names: Iterable[str], modules: Iterable[str]) -> list[str]:
    known = [*modules]
    return [
        name
        for name in names
        if name != _ALL_LINEAR and not any(m == name or m.endswith(f".{name}") for m in known)
    ]


def _absent(key: str, name: str, modules: Iterable[str]) -> Problem:
    ends = list(dict.fromkeys(module.rpartition(".")[2] for module in modules))
    own = [end for end in ends if not end.isdigit()]
    near = near_match(name, own)
    it_has = f"did you mean {near!r}?" if near else f"it has {', '.join(own[:_SHOWN])}"
    return Problem("", f"{key}: base_model has no module {name!r}; {it_has}", key, OptionError)


def _listed(value: object) -> list[str]:
    return [str(one) for one in (value if isinstance(value, list) else [value] if value else [])]


def _weights(folder: Path) -> list[str]:
    """Return the names of a model's weights; none where they are elsewhere, or are joined on loading."""
    names: list[str] = []
    for index in sorted(folder.glob("*.safetensors.index.json")):
        if checkpoints.fault_of_file(index) is None:
            names += json.loads(index.read_text(encoding="utf-8")).get("weight_map", {})
    if not names:
        files = (f for f in folder.glob("*.safetensors") if checkpoints.fault_of_file(f) is None)
        names = [name for file in sorted(files) for name in checkpoints.tensor_names(file)]
    return [] if any("expert" in name for name in names) else names


def _modules(weights: Iterable[str]) -> list[str]:
    """Return the modules of these weights, with those that contain them."""
    layers = dict.fromkeys(name.rpartition(".")[0] for name in weights)
    parts = (layer.split(".") for layer in layers)
    around = (".".join(part[:end]) for part in parts for end in range(1, len(part)))
    return [*dict.fromkeys((*layers, *around, *_HEADS))]
