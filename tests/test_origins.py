"""Where each token comes from: in what inspect shows of a row, and in its findings."""

import json
from pathlib import Path

import pytest

import fmtkit

ROOT = Path(__file__).parents[1]
TOKENIZER = str(ROOT / "fixtures/tokenizer")
USER = {"role": "user", "content": "Add 2"}
REPLY = {"role": "assistant", "content": "It is 5."}
THOUGHT = {**REPLY, "reasoning_content": "2 + 3"}
CALL = {"type": "function", "function": {"name": "add", "arguments": {"a": 2}}}
CHATML = """{% for m in messages %}<|im_start|>{{ m.role }}
{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}{% else %}{{ m.content }}<|im_end|>{% endif %}
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
ENDLESS = CHATML.replace(
    "{{ m.content }}<|im_end|>{% endgeneration %}", "{{ m.content }}{% endgeneration %}<|im_end|>"
)
UNMARKED = CHATML.replace("{% generation %}", "").replace("{% endgeneration %}", "")
# Which of two texts it writes depends on chance, so that no trace of it holds.
CHANCE = UNMARKED.replace("{% for m in", "{% set x = [1, 1] | random %}{% for m in", 1)
COUNTED = UNMARKED.replace("{{ m.content }}", "{{ m.content }} ({{ m.content | length }})")


def seen(folder: Path, rows: list[dict], template: str, **options):
    """Return the survey, and of each side of the first row its stretches of one kind: what wrote which text."""
    file = folder / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    if "\n" in template:
        (folder / "own.jinja").write_text(template)
        template = str(folder / "own.jinja")
    options = {"type": "openai", **options}
    survey = fmtkit.inspect(
        str(file), tokenizer=TOKENIZER, chat_template=template, show_mask=1, **options
    )
    return survey, [stretches(side) for side in survey.shown[0].sides]


def stretches(side) -> list[tuple]:
    found, start = [], 0
    for one in side.kinds:
        text = side.text[side.offsets[start][0] : side.offsets[one.end - 1][1]]
        found.append((one.kind, one.message, one.by_template, text))
        start = one.end
    assert start == len(side.ids)
    return found


def kinds(made: list[tuple]) -> list[str]:
    return [kind for kind, *_ in made]


def found(survey) -> dict:
    return {f.code: f for f in survey.findings}


def test_a_trace_says_what_wrote_each_token(tmp_path):
    rows = [{"messages": [USER, THOUGHT, USER, {**REPLY, "content": "No."}]}]
    survey, [made] = seen(tmp_path, rows, "qwen3")
    assert made == [
        ("header", 0, True, "<|im_start|>user\n"),
        ("content", 0, False, "Add 2"),
        ("end", 0, True, "<|im_end|>"),
        ("template", 0, True, "\n"),
        ("generation_prompt", 1, True, "<|im_start|>assistant\n"),
        ("reasoning", 1, True, "<think>\n"),
        ("reasoning", 1, False, "2 + 3"),
        ("reasoning", 1, True, "\n</think>\n\n"),
        ("content", 1, False, "It is 5."),
        ("end", 1, True, "<|im_end|>"),
        ("template", 1, True, "\n"),
        ("header", 2, True, "<|im_start|>user\n"),
        ("content", 2, False, "Add 2"),
        ("end", 2, True, "<|im_end|>"),
        ("template", 2, True, "\n"),
        ("generation_prompt", 3, True, "<|im_start|>assistant\n"),
        ("template", 3, True, "<think>\n\n</think>\n\n"),
        ("content", 3, False, "No."),
        ("end", 3, True, "<|im_end|>"),
        ("template", 3, True, "\n"),
    ]
    shares = {one.kind: one for one in survey.masks.kinds}
    assert shares["reasoning"].trained == shares["reasoning"].tokens > 0
    assert shares["generation_prompt"].trained == 0
    assert sum(one.tokens for one in survey.masks.kinds) == survey.masks.tokens
    assert sum(one.trained for one in survey.masks.kinds) == survey.masks.trained


def test_calls_of_tools_and_their_descriptions_have_kinds_of_their_own(tmp_path):
    called = {"role": "assistant", "content": "", "tool_calls": [CALL]}
    tools = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
    messages = [USER, called, {"role": "tool", "content": "5"}, REPLY]
    _, [made] = seen(tmp_path, [{"messages": messages, "tools": tools}], "qwen3")
    by_row = {kind: [t for k, _, own, t in made if k == kind and not own] for kind in kinds(made)}
    assert json.loads("".join(by_row["tools"])) == tools[0]
    assert by_row["tool_call"] == ["add", ' {"a": 2}']
    calls = "".join(text for kind, *_, text in made if kind == "tool_call")
    assert calls == '<tool_call>\n{"name": "add", "arguments": {"a": 2}}\n</tool_call>'
    assert [m for kind, m, _, _ in made if kind == "content"] == [0, 2, 3]


def test_a_system_prompt_of_the_template_is_its_own(tmp_path):
    _, [made] = seen(tmp_path, [{"messages": [USER, REPLY]}], "qwen2_5")
    assert made[0][:3] == ("template", None, True)
    assert "You are Qwen" in made[0][3]
    assert made[1] == ("header", 0, True, "<|im_start|>user\n")


@pytest.mark.parametrize("template", [UNMARKED, CHANCE], ids=["trace", "marks"])
def test_templates_without_marks_or_without_a_trace(template, tmp_path):
    _, [made] = seen(tmp_path, [{"messages": [USER, REPLY, USER, REPLY]}], template)
    assert [kind for kind in kinds(made) if kind in ("content", "end")].count("end") == 4
    said = [(m, text) for kind, m, own, text in made if kind == "content" and not own]
    assert [m for m, _ in said] == [0, 1, 2, 3]
    assert said[1][1] == "It is 5."


def test_where_nothing_is_known_a_note_says_so_and_nothing_is_found(tmp_path):
    rows = [{"messages": [USER, REPLY]}]
    survey, _ = seen(tmp_path, rows, COUNTED)
    assert any("only replies are told from the rest" in note for note in survey.masks.notes)
    assert not {"template_tokens_trained", "end_not_trained"} & {*found(survey)}
    refused, _ = seen(tmp_path, rows, COUNTED, mask_template_tokens=True)
    assert "which tokens the template wrote is not known" in refused.shown[0].problem


def test_rows_of_text_have_origins_by_their_columns(tmp_path):
    rows = [{"prompt": "Add 2", "completion": " It is 5."}]
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(rows[0]))
    survey = fmtkit.inspect(str(file), type="passthrough", tokenizer=TOKENIZER, show_mask=1)
    [made] = [stretches(side) for side in survey.shown[0].sides]
    assert [(m, text) for kind, m, _, text in made if kind == "content"] == [
        (0, "Add 2"),
        (1, " It is 5."),
    ]


def test_an_end_that_is_written_but_not_trained_is_found(tmp_path):
    survey, _ = seen(tmp_path, [{"messages": [USER, REPLY]}] * 2, ENDLESS)
    finding = found(survey)["end_not_trained"]
    assert (finding.count, [place.line for place in finding.places]) == (2, [1, 2])
    survey, _ = seen(tmp_path, [{"messages": [USER, REPLY]}], CHATML)
    assert not found(survey)


def test_reasoning_that_the_template_leaves_out_is_counted_by_reply(tmp_path):
    within = {"role": "assistant", "content": "<think>\nhm\n</think>\n\nYes."}
    rows = [
        {"messages": [USER, THOUGHT, USER, within, USER, THOUGHT]},
        {"messages": [USER, THOUGHT]},
        {"messages": [USER, THOUGHT, USER, THOUGHT]},
    ]
    source = (ROOT / "templates/models/qwen3.jinja").read_text() + "\n"
    survey, _ = seen(tmp_path, rows, source)
    finding = found(survey)["reasoning_dropped"]
    assert (finding.count, [place.line for place in finding.places]) == (2, [1, 3])
    assert dict(finding.details) == {"replies": 3, "last replies": 0}
    assert "content_dropped" not in found(survey)
    survey, _ = seen(tmp_path, rows, CHATML)
    assert dict(found(survey)["reasoning_dropped"].details) == {"replies": 5, "last replies": 3}


def test_rows_with_and_without_reasoning_are_a_mix(tmp_path):
    empty = {"role": "assistant", "content": "<think>\n\n</think>\n\nNo."}
    rows = [{"messages": [USER, reply]} for reply in (THOUGHT, REPLY, THOUGHT, empty, THOUGHT)]
    finding = found(seen(tmp_path, rows, "qwen3")[0])["thinking_mixed"]
    assert (finding.count, [place.line for place in finding.places]) == (2, [2, 4])
    assert dict(finding.details) == {"with reasoning": 3, "without": 2}
    for same in (rows[::2], rows[1::2]):
        assert "thinking_mixed" not in found(seen(tmp_path, same, "qwen3")[0])


def test_images_are_told_from_the_text_beside_them(tmp_path):
    template = """{% for m in messages %}<|im_start|>{{ m.role }}
{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{% if p.type == 'image' %}<image>{% else %}{{ p.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>
{% endfor %}"""
    from image_samples import png

    (tmp_path / "a.png").write_bytes(png(2, 2))
    asked = {
        "role": "user",
        "content": [{"type": "image"}, {"type": "text", "text": "Add <image>?"}],
    }
    rows = [{"messages": [asked, REPLY], "images": ["a.png"]}]
    _, [made] = seen(tmp_path, rows, template)
    assert [(kind, text) for kind, *_, text in made][1:3] == [
        ("pad_image", "<image>"),
        ("content", "Add <image>?"),
    ]
