"""A role and a key of messages are stated once: one entry of fmtkit.core.messages, and all else follows."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROLE = '    "function": "tool",\n'
KEY = "MESSAGE_KEYS = (\n"
USED = """
import json
import fmtkit
from fmtkit.formats import registry, source_schemas

row = {"messages": [
    {"role": "user", "content": "q"}, {"role": "robot", "content": "a", "tone": "glad"},
    {"role": "user", "content": "r"}, {"role": "robot", "content": "", "thought": "b"},
]}
bare = {"messages": [{"role": "user", "content": "q"}, {"role": "robot", "content": ""}]}
with open("rows.jsonl", "w") as file:
    file.write(json.dumps(row) + "\\n" + json.dumps(bare) + "\\n")
with open("t.jinja", "w") as file:
    file.write(
        "{% for m in messages %}{{ m.role }}:{{ m.content }}{{ m.mood }}{{ m.thought }};{% endfor %}"
    )
found = {}
for name, source in (("lines", "rows.jsonl"), ("rows", [row, bare])):
    rejects = []
    table = fmtkit.table(source, "openai", rejects=rejects)
    said = [{k: v for k, v in m.items() if v} for m in table["messages"][0].as_py()]
    found[name] = said, [bad.code for bad in rejects]
found["text"] = fmtkit.table("rows.jsonl", "./t.jinja.openai")["text"][0].as_py()
fmtkit.convert("rows.jsonl", "openai", "out.parquet")
again = fmtkit.table("out.parquet", "openai")["messages"][0].as_py()
found["again"] = [{k: v for k, v in m.items() if v} for m in again]
for allowed in ((), ("mood", "thought")):
    rejects = []
    fmtkit.table("rows.jsonl", "openai", to="openai", rejects=rejects, allow_loss=allowed)
    found[f"target {len(allowed)}"] = [bad.message for bad in rejects if bad.code == "no_place"]
found["schema"] = json.dumps(source_schemas.source_schema(registry.named("openai")[0]))
found["kernel"] = fmtkit.reading.native.kernel() is not None
print(json.dumps(found))
"""


@pytest.mark.slow
def test_a_role_and_keys_are_one_entry_each(tmp_path):
    for name in ("fmtkit", "runners", "schemas", "templates"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    home = tmp_path / "fmtkit" / "core" / "messages.py"
    text = home.read_text()
    assert text.count(ROLE) == text.count(KEY) == 1
    text = text.replace(ROLE, f'{ROLE}    "robot": "assistant",\n')
    mood = '    MessageKey("mood", ("mood", "tone"), "the mood", "text"),\n'
    thought = '    MessageKey("thought", ("thought",), "thoughts", "text", says=True),\n'
    home.write_text(text.replace(KEY, KEY + mood + thought))
    done = subprocess.run(
        [sys.executable, "-c", USED],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path), "PATH": "", "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    said = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "a", "mood": "glad"},
        {"role": "user", "content": "r"},
        {"role": "assistant", "thought": "b"},
    ]
    assert found["lines"] == found["rows"] == [said, ["empty_field"]]
    assert found["again"] == said
    assert found["text"] == "user:q;assistant:aglad;user:r;assistant:b;"
    assert "the mood" in found["target 0"][0]
    # Of a turn that had nothing but a thought nothing is left.
    assert "an empty turn" in found["target 2"][0]
    assert "robot" in found["schema"]
    assert "thought" in found["schema"]
