"""What is packaged is what is in the tree, and a wheel of it works."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SETUPTOOLS = PROJECT["tool"]["setuptools"]
FOLDERS = {package: ROOT / folder for package, folder in SETUPTOOLS["package-dir"].items()}


def packages_of_the_tree() -> list[str]:
    """Return every package that lies in a folder of the map."""
    found = set()
    for package, folder in FOLDERS.items():
        for mark in folder.rglob("__init__.py"):
            inner = mark.parent.relative_to(folder).parts
            found.add(".".join((package, *inner)))
    return sorted(found)


def test_every_package_of_the_tree_is_packaged(monkeypatch):
    from distutils.core import run_setup

    import setuptools  # noqa: F401 - it brings the module below

    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "path", [*sys.path])
    packages = run_setup("setup.py", stop_after="init").packages
    assert sorted(packages) == packages_of_the_tree()
    assert "fmtkit.runners.ebft" in packages


def test_every_folder_with_modules_is_a_package():
    for folder in FOLDERS.values():
        for module in folder.rglob("*.py"):
            assert (module.parent / "__init__.py").exists(), module


def data_files() -> set[str]:
    """Return the data files that belong into a wheel, by their place in it."""
    found = set()
    for package, patterns in SETUPTOOLS["package-data"].items():
        folder = FOLDERS.get(package, ROOT / package.replace(".", "/"))
        for pattern in patterns:
            files = {path.relative_to(folder).as_posix() for path in folder.glob(pattern)}
            found |= {f"{package.replace('.', '/')}/{name}" for name in files}
    return found


def test_data_of_every_kind_is_packaged():
    found = data_files()
    assert "fmtkit/py.typed" in found
    assert "fmtkit/reading/kernel/module.c" in found
    for folder, package in ((ROOT / "templates", "templates"), (ROOT / "schemas", "schemas")):
        names = {path.name for path in folder.iterdir() if path.suffix not in (".py", "")}
        assert {f"fmtkit/{package}/{name}" for name in names} <= found


@pytest.mark.slow
def test_a_wheel_holds_everything_and_converts(tmp_path):
    # Of a copy: setuptools leaves a build/ behind, whose files would be in every later wheel.
    tree = tmp_path / "tree"
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so", "build", ".*")
    for name in ("fmtkit", "runners", "schemas", "templates"):
        shutil.copytree(ROOT / name, tree / name, ignore=ignored)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree / name)
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "-q",
        "-w",
        str(tmp_path),
        str(tree),
    ]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if "No module named 'setuptools'" in done.stderr or "Cannot import 'setuptools" in done.stderr:
        pytest.skip("setuptools is not installed")
    assert done.returncode == 0, done.stderr
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        archive.extractall(tmp_path / "site")
    assert data_files() <= names
    for package in packages_of_the_tree():
        assert f"{package.replace('.', '/')}/__init__.py" in names
    (tmp_path / "a.jsonl").write_text('{"question": "q", "chosen": "a", "rejected": "b"}\n')
    script = (
        "import fmtkit, fmtkit.cli, sys; assert 'site/' in fmtkit.__file__.replace(chr(92), '/'); "
        "print(fmtkit.convert('a.jsonl', 'llama3.intel', 'a.parquet').rows_written)"
    )
    paths = {"PYTHONPATH": str(tmp_path / "site"), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        check=False,
        cwd=tmp_path,
        env=paths,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "1\n", done.stderr


@pytest.fixture(scope="module")
def clone(tmp_path_factory) -> Path:
    """Return a copy of the tree as `git clone` makes it: nothing that was built or installed."""
    target = tmp_path_factory.mktemp("clone")
    for name in ("fmtkit", "runners", "schemas", "templates"):
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so")
        shutil.copytree(ROOT / name, target / name, ignore=ignored)
    return target


def in_clone(clone: Path, *arguments: str, **environment: str) -> str:
    """Run Python in a clone's root, where an editable installation of another tree is no help."""
    # -S leaves out site-packages with the editable finder; what fmtkit needs comes by its path.
    paths = os.pathsep.join(path for path in sys.path if "site-packages" in path)
    done = subprocess.run(
        [sys.executable, "-S", *arguments],
        check=False,
        cwd=clone,
        env={"PYTHONPATH": paths, "PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_clone_imports_beside_an_installation(clone):
    script = (
        "import fmtkit; print(fmtkit.__file__); "
        "print(fmtkit.render([{'role': 'user', 'content': 'hi'}], 'chatml'))"
    )
    where, *text = in_clone(clone, "-c", script).splitlines()
    assert Path(where).parent.parent.resolve() == clone.resolve()
    assert text == ["<|im_start|>user", "hi<|im_end|>"]


def test_a_clone_runs_as_a_module(clone):
    schema = json.loads(in_clone(clone, "-m", "fmtkit", "schema", "quarantine"))
    assert schema == json.loads((ROOT / "schemas" / "quarantine.schema.json").read_text())
    assert "Preference" in in_clone(clone, "-m", "fmtkit", "types", "intel")


def test_an_installation_finds_no_folder_beside_itself(tmp_path, clone):
    """What is installed holds its templates: a `templates` beside it in site-packages is a stranger's."""
    site = tmp_path / "site"
    shutil.copytree(clone / "fmtkit", site / "fmtkit")
    for name in ("runners", "schemas", "templates"):
        shutil.copytree(clone / name, site / "fmtkit" / name)
        (site / name).mkdir()
        (site / name / "__init__.py").write_text("raise SystemExit('a stranger')")
    script = "import fmtkit.templates; print(len(fmtkit.__path__), fmtkit.templates.__file__)"
    count, file = in_clone(site, "-c", script).split()
    assert (count, Path(file)) == ("1", site / "fmtkit" / "templates" / "__init__.py")


@pytest.mark.slow
def test_the_source_archive_holds_the_clone_and_runs_its_tests(tmp_path):
    if not (ROOT / ".git").exists():
        pytest.skip("needs a git checkout to compare with")
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        check=True,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    tracked = {name for name in listed.stdout.splitlines() if (ROOT / name).exists()}
    tree = tmp_path / "tree"
    for name in tracked:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tree / name)
    build = f"from setuptools import build_meta as b; b.build_sdist({str(tmp_path)!r})"
    done = subprocess.run(
        [sys.executable, "-c", build], check=False, cwd=tree, capture_output=True, text=True
    )
    if "No module named 'setuptools'" in done.stderr:
        pytest.skip("setuptools is not installed")
    assert done.returncode == 0, done.stderr
    [archive] = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        # Python 3.11 has the filter from 3.11.4 on.
        safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        tar.extractall(tmp_path / "out", **safely)
    [root] = (tmp_path / "out").iterdir()
    held = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    assert tracked <= held
    tests = ["-m", "pytest", "tests/test_converters.py", "tests/test_add_a_format.py"]
    assert " passed" in in_clone(root, *tests, HOME=str(tmp_path))


def test_imports_are_sorted_alike_whatever_folders_a_clone_collects(tmp_path):
    """`make demo` leaves runs/; tests/runs.py is no part of it."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for folder in ("runs", "demo", "tests"):
        (tmp_path / folder).mkdir()
    source = "import pytest\nfrom runs import fmtkit\n\nfrom fmtkit.core import errors\n"
    (tmp_path / "tests" / "test_x.py").write_text(source, encoding="utf-8")
    command = [sys.executable, "-m", "ruff", "check", "--select", "I", "--no-cache", "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
