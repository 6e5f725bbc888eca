"""Generate the pages and schemas that follow from the code: `make docs`, or with --check compare only."""

import json
import sys
from pathlib import Path

from pages import (
    commands,
    diff,
    errors,
    formats,
    from_axolotl,
    from_trl,
    index,
    kernel_tables,
    modules,
    stub,
    targets,
    versions,
    which_layout,
)

from fmtkit.core.codes import BAD_ROWS
from fmtkit.formats import table_schemas
from fmtkit.inspection.survey_record import survey_schema
from fmtkit.training import config_page
from fmtkit.training.config import schema

ROOT = Path(__file__).resolve().parents[1]


def files() -> dict[str, str]:
    """Return every generated file: its path from the root of the project, and its text."""
    schemas = {
        f"schemas/{name}": json.dumps(table_schemas.row_schema(table), indent=2) + "\n"
        for name, table in table_schemas.file_names().items()
    }
    return {
        "docs/formats.md": formats.text(),
        "docs/commands.md": commands.text(),
        "docs/diff.md": diff.text(),
        "docs/errors.md": errors.text(),
        "docs/README.md": index.text(),
        "docs/modules.md": modules.text(),
        "docs/targets.md": targets.text(),
        "docs/which-layout.md": which_layout.text(),
        "docs/versions.md": versions.text(),
        "fmtkit/__init__.pyi": stub.text(),
        "fmtkit/reading/kernel/tables.h": kernel_tables.text(),
        "docs/config.md": config_page.text(),
        "docs/from-axolotl.md": from_axolotl.text(),
        "docs/from-trl.md": from_trl.text(),
        "schemas/config.schema.json": schema.dumps(),
        "schemas/quarantine.schema.json": _quarantine_schema(),
        "schemas/survey.schema.json": json.dumps(survey_schema(), indent=2) + "\n",
        **schemas,
    }


def _quarantine_schema() -> str:
    """Return the schema of the quarantine, which is written by hand except for the list of codes."""
    written = (ROOT / "schemas" / "quarantine.schema.json").read_text(encoding="utf-8")
    before, start, rest = written.partition('"enum": [\n')
    codes = ",\n".join(f'            "{code}"' for code in BAD_ROWS)
    return before + start + codes + rest[rest.index("\n          ]") :]


def stale() -> list[str]:
    """Return the files that are not as they would be generated."""
    return [path for path, text in files().items() if not _is(ROOT / path, text)]


def _is(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == text


def main(arguments: list[str]) -> int:
    """Write what is stale, or with --check only name it and return 1."""
    found = stale()
    made = files()
    for path in found:
        sys.stdout.write(f"{path}\n")
        if "--check" not in arguments:
            (ROOT / path).write_text(made[path], encoding="utf-8")
    return int(bool(found) and "--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
