"""A code for bad rows is one entry of fmtkit/core/codes.py; everything that knows codes knows it."""

import json
import os
import subprocess
import sys
from pathlib import Path

from jsonschema import Draft202012Validator

ROOT = Path(__file__).parents[1]
ENTRY = """    "too_rude": Code("a reply is rude", "Drop the row, or ask again politely."),
"""
CONVERTER = """
import polars as pl

from fmtkit.columns import Text
from fmtkit.columns.conversations import pair
from fmtkit.columns.problems import Problem
from fmtkit.formats.registry import converter
from fmtkit.core.tables import Preference


@converter(name="manners")
def preference(question: Text, better: Text, worse: Text) -> Preference:
    rude = better.value.str.contains("shut up")
    better = better.but(better.value, Problem("too_rude", "better", rude, "rude"))
    return pair(question, better, worse)
"""
SCRIPT = """
import importlib.util
import json
import sys
from pathlib import Path

import fmtkit.core

spec = importlib.util.spec_from_file_location("fmtkit.core.codes", "codes.py")
codes = importlib.util.module_from_spec(spec)
sys.modules["fmtkit.core.codes"] = fmtkit.core.codes = codes
spec.loader.exec_module(codes)

sys.path.insert(0, sys.argv.pop(1))
import generate

made = generate.files()
Path("errors.md").write_text(made["docs/errors.md"], encoding="utf-8")
Path("schema.json").write_text(made["schemas/quarantine.schema.json"], encoding="utf-8")

from fmtkit import cli

cli.main()
"""
ROWS = [
    {"question": "Tea?", "better": "Please.", "worse": "No."},
    {"question": "Tea?", "better": "Oh shut up!", "worse": "Oh shut up!"},
    {"question": 1, "better": "Oh shut up!", "worse": "Oh shut up!"},
]


def test_one_entry_reaches_rows_terminal_page_and_schema(tmp_path: Path) -> None:
    text = (ROOT / "fmtkit" / "core" / "codes.py").read_text(encoding="utf-8")
    # Before no_preference, so that it is not the last of the order.
    changed = text.replace('    "no_preference": Code(', f'{ENTRY}    "no_preference": Code(')
    assert changed != text
    (tmp_path / "codes.py").write_text(changed, encoding="utf-8")
    (tmp_path / "manners.py").write_text(CONVERTER)
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    arguments = ["convert", "rows.jsonl", "--plugin", "manners.py", "--type", "manners"]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(ROOT / "docs"), *arguments, "-o", "out.jsonl"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "a reply is rude" in done.stderr
    lines = (tmp_path / "out.quarantine.jsonl").read_text(encoding="utf-8").splitlines()
    rejects = [json.loads(line) for line in lines]
    # Of two faults of a row the first in the order of the codes is given.
    assert [(r["row"], r["code"]) for r in rejects] == [(1, "too_rude"), (2, "type_error")]
    schema = json.loads((tmp_path / "schema.json").read_text(encoding="utf-8"))
    for reject in rejects:
        Draft202012Validator(schema).validate(reject)
    page = (tmp_path / "errors.md").read_text(encoding="utf-8")
    assert "| `too_rude` | A reply is rude. | Drop the row, or ask again politely. |" in page
