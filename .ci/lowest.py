"""Prints the lowest versions that pyproject.toml allows, for `make test-lowest`.

What fmtkit and its extras name gets its lower bound; what these need in turn gets the newest version that
goes with them. `uv` resolves this in seconds, where pip's resolver goes back through hundreds of versions.
torch and TRL stay as constraints.txt has them: older builds of torch for the CPU are not on every index,
and the online methods are made for one version of TRL (`make test-old-trl` trains on older ones).
"""

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def lowest() -> str:
    """Return NAME==VERSION for all that the tests need."""
    pinned = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    kept = [line for line in pinned if line.startswith(("torch==", "trl=="))]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as fixed:
        fixed.write("\n".join(kept))
        fixed.flush()
        options = ["--quiet", "--no-annotate", "--no-header", "--extra", "dev"]
        options += ["--resolution", "lowest-direct", "--override", fixed.name]
        command = [sys.executable, "-m", "uv", "pip", "compile", *options]
        done = subprocess.run(  # noqa: S603 - our own words
            [*command, str(ROOT / "pyproject.toml")],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    return done.stdout


if __name__ == "__main__":
    sys.stdout.write(lowest())
