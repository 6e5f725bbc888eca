"""The table of keys is complete, and its schema is the one that ships."""

import json
from pathlib import Path

from jsonschema import Draft202012Validator
from versions import as_pinned

from fmtkit.formats import resources
from fmtkit.training.config import schema
from fmtkit.training.config.key import destinations, words
from fmtkit.training.config.keys import aliases, table
from fmtkit.training.config.keys_data import DATASET_KEYS


@as_pinned
def test_the_shipped_schema_is_that_of_the_table():
    assert json.loads(resources.schema_text("config")) == json.loads(schema.dumps())


def test_the_schema_is_a_schema():
    Draft202012Validator.check_schema(schema.build())


def test_every_key_says_what_it_is_in_one_line_and_where_it_goes():
    for key in (*table().values(), *DATASET_KEYS):
        assert key.about
        assert "\n" not in key.about
        assert key.to in destinations()
        assert words(key.kind) if key.kind != "datasets" else True


def test_no_alias_is_a_key_and_no_alias_stands_twice():
    spellings = [alias for key in table().values() for alias in key.aliases]
    assert len(spellings) == len(set(spellings)) == len(aliases())
    assert not set(spellings) & set(table())


@as_pinned
def test_the_page_of_keys_is_that_of_the_table():
    from fmtkit.training import config_page

    page = Path(__file__).parent.parent / "docs" / "config.md"
    assert page.read_text(encoding="utf-8") == config_page.text()
