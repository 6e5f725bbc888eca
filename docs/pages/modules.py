"""docs/modules.md: every module in one line, from the first line of its docstring."""

import ast
from collections.abc import Iterator
from pathlib import Path

from pages.markdown import NOTICE, code, table

ROOT = Path(__file__).resolve().parents[2]
ROOMS = {
    "fmtkit": "the package",
    "fmtkit/sources": "bytes in",
    "fmtkit/converters": "one module per format",
    "fmtkit/reports": "faces of a survey",
    "fmtkit/training": "from a config to a trained model",
    "fmtkit/training/rl": "what TRL lacks",
    "runners": "one module per training method (`fmtkit.runners`)",
}
HEAD = f"""\
{NOTICE}
# Modules

How they hang together is in [Design](design.md). A module is named by the one thing that it is about.
"""


def text() -> str:
    """Return the page."""
    return HEAD + "".join(_room(folder, said) for folder, said in ROOMS.items())


def _room(folder: str, said: str) -> str:
    return f"\n## {folder}/ — {said}\n\n" + table(["module", "is about"], _modules(folder))


def _modules(folder: str) -> Iterator[list[str]]:
    for path in sorted((ROOT / folder).glob("*.py")):
        if path.stem not in ("__init__", "__main__"):
            yield [code(path.stem), _first_sentence(path)]


def _first_sentence(path: Path) -> str:
    """Return the first sentence of a module's docstring, or all of its first paragraph."""
    said = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(said.partition("\n\n")[0].split())
