"""Which versions of vLLM fit, told before anything loads: TRL's range, and vLLM's own demands."""

import sys

from fmtkit.core.errors import DependencyError
from fmtkit.training.planning.trainer_source import installed

RANGE = ">=0.22.0,<=0.31.0"
"""What TRL 1.16 works with (its extra `vllm`)."""
_DOCS = "docs/vllm.md"


def check_server() -> None:
    """Raise DependencyError unless this environment can serve."""
    found = installed("vllm")
    if found is None:
        raise DependencyError(
            f"vllm is not installed in {sys.prefix}; give it an environment of its own: python -m venv "
            f"vllm-env && vllm-env/bin/pip install fmtkit 'vllm{RANGE}' ({_DOCS})"
        )
    _check_range(found)
    _check_transformers(found)


def check_trainer() -> None:
    """Raise DependencyError unless TRL's client of vLLM can be imported in this environment."""
    found = installed("vllm")
    if found is None:
        raise DependencyError(
            f"trl.use_vllm: TRL's trainer imports vllm, also to ask a server, and {sys.prefix} has none; "
            f"pip install 'trl[vllm]' here, or leave out use_vllm ({_DOCS})"
        )
    _check_range(found)
    _check_transformers(found)
    if installed("requests") is None:
        raise DependencyError("trl.use_vllm: TRL's client needs requests: pip install requests")


def _check_range(found: str) -> None:
    from packaging.specifiers import SpecifierSet
    from packaging.version import Version

    if not SpecifierSet(RANGE).contains(Version(found).base_version):
        raise DependencyError(
            f"vllm {found} is here, and TRL works with {RANGE}: pip install 'vllm{RANGE}' ({_DOCS})"
        )


def _check_transformers(vllm: str) -> None:
    """Hold the installed transformers against what the installed vLLM asks for."""
    from importlib.metadata import requires

    from packaging.requirements import Requirement

    found = installed("transformers")
    for line in requires("vllm") or ():
        asked = Requirement(line)
        if asked.name != "transformers" or (asked.marker and not asked.marker.evaluate()):
            continue
        if found is None or not asked.specifier.contains(found, prereleases=True):
            raise DependencyError(
                f"vllm {vllm} works with transformers {asked.specifier}, and {found or 'none'} is here: "
                f"pip install 'transformers{asked.specifier}' ({_DOCS})"
            )
