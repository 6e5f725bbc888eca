"""docs/which-layout.md: one row of each layout, from the fixtures that tests convert."""

import json
from pathlib import Path

from fmtkit.formats import registry
from pages.markdown import NOTICE, code

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
HEAD = f"""\
{NOTICE}
# Which layout is mine?

`fmtkit inspect FILE` says it, and prints the command that converts the file. To find it by eye, look for a
row like yours below: one row of each layout, under the table that it becomes. What each column may hold is in
[Formats](formats.md).
"""


def text() -> str:
    """Return the page."""
    tables: dict[str, list[str]] = {}
    for name in registry.names():
        row = first_row(name)
        if row is not None:
            made = registry.converters_named(name)[0].table
            tables.setdefault(made, []).append(f"\n{code(name)}\n\n```json\n{row}\n```\n")
    parts = (f"\n## {made}\n{''.join(rows)}" for made, rows in sorted(tables.items()))
    return HEAD + "".join(parts)


def first_row(name: str) -> str | None:
    """Return the first row of a layout's fixture that converts; None where there is no such file."""
    source = FIXTURES / name / "source.jsonl"
    if not source.is_file():
        return None
    refused = {json.loads(line)["line"] for line in _lines(FIXTURES / name / "quarantine.jsonl")}
    row = next(line for number, line in enumerate(_lines(source), 1) if number not in refused)
    return json.dumps(json.loads(row), ensure_ascii=False)


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
