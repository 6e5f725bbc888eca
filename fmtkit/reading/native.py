"""The native kernel: whether it can be used here, and why not.

The extension module `fmtkit.reading._kernel` is optional. Without it the strict parser reads every line,
with the same results, slower. It is built from the sources in `kernel/` and remembers their hash: a build
of other sources is not used. setup.py uses this module for the build, so it imports no other package.

Where there could be a kernel and none is used (it was not built, is stale, or cannot be loaded), an
UnusedKernelWarning says so once, with what it costs: pip hides that a compiler was missing. Where there can
be none (see `unsupported`) only `fmtkit env` says why.

The environment variable FMTKIT_KERNEL decides: `0` turns the kernel off, `require` makes it an error that
there is none, anything else that is not empty or `1` is refused.
"""

import hashlib
import os
import platform
import sys
import sysconfig
import warnings
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

from fmtkit.core.errors import DependencyError, OptionError, UnusedKernelWarning

VARIABLE = "FMTKIT_KERNEL"
OFF, REQUIRED = "0", "require"
MODULE = "fmtkit.reading._kernel"
MACHINES = ("x86_64", "amd64", "aarch64")
"""Machines on which the kernel was tested, as `platform.machine()` names them; aarch64 under qemu-user."""
HOW_TO_BUILD = (
    "with a C compiler, installing fmtkit again (`pip install -e .` in a clone) builds it"
)
COST = "reading JSON lines takes 2.5 to 6 times the CPU time"


def kernel() -> ModuleType | None:
    """Return the kernel, or None where `why_not` says why.

    Raises:
        DependencyError: There is no kernel, and FMTKIT_KERNEL=require.
        OptionError: FMTKIT_KERNEL has another value than it takes.

    Warns:
        UnusedKernelWarning: There could be a kernel here, and there is none that can be used.
    """
    wanted = _wanted()
    if wanted == OFF:
        return None
    module, reason = _loaded()
    if module is None and wanted == REQUIRED:
        raise DependencyError(
            f"{VARIABLE}={REQUIRED}, but there is no native kernel: {reason}; {HOW_TO_BUILD}"
        )
    if module is None and not unsupported():
        _warn(reason)
    return module


def forget() -> None:
    """Let the kernel be looked for again: its sources or `VARIABLE` have changed."""
    _loaded.cache_clear()
    _warn.cache_clear()


@cache
def _warn(reason: str) -> None:
    """Warn once that there is no kernel, or that a build is not used."""
    silence = f"{VARIABLE}={OFF} turns this message off"
    message = f"the native kernel is not used: {reason}; {COST}; {HOW_TO_BUILD}; {silence}"
    warnings.warn(message, UnusedKernelWarning, stacklevel=3)


def why_not() -> str:
    """Return why `kernel` gives None, or an empty text where it gives a module."""
    return f"turned off by {VARIABLE}={OFF}" if _wanted() == OFF else _loaded()[1]


def unsupported() -> str:
    """Return what keeps this Python or machine from having a kernel, or an empty text."""
    if sys.implementation.name != "cpython":
        return f"{platform.python_implementation()} has no stable ABI of CPython"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "a free-threaded build of Python has no stable ABI"
    if sys.byteorder != "little":
        return "this machine is big-endian"
    if sys.maxsize < 2**63 - 1:
        return "this Python is a 32-bit program"
    if os.name == "nt":
        return "it was not tested on Windows"
    if platform.machine().lower() not in MACHINES:
        return f"it was not tested on {platform.machine() or 'this machine'}"
    return ""


def sources() -> list[Path]:
    """Return the files that the kernel is built of, headers too, sorted."""
    folder = Path(__file__).parent / "kernel"
    return sorted(path for path in folder.glob("*.[ch]"))


def sources_hash() -> str:
    """Return the SHA-256 of the names and bytes of the sources that are here."""
    digest = hashlib.sha256()
    for path in sources():
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def _wanted() -> str:
    wanted = os.environ.get(VARIABLE, "")
    if wanted not in ("", "1", OFF, REQUIRED):
        raise OptionError(f"{VARIABLE}={wanted}: takes 0 (off), 1 (where there is one) or require")
    return wanted


@cache
def _loaded() -> tuple[ModuleType | None, str]:
    """Import the kernel once: the module, or None and the reason."""
    if reason := unsupported():
        return None, reason
    try:
        module = import_module(MODULE)
    except ModuleNotFoundError:
        return None, "it was not built when fmtkit was installed (was there a C compiler?)"
    except ImportError as error:
        return None, f"it cannot be loaded: {error}"
    if sources_hash() != module.SOURCES:
        return None, "it is stale: built from other sources than those next to it"
    return module, ""
