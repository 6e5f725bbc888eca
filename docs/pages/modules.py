"""docs/modules.md: every package and module in one line, from the first of its docstring."""

import ast
from collections.abc import Iterator
from pathlib import Path

from pages.markdown import NOTICE, code, table

ROOT = Path(__file__).resolve().parents[2]
HEAD = f"""\
{NOTICE}
# Modules

[Design](design.md) explains how they fit together. Each module is named after the one thing that it is about.
"""


def text() -> str:
    """Return the page."""
    return HEAD + "".join(_room(path) for path in _packages())


def _packages() -> list[Path]:
    rooms = (ROOT / "fmtkit", ROOT / "runners")
    return [mark.parent for room in rooms for mark in sorted(room.rglob("__init__.py"))]


def _room(path: Path) -> str:
    about = _first_sentence(path / "__init__.py")
    head = f"\n## {path.relative_to(ROOT)}/\n\n" + (f"{about}\n\n" if about else "")
    return head + table(["module", "is about"], _modules(path))


def _modules(folder: Path) -> Iterator[list[str]]:
    for path in sorted(folder.glob("*.py")):
        if path.stem not in ("__init__", "__main__"):
            yield [code(path.stem), _first_sentence(path)]


def _first_sentence(path: Path) -> str:
    """Return the first sentence of a module's docstring, or all of its first paragraph."""
    said = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(said.partition("\n\n")[0].split())
