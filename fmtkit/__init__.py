"""fmtkit: turn any post-training dataset into a trainer's input.

Names are imported when they are first used, so that `import fmtkit` stays light.
"""

import sys

try:
    from importlib import import_module
    from pathlib import Path
    from typing import TYPE_CHECKING, Any

    from fmtkit import former_names
    from fmtkit.core import forks  # noqa: F401 - it has to know of a fork before it happens
except KeyboardInterrupt:
    # The command imports this package before `fmtkit.cli`, which ends with the same line: Ctrl-C here too.
    if not sys.argv or not sys.argv[0].endswith("fmtkit"):
        raise
    sys.stderr.write("fmtkit: interrupted\n")
    sys.exit(130)

if TYPE_CHECKING:
    from fmtkit.core.codes import register_code
    from fmtkit.core.errors import FmtkitError, RejectedRowsWarning, UnreadTurnsWarning
    from fmtkit.formats.registry import converter
    from fmtkit.formats.target_registry import target
    from fmtkit.library import (
        check,
        compare,
        convert,
        diff,
        inspect,
        lock,
        merge,
        read,
        render,
        table,
        train,
        try_run,
        types,
        validate,
    )
    from fmtkit.running.replay import replay
    from fmtkit.running.run_report import Report
    from fmtkit.training.data.trl_datasets import to_trl

_SHIPPED = ("runners", "schemas", "templates")
"""Subpackages that an installation holds inside `fmtkit/`, and a clone beside it."""


def _add_clone(package: Path, path: list[str]) -> None:
    """Search a clone's top level too, for the subpackages that only an installation has inside `fmtkit/`."""
    if all((package.parent / name / "__init__.py").is_file() for name in _SHIPPED) and not any(
        (package / name).exists() for name in _SHIPPED
    ):
        path.append(str(package.parent))


_add_clone(Path(__file__).parent, __path__)
former_names.install()

_HOMES = {
    "FmtkitError": "fmtkit.core.errors",
    "RejectedRowsWarning": "fmtkit.core.errors",
    "UnreadTurnsWarning": "fmtkit.core.errors",
    "Report": "fmtkit.running.run_report",
    "check": "fmtkit.library",
    "compare": "fmtkit.library",
    "convert": "fmtkit.library",
    "converter": "fmtkit.formats.registry",
    "diff": "fmtkit.library",
    "inspect": "fmtkit.library",
    "lock": "fmtkit.library",
    "merge": "fmtkit.library",
    "read": "fmtkit.library",
    "register_code": "fmtkit.core.codes",
    "render": "fmtkit.library",
    "replay": "fmtkit.running.replay",
    "table": "fmtkit.library",
    "target": "fmtkit.formats.target_registry",
    "to_trl": "fmtkit.training.data.trl_datasets",
    "train": "fmtkit.library",
    "try_run": "fmtkit.library",
    "types": "fmtkit.library",
    "validate": "fmtkit.library",
}

__all__ = [
    "FmtkitError",
    "RejectedRowsWarning",
    "Report",
    "UnreadTurnsWarning",
    "check",
    "compare",
    "convert",
    "converter",
    "diff",
    "inspect",
    "lock",
    "merge",
    "read",
    "register_code",
    "render",
    "replay",
    "table",
    "target",
    "to_trl",
    "train",
    "try_run",
    "types",
    "validate",
]


def __getattr__(name: str) -> Any:
    """Import a public name from its home on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'fmtkit' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """Name what is public, loaded or not, so that a shell completes it and nothing else."""
    special = (name for name in globals() if name.startswith("__"))
    loaded = (name.partition(".")[2] for name in sys.modules if name.startswith("fmtkit."))
    return sorted({*__all__, *special, *(name for name in loaded if "." not in name)})
