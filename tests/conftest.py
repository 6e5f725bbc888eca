"""What all tests share: no verdict depends on how fast a machine is."""

import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, wraps
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import pytest
from hypothesis import settings
from object_store import running, server  # noqa: F401 - fixtures of an S3 server
from other_stores import running_store, store  # noqa: F401 - and of Google's and Azure's
from run_record import Recorder

settings.register_profile("fmtkit", deadline=None)
settings.load_profile("fmtkit")
# Threads of torch in several workers wait for each other: small models train five times as slow with two.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# As on a terminal: under nohup a lost one is ignored, and so would tests of signals be.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # And as in the foreground: a shell lets its background jobs ignore an interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    words = (
        "write the versions and the outcome of this run to .ci/versions.json, as those of COMMAND"
    )
    parser.addoption("--record", metavar="COMMAND", help=words)


def pytest_configure(config: pytest.Config) -> None:
    """Record the run, in the process that pytest was started as and not in its workers."""
    command = config.getoption("record")
    if command and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(command))


@cache
def unfit() -> dict[str, str]:
    """Return what fmtkit says where a version does not suit a method -> the package and that version.

    grpo and its kin are made for one version of TRL, and strided EBFT needs a newer transformers than others.
    """
    from packaging.specifiers import SpecifierSet

    from fmtkit.core.runner import find

    ranges = {
        "trainer was made for trl": ("trl", find("grpo").trl),
        "trainer needs transformers": (
            "transformers",
            find("ebft").variant("strided").transformers,
        ),
    }
    out = {}
    for said, (package, wanted) in ranges.items():
        with suppress(PackageNotFoundError):
            if (here := version(package)) not in SpecifierSet(wanted):
                out[said] = f"needs {package}{wanted}; {package} {here} is installed"
    return out


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Skip what cannot be tested with the versions that are installed, by what fmtkit itself says of them."""
    try:
        return (yield)
    except Exception as error:
        for said, reason in unfit().items():
            if said in f"{error} {error.__cause__}":
                pytest.skip(reason)
        raise


_frozen = [0]
"""How many modules were there whenever what they hold was taken from the garbage collector."""


def pytest_runtest_setup() -> None:
    """Let no collection look at what was imported: with torch and TRL a quarter of a training's CPU."""
    if len(sys.modules) > _frozen[-1] + 200:
        gc.collect()
        gc.freeze()
        _frozen.append(len(sys.modules))
        if "dill.detect" in sys.modules:
            remember_globals(sys.modules["dill.detect"])


def remember_globals(detect: Any) -> None:
    """Let dill disassemble a function once: `Dataset.map` pickles all of TRL's for each fingerprint.

    Which globals a function names follows from its code alone. That is half the CPU of a small dataset.
    """
    if hasattr(detect.nestedglobals, "__wrapped__"):
        return
    original = detect.nestedglobals
    found = cache(lambda code, recurse: tuple(original(code, recurse)))

    @wraps(original)
    def nestedglobals(func: Any, recurse: bool = True) -> list[str]:
        return list(found(detect.code(func), recurse))

    detect.nestedglobals = nestedglobals


@pytest.fixture(autouse=True)
def own_converters() -> Iterator[None]:
    """Forget the converters of the plugins that a test loads: they would fit the files of others."""
    from fmtkit.formats import registry

    with registry.forgetting_plugins():
        yield


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the folder of a tiny model with a chat template: one of a session, never written to."""
    import tiny_training as tiny

    from fmtkit.training.run import process

    process.quiet()
    return tiny.make_model(tmp_path_factory.mktemp("model"), template=tiny.TEMPLATE)


@pytest.fixture(scope="session")
def vision_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Return what gives the folder of a family's tiny vision-language model: one of a session each."""
    import tiny_vision

    from fmtkit.training.run import process

    process.quiet()
    return cache(
        lambda family: tiny_vision.make_vision_model(tmp_path_factory.mktemp(family), family)
    )
