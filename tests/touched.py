"""Prints the test files that a change touches, for `make check`: the nearest first.

A change touches a test that was changed, one that imports a changed module, and one that is named by it. For
a module that no test imports, the nearest modules that import it stand in for it. A few tests more are those
of the modules that import a changed one: what it says may break there. What is changed are files that git sees
as new or changed since BASE (default: the last commit).
"""

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = (
    (re.compile(r"fixtures/"), ("test_converters", "test_goldens", "test_text_formats")),
    (re.compile(r"templates/"), ("test_templates", "test_model_templates", "test_goldens")),
    (re.compile(r"schemas/"), ("test_table_schemas", "test_report_schemas", "test_docs")),
    (re.compile(r"(docs/|(runners/\w+/)?README|CONTRIBUTING|CHANGELOG)"), ("test_docs",)),
    (
        re.compile(r"fmtkit/reading/kernel/"),
        ("test_kernel_lines", "test_kernel_layouts", "test_native"),
    ),
    (
        re.compile(r"fmtkit/(core/message_keys|columns/message_rules)\.py"),
        ("test_messages_follow", "test_kinds", "test_kernel_layouts", "test_targets", "test_chat"),
    ),
    (
        re.compile(r"(pyproject\.toml|setup\.py|MANIFEST\.in|constraints\.txt)"),
        ("test_package", "test_native"),
    ),
    (re.compile(r"fmtkit/converters/"), ("test_converters", "test_docs")),
    (re.compile(r"fmtkit/targets/"), ("test_targets", "test_outputs", "test_docs")),
    (re.compile(r"fmtkit/diffing/trainers/"), ("test_diffing", "test_diffing_real")),
    (re.compile(r"fmtkit/(commands/|__main__)"), ("test_cli", "test_help", "test_docs")),
    (re.compile(r"runners/"), ("test_runners", "test_training_planning")),
    (re.compile(r"(fmtkit|runners)/.*\.py$"), ("test_layers",)),
)
"""Files that no test imports, because they are found by their names, and the tests that read them."""


RING = 8
"""How many tests of the modules that import a changed one are added, those of most of them first."""

IMPORT = re.compile(r"^\s*from\s+([\w.]+)\s+import\s+(\([^)]*\)|[^\n]*)", re.MULTILINE)
"""An import, as the house writes it."""
NAMED = re.compile(r"\bfmtkit(?:\.\w+)+")
"""The dotted name of a module, as runners name what builds their trainers."""


def changed(base: str) -> list[str]:
    """Return the paths that differ from `base`, and new files that git does not ignore."""
    asked = (("diff", "--name-only", base), ("ls-files", "--others", "--exclude-standard"))
    return sorted({path for words in asked for path in _git(*words).splitlines()})


def touched(paths: Iterable[str]) -> list[str]:
    """Return the test files for changed paths: those named like one, those that read it, those of its importers."""
    tests = {file: named_by(file) for file in sorted((ROOT / "tests").rglob("test_*.py"))}
    changes = set(paths)
    known = set().union(*tests.values()) | {file.stem for file in tests}
    readers = {reader for path in changes for reader in read_by_tests(path, known)}
    modules = {module for path in readers if (module := _module(path))}
    own = {name for path in changes if (module := _module(path)) for name in _names(module)}
    folders = {"/".join(one.split("/")[:2]) for one in changes if re.match(r"runners/\w+/", one)}
    near, far = [], []
    for file, named in tests.items():
        path = str(file.relative_to(ROOT))
        # A folder of `runners/` has its tests in tests/runners, under the same name.
        is_own = any(path.startswith(f"tests/{folder}/") for folder in folders)
        if path in changes or file.stem in own or is_own:
            near.append(path)
        elif named & modules or any(file.stem in _by_folder(one) for one in readers | changes):
            far.append(path)
    return near + far + _of_importers(changes, tests, {*near, *far})


def _of_importers(changes: set[str], tests: Mapping[Path, set[str]], taken: set[str]) -> list[str]:
    """Return other tests of the modules that import a changed one; to be named like one counts for two."""
    modules = {module for path in changes if (module := _module(path))}
    ring = {_module(one) for one, uses in _imports().items() if uses & modules}
    stems = Counter(name for module in ring if module for name in {*_names(module)})
    count = {
        str(file.relative_to(ROOT)): len(named & ring) + 2 * stems[file.stem]
        for file, named in tests.items()
    }
    others = [path for path, found in count.items() if found and path not in taken]
    return sorted(others, key=lambda path: (-count[path], path))[:RING]


def read_by_tests(path: str, known: set[str]) -> set[str]:
    """Return a file and, if none of the known tests reads it, the nearest modules that import it and are read."""
    seen, ring = {path}, {path}
    while ring:
        if found := {one for one in ring if is_read(one, known)}:
            return found | {path}
        modules = {_module(one) for one in ring}
        ring = {one for one, uses in _imports().items() if uses & modules} - seen
        seen |= ring
    return {path}


def is_read(path: str, known: set[str]) -> bool:
    module = _module(path)
    return bool(
        _by_folder(path) - {"test_layers"} or (module and {module, *_names(module)} & known)
    )


def _by_folder(path: str) -> set[str]:
    return {test for found, tests in FOLDERS if found.match(path) for test in tests}


@cache
def _imports() -> dict[str, set[str]]:
    """Return the files of the tree, and what each of them imports."""
    files = [path for room in ("fmtkit", "runners") for path in (ROOT / room).rglob("*.py")]
    return {str(path.relative_to(ROOT)): _imported(path) for path in files}


def _imported(file: Path) -> set[str]:
    """Return what a module imports, found by text: to parse all of the tree would take seconds."""
    text = file.read_text(encoding="utf-8")
    found = {*NAMED.findall(text)}
    for written, names in IMPORT.findall(text):
        module = _absolute(file, written) if written.startswith(".") else written
        found |= {module, *(f"{module}.{name}" for name in re.findall(r"\w+", names))}
    return found


def _absolute(file: Path, module: str) -> str:
    """Return the name of a module that a file of `runners/NAME` imports as `.other` or `..folder.other`."""
    name = module.lstrip(".")
    package = file.parents[len(module) - len(name) - 1].relative_to(ROOT)
    return ".".join(("fmtkit", *package.parts, *([name] if name else [])))


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


@cache
def named_by(file: Path) -> set[str]:
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
