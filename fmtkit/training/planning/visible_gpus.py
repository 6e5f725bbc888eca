"""Which GPUs a process may use, by its environment and the driver; nothing is imported for it."""

import os
from collections.abc import Mapping
from pathlib import Path

from fmtkit.training.planning.types import Arguments

DRIVER = Path("/proc/driver/nvidia/gpus")
OTHERS = (Path("/dev/kfd"), Path("/dev/dxg"))
"""Drivers of AMD, and of NVIDIA under Windows."""


def of_run(given: Arguments) -> dict[str, str]:
    """Return the variables of a run's processes: those of this one, and those that `env` sets."""
    return {**os.environ, **{name: str(v) for name, v in given.values("environment").items()}}


def visible(environment: Mapping[str, str]) -> list[str]:
    """Return the GPUs that CUDA would show to a process, by index or by UUID; none without a driver."""
    named = environment.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return [str(number) for number in range(len(list(DRIVER.glob("*"))))]
    out = []
    for part in (part.strip() for part in named.split(",")):
        # CUDA ignores what follows a device that is not there.
        if part in {"", "-1", "none", "NoDevFiles"}:
            break
        out.append(part)
    return out


def may_be_there(environment: Mapping[str, str]) -> bool:
    """Return whether a process may find a GPU: one is visible, or a driver exists that cannot be queried."""
    if is_known(environment):
        return bool(visible(environment))
    return any(driver.exists() for driver in OTHERS)


def is_known(environment: Mapping[str, str]) -> bool:
    """Return whether the number of GPUs is known: named by the environment, or by an NVIDIA driver."""
    return "CUDA_VISIBLE_DEVICES" in environment or DRIVER.is_dir()
