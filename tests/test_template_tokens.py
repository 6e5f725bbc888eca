"""The finding on tokens that a template writes, that a model never does, and that are trained."""

import json
from pathlib import Path

import pytest
import tiny_training as tiny

pytest.importorskip("trl")

from tokenizers import Tokenizer

import fmtkit
from fmtkit.findings.mask_summary import MaskTally
from fmtkit.tokenizers import tokens

USER = {"role": "user", "content": "red"}
REPLY = {"role": "assistant", "content": "blue river"}
CALL = {"type": "function", "function": {"name": "a", "arguments": {}}}
QWEN = """{% for m in messages %}<|im_start|>{{ m.role }}
{% if m.role == 'assistant' %}{% generation %}<think>
{{ m.reasoning_content or '' }}
</think>

{{ m.content }}{% if m.tool_calls %}<|begin_of_text|>{"name": "a"}{% endif %}<|im_end|>
{% endgeneration %}{% else %}{{ m.content }}<|im_end|>
{% endif %}{% endfor %}"""
ENDS_IN_TURN = QWEN.replace("<|im_end|>\n{% endgeneration %}", "<|im_end|>{% endgeneration %}")
CHANNELS = """{% for m in messages %}<|im_start|>{{ m.role }}
{% if m.role == 'assistant' %}{% generation %}{% if m.reasoning_content %}<|pad|>analysis
{{ m.reasoning_content }}<|im_end|><|im_start|>assistant{% endif %}<|pad|>final
{{ m.content }}<|im_end|>{% endgeneration %}{% else %}{{ m.content }}<|im_end|>{% endif %}
{% endfor %}"""
THOUGHT = {**REPLY, "reasoning_content": "stone"}
CALLED = {**REPLY, "tool_calls": [CALL]}


@pytest.fixture(scope="module")
def survey(tmp_path_factory):
    def make(template: str, rows: list[list[dict]], **options):
        folder = tmp_path_factory.mktemp("model")
        tiny.make_model(folder, template=template)
        file = folder / "rows.jsonl"
        file.write_text("".join(json.dumps({"messages": row}) + "\n" for row in rows))
        return fmtkit.inspect(str(file), type="openai", tokenizer=str(folder), **options), folder

    return make


def found(made) -> dict[str, float] | None:
    codes = [f for f in made.findings if f.code == "template_tokens_trained"]
    return dict(codes[0].details) if codes else None


def count(folder: Path, text: str) -> int:
    backend: Tokenizer = tokens.load(folder).backend
    return len(backend.encode(text, add_special_tokens=False).ids)


def test_an_empty_think_block_and_what_follows_the_end_of_turn_are_found(survey):
    made, folder = survey(QWEN, [[USER, REPLY]] * 3 + [[USER, THOUGHT]])
    details = found(made)
    written = 3 * count(folder, "<think>\n\n</think>\n\n") + 4 * count(folder, "\n")
    assert details is not None
    assert details["tokens"] == written
    assert details["of rows looked at"] == 4
    assert details["of trained tokens"] == pytest.approx(written / made.masks.trained)
    [finding] = [f for f in made.findings if f.code == "template_tokens_trained"]
    assert (finding.count, finding.share, finding.severity) == (4, 1.0, "note")
    assert [place.line for place in finding.places] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("template", "rows", "options"),
    [
        (ENDS_IN_TURN, [[USER, THOUGHT], [USER, THOUGHT, USER, THOUGHT]], {}),
        (CHANNELS, [[USER, THOUGHT], [USER, REPLY]], {}),
        (tiny.TEMPLATE, [[USER, REPLY]], {}),
        (QWEN, [[USER, REPLY]], {"train_on_inputs": True}),
    ],
)
def test_what_a_model_learns_to_write_is_no_finding(survey, template, rows, options):
    assert found(survey(template, rows, **options)[0]) is None


def test_calls_before_the_end_of_a_turn_are_learned(survey):
    made, folder = survey(ENDS_IN_TURN, [[USER, {**CALLED, "reasoning_content": "stone"}]])
    assert found(made) is None
    made, folder = survey(QWEN, [[USER, {**CALLED, "reasoning_content": "stone"}]])
    assert found(made)["tokens"] == count(folder, "\n")


def test_a_tally_of_nothing_has_no_finding():
    tally = MaskTally()
    tally.add((), 0)
    assert tally.findings() == []
