"""fmtkit's own templates of models write what TRL's files of them write, byte for byte."""

import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import test_tool_templates as tools_of
from hypothesis import given, settings
from hypothesis import strategies as st
from nasty_conversations import column, conversations, in_parts, joined, say
from versions import as_pinned

from fmtkit.core.errors import DependencyError
from fmtkit.rendering import chat, template_sources
from fmtkit.rendering.chat import ChatTemplate
from fmtkit.rendering.tracing import Interpreter, Refusal, Request

GOLDENS = Path(__file__).parents[2] / "shared" / "data" / "goldens" / "rendering.jsonl"
MODELS = template_sources.MODELS
NOW = datetime(2024, 7, 26)
TALK = say(("system", "Be brief."), ("user", " Hi "), ("assistant", "ok"), ("user", "More"))
WHOLE = {
    "gemma3": "<s><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\nok"
    "<end_of_turn>\n<start_of_turn>user\nMore<end_of_turn>\n<start_of_turn>model\n",
    "gptoss": "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\n"
    "Knowledge cutoff: 2024-06\nCurrent date: 2024-07-26\n\nReasoning: medium\n\n# Valid channels: "
    "analysis, commentary, final. Channel must be included for every message.<|end|><|start|>developer"
    "<|message|># Instructions\n\nBe brief.\n\n<|end|><|start|>user<|message|> Hi <|end|><|start|>"
    "assistant<|channel|>final<|message|>ok<|end|><|start|>user<|message|>More<|end|><|start|>assistant",
    "llama3": "<s><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|><|start_header_id|>"
    "user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nok<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\nMore<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n",
    "phi3": "<|system|>\nBe brief.<|end|>\n<|user|>\n Hi <|end|>\n<|assistant|>\nok<|end|>\n<|user|>\n"
    "More<|end|>\n<|assistant|>\n",
    "qwen3": "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n Hi <|im_end|>\n<|im_start|>"
    "assistant\nok<|im_end|>\n<|im_start|>user\nMore<|im_end|>\n<|im_start|>assistant\n",
}


def own(name: str) -> ChatTemplate:
    template = template_sources.own_of_model(name).with_tokens(tools_of.TOKENS)
    return replace(template, now=NOW)


def both(name: str) -> list[ChatTemplate]:
    if name not in template_sources.trl_names():
        pytest.skip("the installed TRL has no such template")
    return [own(name), replace(tools_of.template_of(f"trl:{name}"), now=NOW)]


@pytest.mark.parametrize("name", WHOLE)
def test_a_models_template_writes_exactly_this(name):
    assert (
        chat.render(own(name), column([TALK]), add_generation_prompt=True).text[0].as_py()
        == (WHOLE[name])
    )


@pytest.mark.parametrize("name", ["qwen3", "llama3", "gemma3", "gpt_oss", "llama3_2", "phi_35"])
def test_without_trl_a_name_is_that_of_our_own(name, monkeypatch):
    monkeypatch.setattr(template_sources, "trl_names", lambda: ())
    monkeypatch.setattr(template_sources, "trl_folder", lambda: None)
    found = template_sources.find_model_template(name)
    assert found.name in MODELS
    assert found.trusted
    assert name in template_sources.names()
    assert template_sources.recognised("copy", found.source, {}).training == found.training
    with pytest.raises(DependencyError, match="pip install --no-deps trl"):
        template_sources.find_model_template("trl:qwen3")
    with pytest.raises(DependencyError, match="pip install --no-deps trl"):
        template_sources.find_model_template("glm4_moe")


def goldens() -> list[Any]:
    lines = GOLDENS.read_bytes().strip().split(b"\n") if GOLDENS.is_file() else []
    cases = [case for case in map(json.loads, lines) if case["template"] in MODELS]
    return [pytest.param(case, id=case["id"]) for case in cases]


@pytest.mark.skipif(not GOLDENS.is_file(), reason="the samples of ../shared are not here")
@pytest.mark.parametrize("case", goldens())
def test_our_own_equal_the_conformance_samples(case):
    frozen = case.get("frozen_now")
    now = datetime.fromisoformat(frozen) if frozen else None
    variables = {**case["special_tokens"], **case.get("kwargs", {})}
    request = Request(case["messages"], case.get("tools"), case["add_generation_prompt"])
    source = template_sources.own_of_model(case["template"]).source
    rendered = Interpreter(source, variables, now=now).render([request])[0]
    if isinstance(case["expected"], dict):
        assert isinstance(rendered, Refusal)
    else:
        assert rendered == case["expected"]


def verdicts(done: chat.Rendering | chat.ReplyRendering) -> tuple[object, ...]:
    assert done.difference is None
    return [(one.row, one.code) for one in done.failures], done.warnings


