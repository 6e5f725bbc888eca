"""Tests that hold for some versions alone: of what is generated, and of what other packages compute."""

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from fmtkit.core.runner import find

CONSTRAINTS = Path(__file__).parent.parent / "constraints.txt"


def _foreign(*names: str) -> list[str]:
    """Return the packages that are here in another version than constraints.txt has."""
    lines = CONSTRAINTS.read_text(encoding="utf-8").splitlines()
    pinned = dict(line.split("==") for line in lines if "==" in line)
    found = []
    for name in names:
        try:
            here = version(name)
        except PackageNotFoundError:
            here = "none"
        if here != pinned[name]:
            found.append(f"{name} {here}")
    return found


_OTHERS = _foreign("transformers", "trl")
as_pinned = pytest.mark.skipif(
    bool(_OTHERS),
    reason=f"holds for the versions of constraints.txt; here is {', '.join(_OTHERS)}",
)

_WANTED = find("ebft").variant("strided").transformers
logits_of_each_row = pytest.mark.skipif(
    version("transformers") not in SpecifierSet(_WANTED),
    reason=f"strided EBFT needs transformers{_WANTED}",
)
