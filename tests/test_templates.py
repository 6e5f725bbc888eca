import json
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2.sandbox import ImmutableSandboxedEnvironment
from nasty_conversations import column, conversations, in_parts, joined, say
from versions import as_pinned

from fmtkit.rendering import chat, survival, template_sources
from fmtkit.rendering.content_parts import in_form
from fmtkit.rendering.jinja_environment import GENERATION_END, GENERATION_START, environment
from fmtkit.rendering.tracing import Interpreter, Refusal, Request

GOLDENS = Path(__file__).parents[2] / "shared" / "data" / "goldens" / "rendering.jsonl"
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
TALK = say(("user", "Hi"), ("assistant", " ok "), ("user", "More"), ("assistant", "Yes."))
WITH_SYSTEM = say(("system", "Be brief."), ("user", "Hi"), ("assistant", "ok"))

WHOLE = {
    "chatml": "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n ok <|im_end|>\n"
    "<|im_start|>user\nMore<|im_end|>\n<|im_start|>assistant\nYes.<|im_end|>",
    "llama3": "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n ok <|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\nMore<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\nYes.<|eot_id|>",
    "zephyr": "<|system|>\n</s>\n<|user|>\nHi</s>\n<|assistant|>\n ok </s>\n"
    "<|user|>\nMore</s>\n<|assistant|>\nYes.</s>",
    "gemma": "<start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\nok<end_of_turn>\n"
    "<start_of_turn>user\nMore<end_of_turn>\n<start_of_turn>model\nYes.<end_of_turn>",
    "mistral_v1": " [INST] Hi [/INST]  ok </s> [INST] More [/INST] Yes.</s>",
    "mistral_v3": "[INST] Hi[/INST]  ok </s>[INST] More[/INST] Yes.</s>",
    "mistral_v3_tekken": "[INST]Hi[/INST] ok </s>[INST]More[/INST]Yes.</s>",
    "alpaca": "Below is an instruction that describes a task. Write a response that appropriately "
    "completes the request.\n\n### Instruction:\nHi\n\n### Response:\n ok "
    "\n\n### Instruction:\nMore\n\n### Response:\nYes.",
    "identity": "Hi ok MoreYes.",
}
SYSTEM = {
    "chatml": "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
    "<|im_start|>assistant\nok<|im_end|>",
    "zephyr": "<|system|>\nBe brief.</s>\n<|user|>\nHi</s>\n<|assistant|>\nok</s>",
    "mistral_v1": " [INST] Be brief.\n\nHi [/INST] ok</s>",
    "alpaca": "Be brief.\n\n### Instruction:\nHi\n\n### Response:\nok",
}


def text(name: str, conversation: Any, **tokens: str) -> str | None:
    template = template_sources.find_family(name).with_tokens(tokens)
    return chat.render(template, column([conversation])).text[0].as_py()


@pytest.mark.parametrize("name", template_sources.SHIPPED)
def test_a_shipped_template_writes_exactly_this(name):
    assert text(name, TALK) == WHOLE[name]


@pytest.mark.parametrize("name", SYSTEM)
def test_a_system_text_stands_where_the_model_expects_it(name):
    assert text(name, WITH_SYSTEM) == SYSTEM[name]


@pytest.mark.parametrize("name", ["chatml", "llama3"])
def test_an_empty_system_text_makes_no_turn(name):
    assert text(name, [{"role": "system", "content": ""}, *TALK]) == WHOLE[name]


@pytest.mark.parametrize("name", sorted(set(template_sources.SHIPPED) - {"identity"}))
def test_the_tokenizers_bos_comes_once_and_first(name):
    assert text(name, TALK, bos_token="<s>") == "<s>" + WHOLE[name]


@pytest.mark.parametrize("name", template_sources.SHIPPED)
def test_what_is_trained_is_the_reply_with_its_end_of_turn(name):
    source = template_sources.find_family(name).source
    made = environment(ImmutableSandboxedEnvironment, mark_generation=True).from_string(source)
    marked = made.render(messages=TALK, bos_token="", add_generation_prompt=False)
    trained = [part.split(GENERATION_END)[0] for part in marked.split(GENERATION_START)[1:]]
    prompt = made.render(messages=TALK[:-1], bos_token="", add_generation_prompt=True)
    assert marked.replace(GENERATION_START, "").replace(GENERATION_END, "") == WHOLE[name]
    assert len(trained) == 2
    assert prompt + GENERATION_START + trained[1] + GENERATION_END == marked


def goldens() -> list[Any]:
    lines = GOLDENS.read_bytes().strip().split(b"\n") if GOLDENS.is_file() else []
    return [pytest.param(case, id=case["id"]) for case in map(json.loads, lines)]


@pytest.mark.skipif(not GOLDENS.is_file(), reason="the samples of ../shared are not here")
@pytest.mark.parametrize("case", goldens())
def test_rendering_equals_the_conformance_samples(case):
    pytest.importorskip("trl", reason="the samples are of TRL's templates")
    template = template_sources.find_model_template("trl:" + case["template"])
    if template.sha256 != case["template_sha256"]:
        pytest.skip("the installed TRL has another version of this template")
    frozen = case.get("frozen_now")
    now = datetime.fromisoformat(frozen) if frozen else None
    variables = {**case["special_tokens"], **case.get("kwargs", {})}
    request = Request(case["messages"], case.get("tools"), case["add_generation_prompt"])
    rendered = Interpreter(template.source, variables, now=now).render([request])[0]
    expected = case["expected"]
    if isinstance(expected, dict):
        assert isinstance(rendered, Refusal)
        assert expected["message"] in rendered.message
    else:
        assert rendered == expected


