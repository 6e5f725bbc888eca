"""Which package the trainer of a method comes from, and whether the installed version has it."""

from fmtkit.errors import DependencyError
from fmtkit.runner import Runner
from fmtkit.training.arguments import has_class, installed


def version_of(chosen: Runner) -> str:
    """Return the package and version that the trainer comes from, or raise DependencyError."""
    name = chosen.trainer.partition(":")[0].partition(".")[0]
    if name == "fmtkit":
        return _of_ours(chosen)
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


def _of_ours(chosen: Runner) -> str:
    """Return the version of TRL that our own trainer stands on; it overrides what TRL may move."""
    from packaging.specifiers import SpecifierSet

    found = installed("trl")
    if found is None:
        raise DependencyError("trl is not installed; install it with: pip install 'fmtkit[train]'")
    if found not in SpecifierSet(chosen.trl, prereleases=True):
        raise DependencyError(
            f"{chosen.method}: fmtkit's trainer was made for trl{chosen.trl}, and trl {found} is "
            f"installed; install the other with: pip install 'trl{chosen.trl}'"
        )
    return f"trl {found}"
