"""`fmtkit.render` of one conversation equals transformers' apply_chat_template, tools and tokenizers included."""

import json

import pytest
import tiny_training as tiny

import fmtkit
from fmtkit.core.errors import OptionError, TemplateError
from fmtkit.rendering.template_sources import find_model_template

TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Say the weather.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
ARGUMENTS = {"city": "Köln", "days": 2, "deep": {"a": [1, None]}}


def conversation(arguments: object) -> list[dict[str, object]]:
    call = {"type": "function", "function": {"name": "weather", "arguments": arguments}}
    return [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Rain in Köln? <&'\""},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "name": "weather", "content": "sun"},
        {"role": "user", "content": "So?"},
    ]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    template = find_model_template("trl:qwen3").source
    return tiny.make_model(tmp_path_factory.mktemp("model"), template=template)


@pytest.fixture(scope="module")
def tokenizer(model):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(model)


@pytest.mark.slow
@pytest.mark.parametrize("prompt", [False, True])
@pytest.mark.parametrize("tools", [None, [TOOL]])
@pytest.mark.parametrize("template", [None, "trl:qwen2_5", "trl:llama3_1", "chatml"])
def test_a_conversation_is_rendered_as_transformers_does(model, tokenizer, template, tools, prompt):
    if template == "chatml" and tools:
        pytest.skip("ChatML has no place for tools")
    messages = conversation(ARGUMENTS) if template != "chatml" else conversation(ARGUMENTS)[:2]
    source = None if template is None else find_model_template(template).source
    expected = tokenizer.apply_chat_template(
        messages, tools=tools, chat_template=source, tokenize=False, add_generation_prompt=prompt
    )
    for given in (model, str(model), tokenizer):
        made = fmtkit.render(
            messages, template, tokenizer=given, tools=tools, add_generation_prompt=prompt
        )
        assert made == expected


def test_arguments_are_a_dict_or_json_text():
    whole = fmtkit.render(conversation(ARGUMENTS), "trl:qwen3", tools=[TOOL])
    assert fmtkit.render(conversation(json.dumps(ARGUMENTS)), "trl:qwen3", tools=[TOOL]) == whole
    assert '"city": "Köln"' in whole
    with pytest.raises(TemplateError, match=r"messages\[2\].tool_calls: arguments are not JSON"):
        fmtkit.render(conversation("{"), "trl:qwen3")


def test_what_would_be_left_out_is_an_error():
    with pytest.raises(TemplateError, match=r"messages\[0\].thoughts: not a key of a message"):
        fmtkit.render([{"role": "user", "content": "q", "thoughts": "t"}], "chatml")
    with pytest.raises(OptionError, match="template or a tokenizer"):
        fmtkit.render([{"role": "user", "content": "q"}])
    with pytest.raises(OptionError, match="int is not a folder"):
        fmtkit.render([{"role": "user", "content": "q"}], tokenizer=5)
    table = fmtkit.table([{"question": "q", "chosen": "a", "rejected": "b"}], "intel")
    with pytest.raises(OptionError, match="for a list of messages"):
        fmtkit.render(table, "chatml", add_generation_prompt=True)


def test_a_reply_begins_where_it_is_asked_for():
    messages = [{"role": "user", "content": "q"}]
    without, asked = (
        fmtkit.render(messages, "chatml", add_generation_prompt=flag) for flag in (False, True)
    )
    assert asked.startswith(without)
    assert asked.endswith("<|im_end|>\n<|im_start|>assistant\n")