@cache
def compiled(name: str) -> tuple[chat.ChatTemplate, Interpreter]:
    template = template_sources.find_family(name).with_tokens(TOKENS)
    return template, Interpreter(template.source, TOKENS)


def by_transformers(source: str, conversation: Any, add_generation_prompt: bool) -> str | Exception:
    peer = pytest.importorskip("transformers.utils.chat_template_utils")
    arguments = {"chat_template": source, "add_generation_prompt": add_generation_prompt}
    try:
        return peer.render_jinja_template([conversation], **arguments, **TOKENS)[0][0]
    except Exception as error:  # noqa: BLE001 - whatever axolotl raises, we must refuse
        return error


WORD = "Sentinel"


def with_word(content: Any) -> Any:
    """Put a word that nobody else writes in place of the texts of a content; blank ones stay."""
    if isinstance(content, list):
        return [{**part, "text": with_word(part["text"])} for part in content]
    return WORD if content.strip() else content


def check_against_transformers(name: str, rows: list[Any], add_generation_prompt: bool) -> None:
    """Compare columns, rows and transformers, which is given the content that the template takes."""
    template, interpreter = compiled(name)
    texts, cuts = joined(rows)
    by_columns = chat.render(
        template, column(texts), add_generation_prompt=add_generation_prompt, cuts=cuts
    )
    said = {failure.row: failure.message for failure in by_columns.failures}
    assert by_columns.difference is None
    for row, original in enumerate(rows):
        conversation = [in_form(message, template.compiled.forms) for message in original]
        alone = interpreter.render([Request(conversation, None, add_generation_prompt)])[0]
        found = by_columns.text[row].as_py()
        expected = by_transformers(template.source, conversation, add_generation_prompt)
        if isinstance(expected, str) and said.get(row) == survival.ALL_LOST.message:
            changed = [{**m, "content": with_word(m["content"])} for m in conversation]
            assert WORD not in str(by_transformers(template.source, changed, add_generation_prompt))
        elif isinstance(expected, str):
            assert found == expected == alone
        else:
            assert found is None
            assert isinstance(alone, Refusal)
            assert str(expected) in said[row]


def every_template() -> list[str]:
    trl = [template_sources.TRL_PREFIX + name for name in template_sources.trl_names()]
    return [*template_sources.SHIPPED, *trl]


@as_pinned
@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(every_template()),
    st.lists(conversations(), min_size=1, max_size=6),
    st.booleans(),
)
def test_columns_rows_and_transformers_agree_on_nasty_conversations(name, rows, prompt):
    check_against_transformers(name, rows, prompt)


@as_pinned
@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(every_template()),
    st.lists(in_parts(conversations()), min_size=1, max_size=6),
    st.booleans(),
)
def test_columns_rows_and_transformers_agree_on_contents_in_parts(name, rows, prompt):
    check_against_transformers(name, rows, prompt)


@pytest.mark.slow
@pytest.mark.parametrize("name", every_template())
@settings(max_examples=25, deadline=None)
@given(rows=st.lists(in_parts(conversations()), min_size=1, max_size=6), prompt=st.booleans())
def test_every_template_agrees_with_transformers_on_contents_in_parts(name, rows, prompt):
    check_against_transformers(name, rows, prompt)


@pytest.mark.slow
@pytest.mark.parametrize("name", every_template())
@settings(max_examples=25, deadline=None)
@given(rows=st.lists(conversations(), min_size=1, max_size=12), prompt=st.booleans())
def test_every_template_agrees_with_transformers_on_many_nasty_conversations(name, rows, prompt):
    check_against_transformers(name, rows, prompt)


def test_tojson_does_not_escape_html():
    made = environment(ImmutableSandboxedEnvironment).from_string("{{ x | tojson }}")
    assert made.render(x={"a": "<b>&'é"}) == '{"a": "<b>&\'é"}'


def test_a_namespace_takes_no_underscored_name():
    interpreter = Interpreter("{% set n = namespace(_x=1) %}", {})
    assert "SecurityError" in interpreter.render([Request([], None, False)])[0].message


def test_the_clock_of_a_template_can_be_fixed():
    now = datetime(2024, 7, 26)
    interpreter = Interpreter("{{ strftime_now('%d %b %Y') }}", {}, now=now)
    assert interpreter.render([Request([], None, False)]) == ["26 Jul 2024"]
    assert interpreter.traceable


@pytest.mark.parametrize("key", ["reasoning_content", "thinking", "reasoning"])
def test_reasoning_is_found_under_any_of_its_names(key):
    source = "{{ messages[0].reasoning_content }}|{{ messages[0].thinking }}"
    message = {"role": "assistant", "content": "a", key: "why", "name": None}
    assert Interpreter(source, {}).render([Request([message], None, False)]) == ["why|why"]
