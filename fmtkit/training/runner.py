"""What a runner says of a training method: data for the plan, found by the method's name.

A runner is a file `runners/METHOD.py` with one constant, RUNNER. It is imported for the plan too,
so it imports nothing heavy; classes are named ("trl:DPOTrainer") and loaded while training alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec

from fmtkit.errors import UnknownNameError
from fmtkit.training.keys_method import METHOD_NAMES

BUILD = "fmtkit.training.build:build_trainer"


@dataclass(frozen=True)
class Runner:
    """Which tables a method takes, which classes train on them, and what it needs besides.

    `arguments` are fixed by the method, `defaults` hold unless the configuration says otherwise.
    `trl` is the range of TRL versions that it was run with, `instead` what to do outside of it.
    `needs` names what must be configured: a `reference` model is made where none is, a `teacher`,
    `rewards` or `reward_model` must be named. `head` is the kind of model. `own` are
    arguments that the config class lacks and fmtkit acts on (`max_length`). `needs_cuda` is set where
    the trainer itself demands a device. `build` is the function
    that makes the trainer: (job, model inputs) -> trainer. Keys of sections in `idle` change nothing.
    A runner whose nature depends on a key has `variants`: the runner for each value of `variant_key`.
    """

    method: str
    tables: tuple[str, ...]
    trainer: str
    config: str
    about: str
    trl: str = ">=1.8,<2"
    arguments: Mapping[str, object] = field(default_factory=dict)
    defaults: Mapping[str, object] = field(default_factory=dict)
    needs: frozenset[str] = frozenset()
    head: str = "causal"
    sections: frozenset[str] = frozenset()
    own: frozenset[str] = frozenset()
    idle: frozenset[str] = frozenset()
    build: str = BUILD
    instead: str = ""
    needs_cuda: bool = False
    variant_key: str = ""
    variants: Mapping[str, "Runner"] = field(default_factory=dict)

    def variant(self, value: object) -> "Runner":
        """Return the runner for this value of `variant_key`; itself where there is none."""
        return self.variants.get(str(value), self)


def find(method: str) -> Runner:
    """Return the runner of a method, or raise UnknownNameError."""
    name = f"fmtkit.runners.{method}"
    if method not in METHOD_NAMES or find_spec(name) is None:
        raise UnknownNameError("method", method, METHOD_NAMES)
    runner = import_module(name).RUNNER
    if not isinstance(runner, Runner):
        raise TypeError(f"{name}.RUNNER is not a Runner")
    return runner
