"""The native kernel is used where it was built of the sources that lie beside it, and never else."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from fmtkit.core.errors import DependencyError, OptionError, UnusedKernelWarning
from fmtkit.reading import native
from fmtkit.reading.clean_lines import RULES, STEPS

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """Let each test import the kernel anew, whatever this run of the tests asks for."""
    wanted = os.environ.get(native.VARIABLE)
    monkeypatch.delenv(native.VARIABLE, raising=False)
    native.forget()
    yield wanted
    native.forget()


def test_the_kernel_of_this_tree_is_built_of_its_sources(fresh):
    kernel = native.kernel()
    if kernel is None and fresh != native.REQUIRED:
        pytest.skip(f"no native kernel: {native.why_not()}")
    assert kernel is not None, native.why_not()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert native.sources_hash() == kernel.SOURCES
    assert project["version"] == kernel.VERSION
    assert native.why_not() == ""


def test_what_the_kernel_numbers_is_numbered_as_in_python():
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        tables = import_module("pages.kernel_tables")
    finally:
        sys.path.remove(str(ROOT / "docs"))
    header = ROOT / "fmtkit" / "reading" / "kernel" / "tables.h"
    assert header.read_text(encoding="utf-8") == tables.text(), "run `make docs`, then build again"


def test_every_step_and_rule_has_a_case_in_the_kernel():
    # One that has a number alone would be left to the last case.
    turns = (ROOT / "fmtkit" / "reading" / "kernel" / "turns.c").read_text(encoding="utf-8")
    header = (ROOT / "fmtkit" / "reading" / "kernel" / "tables.h").read_text(encoding="utf-8")
    known = re.findall(r"^    ((?:MAKE|RULE)_\w+) = ", header, re.MULTILINE)
    assert len(known) == len(STEPS) + len(RULES)
    assert [name for name in known if f"case {name}:" not in turns] == []


def test_zero_turns_it_off_and_says_so(monkeypatch):
    monkeypatch.setenv(native.VARIABLE, "0")
    assert native.kernel() is None
    assert native.why_not() == "turned off by FMTKIT_KERNEL=0"


def test_a_word_that_is_not_known_is_refused(monkeypatch):
    monkeypatch.setenv(native.VARIABLE, "off")
    with pytest.raises(OptionError, match="FMTKIT_KERNEL=off: takes 0"):
        native.kernel()


def other_sources(tmp_path: Path) -> list[Path]:
    for path in native.sources():
        shutil.copy(path, tmp_path)
    [module] = tmp_path.glob("module.c")
    module.write_text(module.read_text() + "/* changed after the build */\n")
    return sorted(tmp_path.iterdir())


def absent(name: str) -> None:
    raise ModuleNotFoundError(f"No module named {name!r}")


def damaged(name: str) -> None:
    raise ImportError("_kernel.abi3.so: file too short")


@pytest.mark.parametrize(
    ("importing", "reason"),
    [(absent, "it was not built"), (damaged, "it cannot be loaded: .*file too short")],
)
@pytest.mark.filterwarnings("error")
def test_without_a_build_there_is_a_reason_and_require_is_an_error(monkeypatch, importing, reason):
    monkeypatch.setattr(native, "unsupported", lambda: "")
    monkeypatch.setattr(native, "import_module", importing)
    with pytest.raises(UnusedKernelWarning, match=f"{reason}.*2.5 to 6 times.*FMTKIT_KERNEL=0"):
        native.kernel()
    monkeypatch.setenv(native.VARIABLE, "require")
    with pytest.raises(DependencyError, match=f"{reason}.*pip install -e") as caught:
        native.kernel()
    assert caught.value.exit_code == 2


def test_a_build_of_other_sources_is_not_used(monkeypatch, tmp_path):
    class Built:
        SOURCES = native.sources_hash()

    changed = other_sources(tmp_path)
    monkeypatch.setattr(native, "unsupported", lambda: "")
    monkeypatch.setattr(native, "import_module", lambda name: Built)
    assert native.kernel() is Built
    native.forget()
    monkeypatch.setattr(native, "sources", lambda: changed)
    with pytest.warns(UnusedKernelWarning, match="not used.*stale.*pip install -e") as warned:
        assert native.kernel() is None
    assert native.kernel() is None
    assert len(warned) == 1
    assert native.why_not() == "it is stale: built from other sources than those next to it"
    monkeypatch.setenv(native.VARIABLE, "require")
    with pytest.raises(DependencyError, match="stale"):
        native.kernel()


def config_var(value):
    return lambda name: value if name == "Py_GIL_DISABLED" else None


class OnPyPy:
    name = "pypy"


@pytest.mark.parametrize(
    ("target", "value", "reason"),
    [
        ("sys.byteorder", "big", "big-endian"),
        ("sys.maxsize", 2**31 - 1, "32-bit"),
        ("sys.implementation", OnPyPy, "no stable ABI"),
        ("sysconfig.get_config_var", config_var(1), "free-threaded"),
        ("platform.machine", lambda: "s390x", "not tested on s390x"),
    ],
)
def test_a_machine_without_a_kernel_is_named(monkeypatch, target, value, reason):
    monkeypatch.setattr(platform_of(target), target.partition(".")[2], value)
    assert reason in native.unsupported()
    assert native.kernel() is None
    assert reason in native.why_not()


def platform_of(target: str):
    return getattr(native, target.partition(".")[0])


def build(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Build the extension alone, out of the tree."""
    command = ["build_ext", "--build-lib", str(folder / "lib"), "--build-temp", str(folder / "obj")]
    env = {name: value for name, value in os.environ.items() if name != native.VARIABLE}
    return subprocess.run(
        [sys.executable, "setup.py", *command],
        check=False,
        cwd=ROOT,
        env=env | environment,
        capture_output=True,
        text=True,
    )


