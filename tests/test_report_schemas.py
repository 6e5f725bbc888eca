import json
from importlib.resources import files

import jsonschema
import pytest

from fmtkit.core.tables import TABLES
from fmtkit.options.convert_options import ConvertOptions
from fmtkit.running.conversions import convert_to
from fmtkit.running.ledger import Ledger

NAMES = ("report", "quarantine", "manifest")


def load(name):
    return json.loads((files("fmtkit.schemas") / f"{name}.schema.json").read_text())


def properties(schema):
    for key, value in schema.get("properties", {}).items():
        yield key, value
        yield from properties(value)
    if "items" in schema:
        yield from properties(schema["items"])


@pytest.mark.parametrize("name", NAMES)
def test_a_schema_is_valid_and_describes_each_key(name):
    schema = load(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["description"]
    for key, value in properties(schema):
        assert value.get("description"), key


def test_the_report_knows_every_term_of_the_ledger_and_every_table():
    schema = load("report")
    assert {*Ledger().as_dict()} <= {*schema["required"]} <= {*schema["properties"]}
    assert schema["properties"]["table"]["enum"] == [*TABLES]


@pytest.mark.parametrize("out", ["out.parquet", "out"])
def test_what_a_conversion_writes_is_as_the_schemas_say(tmp_path, out):
    row = {"system": "", "question": "q", "chosen": "a", "rejected": "b"}
    source = tmp_path / "source.jsonl"
    source.write_text("\n".join([json.dumps(row), "", "{", json.dumps(row | {"chosen": "b"})]))
    convert_to([str(source)], tmp_path / out, ConvertOptions(type="chatml.intel", workers=1))
    written = {
        name: path.read_text()
        for name in ("report.json", "quarantine.jsonl", "manifest.json")
        for path in tmp_path.glob(f"out*/{name}" if out == "out" else f"out.{name}")
    }
    report = json.loads(written["report.json"])
    jsonschema.validate(report, load("report"))
    assert {*report} <= {*load("report")["properties"]}
    lines = [json.loads(line) for line in written["quarantine.jsonl"].splitlines()]
    assert [line["line"] for line in lines] == [3, 4]
    for line in lines:
        jsonschema.validate(line, load("quarantine"))
    if out == "out":
        jsonschema.validate(json.loads(written["manifest.json"]), load("manifest"))
