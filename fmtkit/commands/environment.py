"""The machine, the versions and the kernel that a bug report needs."""

import os
import platform

from fmtkit.core.distributions import version_of
from fmtkit.reading import native

PACKAGES = (
    "fmtkit",
    "pyarrow",
    "polars",
    "numpy",
    "jinja2",
    "tokenizers",
    "datasets",
    "transformers",
    "trl",
    "peft",
    "accelerate",
    "torch",
    "vllm",
    "deepspeed",
    "bitsandbytes",
)


def describe() -> dict[str, object]:
    """Return versions, devices and whether the native kernel is used, or why not.

    Nothing heavy is imported: versions come from what is installed, a GPU is found by its driver.
    """
    facts: dict[str, object] = {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": os.cpu_count(),
        "memory": _memory(),
        "gpus": _gpus(),
        "kernel": _kernel(),
    }
    return facts | {name: version_of(name) or "not installed" for name in PACKAGES}


def _kernel() -> str:
    reason = native.why_not()
    return f"none: {reason}" if reason else "native"


def _memory() -> str:
    if not hasattr(os, "sysconf"):
        return "unknown"
    return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB"


def _gpus() -> str:
    import shutil
    import subprocess

    tool = shutil.which("nvidia-smi")
    if tool is None:
        return "none found (no nvidia-smi)"
    asked = [tool, "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=20, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"unknown: {error}"
    return "; ".join(done.stdout.strip().splitlines()) or "none found"