def test_where_nothing_compiles_fmtkit_installs_without_it_unless_it_is_required(tmp_path):
    pytest.importorskip("setuptools")
    if reason := native.unsupported():
        pytest.skip(reason)
    done = build(tmp_path, CC="no-such-compiler")
    assert done.returncode == 0, done.stderr
    assert "no-such-compiler" in done.stdout + done.stderr
    assert not list(tmp_path.rglob("*.so"))
    assert build(tmp_path, CC="no-such-compiler", FMTKIT_KERNEL="require").returncode != 0


def environment(**variables: str) -> subprocess.CompletedProcess[str]:
    """Run `fmtkit env --json`."""
    command = [sys.executable, "-m", "fmtkit", "env", "--json"]
    env = os.environ | variables
    return subprocess.run(command, check=False, env=env, capture_output=True, text=True)


def test_env_tells_the_kernel_and_why_there_is_none(tmp_path):
    told = json.loads(environment(FMTKIT_KERNEL="0").stdout)["kernel"]
    assert told == "none: turned off by FMTKIT_KERNEL=0"
    reason = native.why_not()
    assert json.loads(environment(FMTKIT_KERNEL="").stdout)["kernel"] == (
        f"none: {reason}" if reason else "native"
    )


@pytest.fixture
def installed(tmp_path):
    """Return a copy of the package, as an installation has it, beside which no kernel lies."""
    out = shutil.ignore_patterns("*.so", "__pycache__")
    for name in ("fmtkit", "runners", "schemas", "templates"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=out)
    return tmp_path


def convert_in(folder: Path) -> str:
    """Convert two rows by a package's command line, and return what it says on stderr."""
    (folder / "a.jsonl").write_text('{"question": "q", "chosen": "a", "rejected": "b"}\n' * 2)
    command = [sys.executable, "-m", "fmtkit", "convert", "a.jsonl", "--type", "chatml.intel"]
    env = {name: value for name, value in os.environ.items() if name != native.VARIABLE}
    done = subprocess.run(
        [*command, "-o", "out.parquet", "--quiet", "--overwrite"],
        check=True,
        cwd=folder,
        env=env | {"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
    )
    return done.stderr


def test_convert_tells_in_one_line_that_there_is_no_build_and_what_that_costs(installed):
    if reason := native.unsupported():
        pytest.skip(reason)
    (line,) = convert_in(installed).splitlines()
    assert line.startswith("fmtkit: the native kernel is not used: it was not built")
    assert "2.5 to 6 times the CPU time" in line


def test_convert_tells_in_one_line_that_the_build_is_stale(installed):
    built = getattr(native.kernel(), "__file__", None)
    if built is None:
        pytest.skip(f"no native kernel: {native.why_not()}")
    shutil.copy(built, installed / "fmtkit" / "reading")
    assert convert_in(installed) == ""
    with (installed / "fmtkit" / "reading" / "kernel" / "read.c").open("a") as file:
        file.write("/* changed after the build */\n")
    (line,) = convert_in(installed).splitlines()
    assert line.startswith("fmtkit: the native kernel is not used")
    assert "stale" in line
    assert "pip install -e ." in line


def test_env_refuses_a_word_that_is_not_known_in_one_line():
    done = environment(FMTKIT_KERNEL="always")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("fmtkit: FMTKIT_KERNEL=always: takes 0")
