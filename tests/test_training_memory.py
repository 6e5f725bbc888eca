"""Memory that a training process frees stays its own."""

import platform
import subprocess
import sys

import pytest

CODE = """
import resource, sys
from fmtkit.training.run import memory
kept = memory.keep_freed() if sys.argv[1] == "keep" else None
block = bytearray(24 << 20)
del block
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    block = bytearray(24 << 20)
    del block
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(mode: str) -> tuple[str, int]:
    """Return what was said, and the page faults of freeing and taking 24 MiB twenty times."""
    done = subprocess.run(
        [sys.executable, "-c", CODE, mode], capture_output=True, text=True, check=True
    )
    kept, count = done.stdout.split()
    return kept, int(count)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_what_was_freed_is_taken_again_without_the_kernel():
    kept, count = faults("keep")
    assert kept == "True"
    # 24 MiB are 6,144 pages, each of which would fault where the kernel gives it anew.
    assert count < 1_000
