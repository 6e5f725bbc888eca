"""Faster imports for the commands on data, each of which is a process of its own."""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

BLAS_THREADS = "OPENBLAS_NUM_THREADS"


@contextmanager
def quick_imports() -> Iterator[None]:
    """Import without collecting garbage, and leave what was imported out of every later collection.

    Modules are half a million objects of which none ever dies: looking at them again and again was
    a tenth of the time of a conversion. And numpy's OpenBLAS would start a thread for each core that
    spins for a while, although nothing here multiplies matrices; processes started later do not
    inherit that setting.
    """
    found = os.environ.get(BLAS_THREADS)
    os.environ[BLAS_THREADS] = found or "1"
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
        if found is None:
            del os.environ[BLAS_THREADS]
