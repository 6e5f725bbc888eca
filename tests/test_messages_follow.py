"""A role and a key of messages are stated once: one entry of fmtkit.core.message_keys, and all else follows."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fmtkit.core.message_keys import MESSAGE_KEYS, MessageKey

ROOT = Path(__file__).parents[1]
ROLE = '    "function": "tool",\n'
KEY = "MESSAGE_KEYS = (\n"
ADDED_ROLES = '    "robot": "assistant",\n    "critic": "critic",\n'
ADDED_KEYS = """\
    MessageKey("mood", ("mood", "tone"), "the mood", "text"),
    MessageKey("thought", ("thought",), "thoughts", "text", says=True),
"""
GLAD = [
    {"role": "user", "content": "q"},
    {"role": "assistant", "content": "a", "mood": "glad"},
    {"role": "user", "content": "r"},
    {"role": "assistant", "thought": "b"},
]
"""The sound row of changed_messages, without what is null or empty."""


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> dict[str, Any]:
    """Return what a copy of fmtkit makes of rows that have the added roles and keys."""
    folder = tmp_path_factory.mktemp("changed")
    for name in ("fmtkit", "runners", "schemas", "templates"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    home = folder / "fmtkit" / "core" / "message_keys.py"
    text = home.read_text()
    assert text.count(ROLE) == text.count(KEY) == 1
    home.write_text(text.replace(ROLE, ROLE + ADDED_ROLES).replace(KEY, KEY + ADDED_KEYS))
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("changed_messages.py"))],
        cwd=folder,
        env={"PYTHONPATH": str(folder), "PATH": "", "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    made: dict[str, Any] = json.loads(done.stdout)
    return made


def test_they_are_read_and_written(found):
    read = found["read"]
    assert read["lines"] == read["rows"] == [GLAD, ["empty_field"]]
    assert read["again"] == GLAD


@pytest.mark.parametrize("source", ["columns", "lines"])
def test_templates_see_them_wherever_they_are_rendered(found, source):
    # Every second row has the key, and the first has not.
    assert (found["rendered"][source]["wrong"], found["rendered"][source]["plain_rows"]) == (0, 0)
    assert found["rendered"][source]["traced_rows"] == 3_000


def test_lines_that_have_them_are_fused(found):
    if not found["rendered"]["kernel"]:
        pytest.skip("there is no native kernel")
    assert found["rendered"]["lines"]["fused"] == 3_000


def test_other_formats_read_them_or_refuse_the_row(found):
    reply = {"role": "assistant", "content": "a", "mood": "glad", "thought": "b"}
    for name in ("sharegpt", "chat_template.default", "openai_preference"):
        assert found["converted"][f"{name} lines"] == found["converted"][f"{name} rows"] == [reply]
    refused = ["unsupported: the type cannot carry thought in a message"]
    assert found["converted"]["ultra lines"] == found["converted"]["ultra rows"] == refused


def test_masks_of_templates_have_them(found):
    assert found["masked"] == ["glada;", "b;"]


def test_a_target_without_a_place_for_them_says_so(found):
    refused = found["targets"]
    assert "the mood" in refused["strict"][0]
    # Of a turn that had nothing but a thought nothing is left.
    assert "an empty turn" in refused["lossy"][0]


def test_a_target_that_has_no_name_for_a_role_says_so(found):
    roles = found["targets"]["roles"]
    assert len(roles) == 5
    for made, refused in roles.values():
        assert (made, len(refused)) == (1, 1)
        assert refused[0].startswith(
            "no_place: the layout has no place for a turn of another role than "
        )


def test_what_a_turn_says_in_an_added_key_is_said(found):
    spoken = found["spoken"]
    assert spoken["findings"] == ["control_tokens"]
    assert spoken["masks"] == [["user", "content", "q"], ["assistant", "content", "<|end|> b"]]
    assert spoken["pages"] == "[user]\nq\n[assistant]\n<|end|> b"
    assert spoken["lost"] == {"content_dropped": 1}
    assert spoken["unread"] == ["<|end|> b"]


def test_schemas_of_sources_have_them(found):
    assert "robot" in found["schemas"]["source"]
    assert "thought" in found["schemas"]["source"]


def test_schemas_of_tables_have_them(found):
    message = found["schemas"]["message"]
    assert message["properties"]["mood"] == message["properties"]["thought"]
    assert {"required": ["thought"]} in message["anyOf"]
    assert {"required": ["mood"]} not in message["anyOf"]
    assert "critic" in message["properties"]["role"]["enum"]
    assert found["schemas"]["faults"] == []


@pytest.mark.parametrize("form", ["flag", "spans", "text", "calls"])
def test_a_key_that_templates_see_is_one_that_reaches_them(form):
    marks = form in ("flag", "spans")
    with pytest.raises(ValueError, match="templates see texts and calls"):
        MessageKey("mood", ("mood",), "the mood", form, marks=not marks)
    assert form in {key.form for key in MESSAGE_KEYS}
