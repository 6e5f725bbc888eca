"""Prints constraints with the lowest versions that pyproject.toml allows, for `make test-lowest`.

torch stays as constraints.txt has it: older builds for the CPU are not on every index.
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def lowest() -> list[str]:
    """Return NAME==VERSION for each lower bound of fmtkit and of its extras, vllm aside."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = [
        *project["dependencies"],
        *(w for name in ("hub", "plot", "train", "math") for w in extras[name]),
    ]
    bounds = (re.match(r"([\w.-]+)>=([\w.]+)", words) for words in wanted)
    found = {bound[1]: bound[2] for bound in bounds if bound}
    pinned = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    found["torch"] = next(line.partition("==")[2] for line in pinned if line.startswith("torch=="))
    return [f"{name}=={version}" for name, version in sorted(found.items())]


if __name__ == "__main__":
    sys.stdout.write("\n".join(lowest()) + "\n")
