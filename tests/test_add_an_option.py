"""An option is one field of convert_options.py; flags, keywords, keys, schemas and pages know it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("trl")

ROOT = Path(__file__).parents[1]
FIELD = """    mood: str = option(
        CHOICE,
        "How it sounds.",
        default="warm",
        choices=("warm", "cold"),
        keys=("datasets.mood", "mood"),
    )
"""
BEFORE = "    max_errors: str | None = option("
SCRIPT = """
import importlib.util
import json
import sys

import fmtkit.options

spec = importlib.util.spec_from_file_location("fmtkit.options.convert_options", "options.py")
options = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = fmtkit.options.convert_options = options
spec.loader.exec_module(options)

sys.path.insert(0, sys.argv[1])
import generate
from pages import commands

from fmtkit import library
from fmtkit.training import config_page
from fmtkit.training.config import config, schema
from fmtkit.training.config import slices
from fmtkit.training.data import datasets
from fmtkit.training.planning import plan as planning
from fmtkit.training.data.convert_config import _entry


def error(function, *arguments, **given):
    try:
        function(*arguments, **given)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


entry = {"path": "rows.jsonl", "type": "intel"}
run = {"rl": "dpo", "datasets": [entry, {**entry, "mood": "warm"}], "mood": "cold"}
plan = planning.plan(run, partial=True)
whole = slice_ = slices.slice_of({}, None)
convert = [_entry(plan, one, options.ConvertOptions(), is_file=True)[1].mood for one in plan.datasets]
typed = options.ConvertOptions(mood="warm", typed=frozenset({"mood"}))
print(json.dumps({
    "train": [
        datasets.options_of(plan, one, whole, local=True, split=True).mood for one in plan.datasets
    ],
    "convert -c": convert,
    "typed": [_entry(plan, one, typed, is_file=True)[1].mood for one in plan.datasets],
    "help": library.convert.__doc__,
    "stub": generate.files()["fmtkit/__init__.pyi"],
    "commands": commands.text(),
    "page": config_page.text(),
    "schema": schema.build()["properties"]["mood"],
    "of an entry": "mood" in schema.build()["properties"]["datasets"]["items"]["properties"],
    "wrong": [
        error(library.convert, "rows.jsonl", "intel", mood="hot"),
        error(config.load, {"mood": "hot"}),
        error(config.load, {"mod": "cold"}),
    ],
}))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Return what a process says that has an option more."""
    folder = tmp_path_factory.mktemp("option")
    source = (ROOT / "fmtkit" / "options" / "convert_options.py").read_text(encoding="utf-8")
    assert source.count(BEFORE) == 1
    (folder / "options.py").write_text(source.replace(BEFORE, FIELD + BEFORE), encoding="utf-8")
    (folder / "script.py").write_text(SCRIPT, encoding="utf-8")
    (folder / "rows.jsonl").write_text('{"question": "q", "chosen": "a", "rejected": "b"}\n')
    done = subprocess.run(
        [sys.executable, "script.py", str(ROOT / "docs")],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_run_and_a_conversion_of_its_config_honour_it_alike(found):
    assert found["train"] == found["convert -c"] == ["cold", "warm"]
    assert found["typed"] == ["warm", "warm"]


def test_the_library_and_the_command_line_take_it(found):
    assert "    mood: How it sounds." in found["help"]
    assert 'mood: Literal["warm", "cold"]' in found["stub"]
    assert "--mood" in found["commands"]


def test_the_keys_and_their_schema_know_it(found):
    assert "| `mood` | one of warm, cold | fmtkit | How it sounds. |" in found["page"]
    assert found["schema"]["enum"] == ["warm", "cold", None]
    assert found["of an entry"]


def test_a_wrong_value_and_a_wrong_name_are_refused(found):
    by_keyword, by_key, misspelled = found["wrong"]
    assert by_keyword == "OptionError: --mood hot: choose one of warm, cold"
    assert "mood: 'hot' is not one of warm, cold" in by_key
    assert "did you mean 'mood'?" in misspelled
