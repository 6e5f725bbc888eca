"""Which trainer trains: TRL's own or one derived from it, by the keys and the installed versions."""

from collections.abc import Sequence

from fmtkit.core import runner
from fmtkit.core.errors import DependencyError
from fmtkit.core.runner import Runner
from fmtkit.training.config.class_arguments import has_class
from fmtkit.training.config.config import Config
from fmtkit.training.config.problems import Problems
from fmtkit.training.config.trainer_source import installed

_TAKEN_AS_THEY_ARE = frozenset({"trl", "transformers"})
"""Packages whose trainers are used directly; others derive theirs from TRL's."""


def package_of(config: Config, chosen: Runner, problems: Problems) -> str:
    """Return the trainer's package; if it is not installed, train raises and a plan reports it."""
    name = chosen.config.partition(":")[0].partition(".")[0]
    if installed(name) is None:
        return f"{name}, which is not installed"
    features = chosen.features_of(config)
    with problems.collecting("package", next(iter(features), "")):
        return _version(chosen, features)
    return ""


def _version(chosen: Runner, features: Sequence[str]) -> str:
    """Return the package and version that the trainer comes from, or raise DependencyError."""
    if chosen.transformers:
        _check_transformers(chosen)
    name = chosen.trainer.partition(":")[0].partition(".")[0]
    if name not in _TAKEN_AS_THEY_ARE:
        return _on_trl(chosen, name, features)
    version = installed(name)
    if version is None:
        raise DependencyError(
            f"{name} is not installed; install it with: pip install 'fmtkit[train]'"
        )
    if not has_class(chosen.trainer):
        instead = f"; {chosen.instead}" if chosen.instead else ""
        raise DependencyError(
            f"{chosen.method}: {name} {version} has no {chosen.trainer.partition(':')[2]}; "
            f"install a version that has: pip install '{name}{chosen.trl}'{instead}"
        )
    return f"{name} {version}"


def _check_transformers(chosen: Runner) -> None:
    """Raise DependencyError for a transformers that the method cannot train with."""
    from packaging.specifiers import SpecifierSet

    version, wanted = installed("transformers"), chosen.transformers
    if version and version not in SpecifierSet(wanted, prereleases=True):
        instead = f"; {chosen.instead}" if chosen.instead else ""
        raise DependencyError(
            f"{chosen.method}: its trainer needs transformers{wanted}, and transformers {version} is "
            f"installed; install a matching one with: pip install 'transformers{wanted}'{instead}"
        )


def _on_trl(chosen: Runner, package: str, features: Sequence[str]) -> str:
    """Return the TRL version that a derived trainer needs.

    It overrides what TRL may move, so that the runner's range counts.
    """
    from packaging.specifiers import SpecifierSet

    version = installed("trl")
    if version is None:
        raise DependencyError("trl is not installed; install it with: pip install 'fmtkit[train]'")
    if version not in SpecifierSet(chosen.trl, prereleases=True):
        keys = ", ".join(features) if runner.TRLS_OWN in chosen.variants else ""
        needs = f"{keys}: needs {package}'s trainer, which" if keys else f"{package}'s trainer"
        without = f", or leave out {keys}, and TRL's own trains" if keys else ""
        raise DependencyError(
            f"{chosen.method}: {needs} was made for trl{chosen.trl}, and trl {version} is installed; "
            f"install a matching one with: pip install 'trl{chosen.trl}'{without}"
        )
    if package == "fmtkit":
        return f"trl {version}"
    if not has_class(chosen.trainer):
        raise DependencyError(f"{chosen.method}: there is no {chosen.trainer}")
    return f"{package} {installed(package)}, trl {version}"


def runner_of(config: Config) -> Runner:
    """Return the runner of a method: TRL's own trainer unless a key is set that needs another.

    A trainer that mends what TRL's does wrong without any key gives way only where it does not fit.
    """
    chosen = runner.find(config.method()).variant_of(config)
    own = chosen.variants.get(runner.TRLS_OWN)
    if own is None or chosen.features_of(config):
        return chosen
    if chosen.for_features:
        # An environment makes the answers itself, or has samples that may fail.
        return chosen if chosen.provided(config) else own
    return chosen if _fits(chosen) else own


def _fits(chosen: Runner) -> bool:
    """Return whether the installed TRL is one that the method's trainer was made for, or there is none."""
    from packaging.specifiers import SpecifierSet

    version = installed("trl")
    return version is None or version in SpecifierSet(chosen.trl, prereleases=True)


def notes(config: Config, chosen: Runner) -> list[str]:
    """Return the note on TRL's own trainer where it stands in for fmtkit's."""
    usual = runner.find(config.method()).variant_of(config)
    if usual.for_features or usual.variants.get(runner.TRLS_OWN) != chosen:
        return []
    name = chosen.trainer.partition(":")[2]
    package = usual.trainer.partition(":")[0].partition(".")[0]
    lacks = f": {usual.without}" if usual.without else ""
    made = f"since {package}'s was made for trl{usual.trl}"
    return [f"trl {installed('trl')}: TRL's own {name} trains, {made}{lacks}"]
