"""Prints the test files that a change touches, for `make check`: the nearest first.

A change touches a test that was changed, one that imports a changed module, and one that is named by it.
What is changed are files that git sees as new or changed since BASE (default: the last commit).
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = (
    (re.compile(r"fixtures/"), ("test_converters", "test_goldens", "test_text_formats")),
    (re.compile(r"templates/"), ("test_templates", "test_goldens")),
    (re.compile(r"schemas/"), ("test_table_schemas", "test_report_schemas", "test_docs")),
    (re.compile(r"(docs/|README|CONTRIBUTING|CHANGELOG)"), ("test_docs",)),
    (re.compile(r"fmtkit/reading/kernel/"), ("test_kernel_lines", "test_native")),
    (re.compile(r"fmtkit/converters/"), ("test_converters", "test_docs")),
    (re.compile(r"runners/"), ("test_runners", "test_training_planning")),
    (re.compile(r"(fmtkit|runners)/.*\.py$"), ("test_layers",)),
)
"""Files that no test imports, and the tests that read them."""


def changed(base: str) -> list[str]:
    """Return the paths that differ from `base`, and new files that git does not ignore."""
    asked = (("diff", "--name-only", base), ("ls-files", "--others", "--exclude-standard"))
    return sorted({path for words in asked for path in _git(*words).splitlines()})


def touched(paths: Iterable[str]) -> list[str]:
    """Return the test files for changed paths: those named like one, then those that import or read it."""
    paths = list(paths)
    modules = {module for path in paths if (module := _module(path))}
    near, far = [], []
    for file in sorted((ROOT / "tests").glob("test_*.py")):
        path = f"tests/{file.name}"
        if path in paths or file.stem in {name for m in modules for name in _names(m)}:
            near.append(path)
        elif _named(file) & modules or any(
            file.stem in tests
            for found, tests in FOLDERS
            if any(found.match(path) for path in paths)
        ):
            far.append(path)
    return near + far


def _git(*words: str) -> str:
    return subprocess.run(
        ("git", *words), cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout


def _module(path: str) -> str | None:
    """Return the dotted name by which tests import a file: helpers of the tests have none before theirs."""
    if not path.endswith(".py"):
        return None
    dotted = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return f"fmtkit.{dotted}" if dotted.startswith("runners.") else dotted.removeprefix("tests.")


def _names(module: str) -> tuple[str, str]:
    parts = module.split(".")
    return f"test_{parts[-1]}", f"test_{'_'.join(parts[-2:])}"


def _named(file: Path) -> set[str]:
    """Return the modules that a test imports, and the scripts beside it that it starts."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value.removesuffix(".py"))
        elif isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
    return found


if __name__ == "__main__":
    print(*touched(changed(sys.argv[1] if len(sys.argv) > 1 else "HEAD")))
