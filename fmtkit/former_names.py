"""Modules that have moved: their former names can be imported for one more version, with a warning."""

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType

FORMER = {
    f"fmtkit.{name}": f"fmtkit.{room}.{name}"
    for room, names in {
        "columns": "dialogs exports instructions kinds problems references transcripts turns",
        "core": "codes errors plugins runner tables",
        "formats": "registry target_registry",
        "tokenizers": "tokens",
    }.items()
    for name in names.split()
} | dict.fromkeys(("fmtkit.writing.encoding", "fmtkit.writing.stitching"), "fmtkit.writing.formats")
"""Modules that documented extensions import (formats, targets, methods) -> where they are now."""


class _FormerNames:
    """A finder and loader in one, asked for what no other finder knows."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        return ModuleSpec(name, self) if name in FORMER else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        new = FORMER[spec.name]
        warnings.warn(
            f"{spec.name} is now {new}; the former name goes with fmtkit 0.3",
            FutureWarning,
            stacklevel=2,
        )
        module = import_module(new)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The import system gave the module, which has run already, the spec of its former name.
        if module.__spec__ is not None and module.__spec__.name in FORMER:
            module.__spec__ = module.__spec__.loader_state


def install() -> None:
    """Let former names be imported; once for a process."""
    if not any(isinstance(finder, _FormerNames) for finder in sys.meta_path):
        sys.meta_path.append(_FormerNames())
