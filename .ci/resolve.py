"""Prints the versions of `make test-lowest` and of `make test-newest`: the lowest and the newest together.

    python resolve.py lowest|newest

`lowest`: what fmtkit and its extras name gets its lower bound; what these need in turn gets the newest
version that goes with them. torch and TRL stay as constraints.txt has them: older builds of torch for the CPU
are not on every index, and the online methods are made for one version of TRL (`make test-old-trl` trains on
older ones). `newest`: all get the newest version that goes with the others, but for torch, whose newer builds
are for CUDA. `uv` resolves this in seconds, where pip's resolver goes back through hundreds of versions.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FIXED = {"lowest": ("torch==", "trl=="), "newest": ("torch==",)}
STRATEGY = {"lowest": "lowest-direct", "newest": "highest"}


def resolved(end: str) -> str:
    """Return NAME==VERSION for all that the tests need, at the `lowest` or the `newest` end."""
    pinned = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    kept = [line for line in pinned if line.startswith(FIXED[end])]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as fixed:
        fixed.write("\n".join(kept))
        fixed.flush()
        options = ["--quiet", "--no-annotate", "--no-header", "--extra", "dev"]
        options += ["--resolution", STRATEGY[end], "--override", fixed.name]
        command = [sys.executable, "-m", "uv", "pip", "compile", *options]
        done = subprocess.run(  # noqa: S603 - our own words
            [*command, str(ROOT / "pyproject.toml")],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    return done.stdout


if __name__ == "__main__":
    sys.stdout.write(resolved(sys.argv[1]))
