"""Which package the trainer of a method comes from, and whether the installed version has it."""

from fmtkit.core.errors import DependencyError
from fmtkit.core.runner import Runner
from fmtkit.training.config.arguments import has_class
from fmtkit.training.planning.trainer_source import installed

_FOREIGN = frozenset({"trl", "transformers"})
"""Packages whose trainers are taken as they are; every other one derives its own from TRL's."""


def version_of(chosen: Runner) -> str:
    """Return the package and version that the trainer comes from, or raise DependencyError."""
    name = chosen.trainer.partition(":")[0].partition(".")[0]
    if name not in _FOREIGN:
        return _on_trl(chosen, name)
    found = installed(name)
    if found is None:
        raise DependencyError(
            f"{name} is not installed; install it with: pip install 'fmtkit[train]'"
        )
    if not has_class(chosen.trainer):
        instead = f"; {chosen.instead}" if chosen.instead else ""
        raise DependencyError(
            f"{chosen.method}: {name} {found} has no {chosen.trainer.partition(':')[2]}; "
            f"install a version that has: pip install '{name}{chosen.trl}'{instead}"
        )
    return f"{name} {found}"


def _on_trl(chosen: Runner, package: str) -> str:
    """Return the version of TRL that a trainer of fmtkit or of another package stands on.

    It overrides what TRL may move, so that the runner's range counts.
    """
    from packaging.specifiers import SpecifierSet

    found = installed("trl")
    if found is None:
        raise DependencyError("trl is not installed; install it with: pip install 'fmtkit[train]'")
    if found not in SpecifierSet(chosen.trl, prereleases=True):
        raise DependencyError(
            f"{chosen.method}: {package}'s trainer was made for trl{chosen.trl}, and trl {found} is "
            f"installed; install the other with: pip install 'trl{chosen.trl}'"
        )
    if package == "fmtkit":
        return f"trl {found}"
    if not has_class(chosen.trainer):
        raise DependencyError(f"{chosen.method}: there is no {chosen.trainer}")
    return f"{package} {installed(package)}, trl {found}"