def check(templates: list[ChatTemplate], rows: Any, prompt: bool) -> None:
    texts, cuts = joined([conversation for conversation, _ in rows])
    known = pa.array([tools for _, tools in rows], pa.string())
    ours, theirs = (
        chat.render(one, column(texts), tools=known, add_generation_prompt=prompt, cuts=cuts)
        for one in templates
    )
    assert ours.text.to_pylist() == theirs.text.to_pylist()
    assert verdicts(ours) == verdicts(theirs)
    assert ours.traced_rows >= theirs.traced_rows


talks = tools_of.with_calls() | conversations() | in_parts(conversations())
rows = st.lists(st.tuples(talks, tools_of.tool_lists()), min_size=1, max_size=4)


@pytest.mark.slow
@as_pinned
@settings(max_examples=60, deadline=None)
@given(st.sampled_from(MODELS), rows, st.booleans())
def test_conversations_with_our_own_are_written_as_with_trls(name, given, prompt):
    check(both(name), given, prompt)


def check_replies(name: str, given: Any) -> None:
    prompts = column([prompt for prompt, _, _, _ in given])
    replies = {"chosen": column([a for _, a, _, _ in given])}
    replies["rejected"] = column([b for _, _, b, _ in given])
    known = pa.array([tools for _, _, _, tools in given], pa.string())
    ours, theirs = (chat.render_reply(one, prompts, replies, tools=known) for one in both(name))
    assert ours.prompt.to_pylist() == theirs.prompt.to_pylist()
    for side in replies:
        assert ours.replies[side].to_pylist() == theirs.replies[side].to_pylist()
    assert verdicts(ours) == verdicts(theirs)


@pytest.mark.slow
@as_pinned
@settings(max_examples=40, deadline=None)
@given(st.sampled_from(MODELS), st.lists(tools_of.pairs, min_size=1, max_size=3))
def test_replies_with_our_own_are_cut_as_with_trls(name, given):
    check_replies(name, given)


@as_pinned
@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=150, deadline=None)
@given(given=rows, prompt=st.booleans(), pairs=st.lists(tools_of.pairs, min_size=1, max_size=3))
def test_every_model_of_our_own_is_written_as_trls(name, given, prompt, pairs):
    check(both(name), given, prompt)
    check_replies(name, pairs)


TYPES = [
    {"type": "string"},
    {"type": "string", "nullable": True},
    {"type": "string", "enum": ["a", "b"], "default": "a", "description": "One of two."},
    {"type": "integer", "default": 3},
    {"type": "number", "default": None},
    {"type": "boolean", "default": False},
    {"type": "array"},
    {"type": "array", "nullable": True},
    *({"type": "array", "items": {"type": kind}} for kind in ("string", "integer", "boolean")),
    {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "string"}}}},
    {"type": "array", "items": {"type": "array", "items": {"type": "number"}}, "nullable": True},
    {"type": "array", "items": {"type": ["object", "object"]}},
    {"type": ["string", "null"]},
    {"type": ["object"]},
    {"type": []},
    {"oneOf": [{"type": "string", "description": "Text."}, {"type": "integer", "default": 1}]},
    {"oneOf": [{"type": "object"}, {"type": "string"}], "default": "x"},
    {"type": "object"},
    {
        "type": "object",
        "required": ["a"],
        "properties": {"a": {"type": "string"}, "b": {"type": "object", "properties": {"c": {}}}},
    },
    {"description": "Anything."},
]


@pytest.mark.parametrize("spec", TYPES, ids=json.dumps)
@pytest.mark.parametrize("required", [[], ["value"]])
def test_the_types_of_gpt_oss_are_written_as_with_trls(spec, required):
    parameters = {"type": "object", "properties": {"value": spec, "more": spec}}
    function = {
        "name": "f",
        "description": "Do.",
        "parameters": {**parameters, "required": required},
    }
    tools = json.dumps([{"type": "function", "function": function}])
    check(both("gptoss"), [(TALK, tools)], True)


VARIABLES = [
    ("qwen3", {"enable_thinking": False}),
    ("qwen3", {"enable_thinking": True}),
    ("gptoss", {"reasoning_effort": "high", "model_identity": "You are x."}),
    ("llama3_1", {"date_string": "1 Jan 2025", "tools_in_user_message": False}),
    ("llama3_1", {"builtin_tools": ["search", "code_interpreter"]}),
    ("llama3_2", {"date_string": "1 Jan 2025", "tools_in_user_message": False}),
    ("llama3_2", {"custom_tools": [{"name": "f"}]}),
]


@pytest.mark.parametrize(("name", "variables"), VARIABLES)
def test_variables_of_a_template_have_the_effect_that_they_have_with_trls(name, variables):
    templates = [one.with_kwargs(variables) for one in both(name)]
    called = tools_of.talk(0, '{"query":"x"}')
    tools = f"[{tools_of.SEARCH}]"
    check(templates, [(TALK, None), (called, tools), (TALK, tools)], True)
    check(templates, [(called, tools)], False)
