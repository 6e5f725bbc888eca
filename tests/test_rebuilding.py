"""Faults that wait for the rebuilding of the data half: each test fails for the reason it names."""

import json

import pytest

import fmtkit

TEMPLATES = ["chatml", "llama3", "qwen3"]


def lines(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def rendered(path, type, tmp_path):
    fmtkit.convert(path, type, tmp_path / "out.jsonl")
    return [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.xfail(
    strict=True, reason="A13: a prompt's last turn is closed before its continuation"
)
def test_a_prompt_that_ends_with_an_assistant_turn_is_continued(tmp_path, template):
    row = {
        "prompt": [
            {"role": "user", "content": "Who are you?"},
            {"role": "assistant", "content": "Hello, my"},
        ],
        "completion": [{"role": "assistant", "content": " name is Bob"}],
    }
    (made,) = rendered(lines(tmp_path / "rows.jsonl", row), f"{template}.passthrough", tmp_path)
    assert "Hello, my" in made["prompt"]
    assert (made["prompt"] + made["completion"]).count("Hello, my name is Bob") == 1


@pytest.mark.xfail(strict=True, reason="A14: parts of a content are joined before they are trimmed")
def test_a_gemma_template_trims_each_part_of_a_content(tmp_path):
    parts = [{"type": "text", "text": " one "}, {"type": "text", "text": " two "}]
    row = {
        "messages": [
            {"role": "user", "content": parts},
            {"role": "assistant", "content": "three"},
        ]
    }
    (made,) = rendered(lines(tmp_path / "rows.jsonl", row), "gemma.openai", tmp_path)
    assert "<start_of_turn>user\nonetwo<end_of_turn>" in made["text"]
