"""The C library's memory in a training process: what a step frees, the next one uses again.

glibc returns freed memory to the kernel by thresholds that it adjusts while the process runs. Where they
settle is luck: of two processes with the same training, one had a third more page faults in every step
(benchmarks/train.py, tiny model on a CPU). Fixed thresholds keep it for the next step.
"""

import ctypes
import platform

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Parameters of mallopt(3)."""

MOST_KEPT = 512 << 20
"""Bytes of freed memory that the process keeps."""

LARGEST_KEPT = 32 << 20
"""Bytes of the largest piece that comes from kept memory: the most that glibc allows."""


def keep_freed() -> bool:
    """Keep freed memory for the next step; return whether the C library can."""
    if platform.libc_ver()[0] != "glibc":
        return False
    library = ctypes.CDLL(None)
    limits = {M_MMAP_THRESHOLD: LARGEST_KEPT, M_TRIM_THRESHOLD: MOST_KEPT}
    return all(library.mallopt(name, value) for name, value in limits.items())
