"""What is packaged is what is in the tree, and a wheel of it works."""

import subprocess
import sys
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


def test_every_package_of_the_tree_is_listed():
    assert sorted(SETUPTOOLS["packages"]) == packages_of_the_tree()


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
            found |= {f"{package.replace('.', '/')}/{path.name}" for path in folder.glob(pattern)}
    return found


def test_data_of_every_kind_is_packaged():
    found = data_files()
    assert "fmtkit/py.typed" in found
    for folder, package in ((ROOT / "templates", "templates"), (ROOT / "schemas", "schemas")):
        names = {path.name for path in folder.iterdir() if path.suffix not in (".py", "")}
        assert {f"fmtkit/{package}/{name}" for name in names} <= found


@pytest.mark.slow
def test_a_wheel_holds_everything_and_converts(tmp_path):
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
        str(ROOT),
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
