"""The native kernel, an optional extension; everything else about the package is in pyproject.toml.

Where it cannot be built, a warning says so and fmtkit is installed without it. With FMTKIT_KERNEL=require
that is an error. CFLAGS and LDFLAGS are added to those of Python: see CONTRIBUTING.md.
"""

import os
import sys
import tomllib
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.bdist_wheel import bdist_wheel

ROOT = Path(__file__).parent
sys.path.insert(0, str(ROOT))

from fmtkit.reading import native  # noqa: E402 - from this tree, which is not installed yet

LIMITED_API = "0x030B0000"
"""Python 3.11, the oldest that fmtkit supports: one build for it and every later version."""


def kernel() -> Extension:
    """Return what is to be built of the sources in fmtkit/reading/kernel."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    files = [str(path.relative_to(ROOT.resolve())) for path in map(Path.resolve, native.sources())]
    return Extension(
        native.MODULE,
        sources=[name for name in files if name.endswith(".c")],
        depends=[*files, "setup.py"],
        define_macros=[
            ("Py_LIMITED_API", LIMITED_API),
            ("FMTKIT_SOURCES_HASH", f'"{native.sources_hash()}"'),
            ("FMTKIT_VERSION", f'"{project["version"]}"'),
        ],
        extra_compile_args=["-std=c11", "-O3", "-fvisibility=hidden"],
        py_limited_api=True,
        optional=not required(),
    )


def packages() -> list[str]:
    """Return every package, those of the top level's other folders by their names in an installation."""
    beside = [name for place in ("runners", "schemas", "templates") for name in _below(place)]
    return [*_below("fmtkit"), *(f"fmtkit.{name}" for name in beside)]


def _below(place: str) -> list[str]:
    return find_packages(str(ROOT), include=[place, f"{place}.*"])


class Wheel(bdist_wheel):
    """A wheel for every machine where the kernel, which is optional, could not be built."""

    def get_tag(self) -> tuple[str, str, str]:
        """Return what the wheel is for, by what was built into it."""
        outputs = self.get_finalized_command("build_ext").get_outputs()
        if any(Path(path).exists() for path in outputs):
            return super().get_tag()
        self.root_is_pure = True
        return "py3", "none", "any"


def required() -> bool:
    """Return whether an installation without the kernel is an error."""
    return os.environ.get(native.VARIABLE) == native.REQUIRED


if reason := native.unsupported():
    if required():
        sys.exit(
            f"{native.VARIABLE}={native.REQUIRED}, but there can be no native kernel: {reason}"
        )
    sys.stderr.write(f"warning: fmtkit is built without its native kernel: {reason}\n")
    setup(packages=packages())
else:
    setup(
        packages=packages(),
        ext_modules=[kernel()],
        cmdclass={"bdist_wheel": Wheel},
        # Objects of an earlier build are of no use: the macros above are not among what makes them old.
        options={"bdist_wheel": {"py_limited_api": "cp311"}, "build_ext": {"force": True}},
    )
