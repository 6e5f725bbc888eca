import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nasty_conversations import CONVERSATIONS, column, conversations, messages, prompts, say

from fmtkit.core.errors import TemplateError
from fmtkit.core.tables import MESSAGE
from fmtkit.rendering import chat, template_sources
from fmtkit.rendering.chat import ChatTemplate
from fmtkit.rendering.content_parts import Forms, forms_of, in_form
from fmtkit.rendering.row_templates import RowTemplate
from fmtkit.rendering.tracing import Interpreter, Refusal, Request

TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
ASKED = say(("user", "Name a fruit."))
PEAR, STONE = say(("assistant", "A pear.")), say(("assistant", "A stone."))


def made(source: str, **changes: Any) -> ChatTemplate:
    return ChatTemplate("mine", source, trusted=True, **changes)


def pair(template: ChatTemplate, prompt: Any, chosen: Any, rejected: Any, **more: Any):
    replies = {"chosen": column([chosen]), "rejected": column([rejected])}
    done = chat.render_reply(template, column([prompt]), replies, **more)
    texts = (done.prompt[0].as_py(), *(reply[0].as_py() for reply in done.replies.values()))
    return done, texts


def test_a_reply_is_what_the_template_adds_to_the_prompt():
    _, texts = pair(template_sources.find_family("zephyr"), ASKED, PEAR, STONE)
    prompt = "<|system|>\n</s>\n<|user|>\nName a fruit.</s>\n<|assistant|>\n"
    assert texts == (prompt, "A pear.</s>", "A stone.</s>")


@pytest.mark.parametrize("answer", ["a", "user", "message", "assistant\n", "<|im_start|>", " "])
def test_an_answer_that_occurs_in_the_prompt_is_cut_in_its_place(answer):
    _, texts = pair(template_sources.find_family("chatml"), ASKED, say(("assistant", answer)), PEAR)
    assert texts[1:] == (answer + "<|im_end|>", "A pear.<|im_end|>")


def test_a_generation_prompt_that_no_reply_repeats_is_cut_at_the_header():
    source = (
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>\n{% endfor %}"
        "{% if add_generation_prompt %}<assistant><think></think>{% endif %}"
    )
    for answer in ("A pear.", "<think", "<th", "<"):
        done, texts = pair(made(source), ASKED, say(("assistant", answer)), STONE)
        assert texts[0] == "<user>Name a fruit.</user>\n<assistant>"
        assert texts[1] == answer + "</assistant>\n"
        assert done.warnings == {"generation_prompt_not_a_prefix": [0]}


def test_a_prompt_that_changes_with_its_reply_is_refused_with_the_turn():
    tekken = template_sources.find_family("mistral_v3_tekken")
    done, texts = pair(tekken, [*say(("system", "Be brief.")), *ASKED], PEAR, STONE)
    assert texts == (None, None, None)
    assert [f.code for f in done.failures] == ["template_not_prefix_preserving"]
    assert "turn 1 " in done.failures[0].message


def test_a_training_variant_is_taken_where_the_prompt_would_change():
    body = "{% for m in messages %}[{{ m.content }}]{% endfor %}"
    source = "{{ messages | length }}" + body + "{% if add_generation_prompt %}>{% endif %}"
    training = body + "{% if add_generation_prompt %}[{% endif %}"
    assert pair(made(source), ASKED, PEAR, STONE)[1] == (None, None, None)
    done, texts = pair(made(source, training=training), ASKED, PEAR, STONE)
    assert texts == ("[Name a fruit.][", "A pear.]", "A stone.]")
    assert not done.failures


def test_a_template_that_raises_fails_the_row_in_its_own_words():
    gemma = template_sources.find_family("gemma")
    done, texts = pair(gemma, [*say(("system", "Be brief.")), *ASKED], PEAR, STONE)
    assert texts == (None, None, None)
    assert [(f.code, f.message) for f in done.failures] == [
        ("template_error", "System role not supported")
    ]


def test_a_message_that_the_template_leaves_out_is_a_warning():
    source = "{% for m in messages if m.role != 'system' %}[{{ m.content }}]{% endfor %}"
    rows = [[*say(("system", "S")), *ASKED], [*say(("system", " ")), *ASKED], ASKED]
    done = chat.render(made(source), column(rows))
    assert done.warnings == {"content_dropped": [0]}
    assert not done.failures


@pytest.mark.parametrize("content", ["a", "A long answer."])
def test_a_reply_that_the_template_leaves_out_fails_the_row(content):
    source = "{% for m in messages if m.role == 'user' %}a[{{ m.content }}]{% endfor %}"
    done, texts = pair(made(source), ASKED, say(("assistant", content)), PEAR)
    assert texts == (None, None, None)
    assert done.failures[0].code == "template_error"
    assert "leaves out the reply" in done.failures[0].message


@pytest.mark.parametrize("content", ["", "."])
def test_what_only_a_view_that_is_compared_holds_is_left_out(content):
    # As gpt-oss: the reasoning of the last turn alone, and of none before a generation prompt.
    source = (
        "{% for m in messages %}<{{ m.role }}>{% if loop.last and not add_generation_prompt and "
        "m.reasoning_content %}({{ m.reasoning_content }}){% endif %}{{ m.content }}{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    thought = {"role": "assistant", "content": content, "reasoning_content": "deep"}
    done, texts = pair(made(source), [*say(("user", "")), thought], PEAR, STONE)
    assert done.difference is None
    if content:
        assert texts[0] == "<user><assistant>.<assistant>"
        assert done.warnings == {"reasoning_dropped": [0]}
    else:
        assert "leaves out every text" in done.failures[0].message


def test_reasoning_that_only_an_earlier_turn_loses_is_a_warning():
    pytest.importorskip("trl")
    qwen = template_sources.find_model_template("qwen3")
    thought = "<think>\nhm\n</think>\n\nyes"
    asked = say(("user", "q"), ("assistant", thought), ("user", "r"))
    done, texts = pair(qwen, asked, say(("assistant", thought)), PEAR)
    assert done.warnings == {"reasoning_dropped": [0]}
    assert texts[1] == thought + "<|im_end|>\n"


def test_null_conversations_are_null_texts_and_empty_ones_fail():
    done = chat.render(template_sources.find_family("identity"), column([None, [], ASKED]))
    assert done.text.to_pylist() == [None, None, "Name a fruit."]
    assert [(f.row, f.code) for f in done.failures] == [(1, "template_error")]


def test_null_keys_are_gone_before_a_template_sees_a_message():
    source = "{% for m in messages %}{{ m.keys() | list | length }}{{ m.content }}{% endfor %}"
    rows = [[{"role": "user", "content": "a", "name": None}], [{"role": "user", "name": "n"}]]
    assert chat.render(made(source), column(rows)).text.to_pylist() == ["2a", "2"]


def test_fmtkits_own_mark_is_no_part_of_a_message():
    rows = [[{"role": "user", "content": "a", "train": False}]]
    done = chat.render(made("{{ messages | tojson }}"), column(rows))
    assert done.text.to_pylist() == ['[{"role": "user", "content": "a"}]']


CALLS = [{"type": "function", "function": {"name": "f", "arguments": {"zip": "02139"}}}]
CALLING = [
    *say(("user", "q")),
    {"role": "assistant", "tool_calls": json.dumps(CALLS)},
    {"role": "tool", "content": "21", "name": "f", "tool_call_id": "1"},
]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {}}}]


def test_tool_calls_and_tools_reach_the_template_as_objects():
    pytest.importorskip("trl")
    template = template_sources.find_model_template("qwen3")
    conversations = column([CALLING, ASKED])
    tools = pa.array([json.dumps(TOOLS), None])
    done = chat.render(template, conversations, tools=tools)
    calling = [CALLING[0], {**CALLING[1], "tool_calls": CALLS}, CALLING[2]]
    alone = Interpreter(template.source, {})
    expected = alone.render([Request(calling, TOOLS, False), Request(ASKED, None, False)])
    assert done.text.to_pylist() == expected
    assert '"zip": "02139"' in expected[0]
    assert (done.traced_rows, done.plain_rows) == (2, 0)


OPENED = """{% for m in messages %}{{ m.content }}{{ m.reasoning_content }}{% endfor %}
{{ messages | tojson }}{{ tools | tojson }}{# tool_calls #}"""
"""Writes all that a template gets."""


@settings(max_examples=50, deadline=None)
@given(conversations())
def test_a_template_gets_the_same_by_columns_row_by_row_and_alone(talk):
    traced, untraced = (ChatTemplate("t", OPENED, trusted=True) for _ in range(2))
    untraced.compiled.difference = "this test"
    rows, tools = column([talk, [*talk, *CALLING]]), [None, json.dumps(TOOLS)]
    by_columns, by_rows = (
        chat.render(one, rows, tools=pa.array(tools)) for one in (traced, untraced)
    )
    assert (by_columns.plain_rows, by_rows.traced_rows) == (0, 0)
    assert by_columns.text.equals(by_rows.text)
    alone = (RowTemplate(traced).render(*row) for row in zip(rows.to_pylist(), tools, strict=True))
    expected = [
        text if conversation else None
        for text, conversation in zip(alone, rows.to_pylist(), strict=True)
    ]
    assert by_rows.text.to_pylist() == expected


def test_tool_calls_that_a_template_would_forget_fail_the_row():
    done = chat.render(template_sources.find_family("identity"), column([CALLING]))
    assert [f.code for f in done.failures] == ["unsupported"]


def test_tools_that_a_template_forgets_are_a_warning():
    template = template_sources.find_family("chatml")
    done = chat.render(template, column([ASKED, ASKED]), tools=pa.array([None, json.dumps(TOOLS)]))
    assert done.warnings == {"content_dropped": [1]}


@pytest.mark.parametrize("string", [pa.string(), pa.large_string(), pa.string_view()])
@pytest.mark.parametrize("listed", [pa.list_, pa.large_list])
def test_any_string_and_list_layout_renders_alike(string, listed):
    rows = [ASKED, None, [*ASKED, *PEAR]]
    message = pa.struct([("role", string), ("content", string)])
    found = chat.render(template_sources.find_family("chatml"), pa.array(rows, listed(message)))
    expected = chat.render(template_sources.find_family("chatml"), column(rows))
    assert found.text.equals(expected.text)


def test_slices_and_chunks_render_as_the_whole_does():
    rows = [say(("user", f"é{n}"), ("assistant", "x" * n)) for n in range(40)]
    template = template_sources.find_family("llama3")
    whole = chat.render(template, column(rows)).text.to_pylist()
    narrow = pa.array(rows, pa.list_(MESSAGE))
    assert chat.render(template, narrow.slice(7, 20)).text.to_pylist() == whole[7:27]
    chunks = pa.chunked_array([narrow.slice(0, 11), narrow.slice(11)])
    assert chat.render(template, chunks).text.to_pylist() == whole


def test_an_empty_column_renders_to_an_empty_column():
    done = chat.render(template_sources.find_family("chatml"), pa.array([], CONVERSATIONS))
    assert len(done.text) == 0


def test_a_syntax_error_names_the_template_and_the_line():
    with pytest.raises(TemplateError, match="'mine', line 2"):
        chat.render(made("a\n{% if %}"), column([ASKED]))


def test_threads_share_a_template_and_get_the_same_texts():
    template = template_sources.find_family("zephyr")
    rows = [
        say(
            *[
                ("user", f"q{n}{k}") if k % 2 == 0 else ("assistant", " a " * n)
                for k in range(n % 7 + 1)
            ]
        )
        for n in range(200)
    ]
    batches = [column(rows[n : n + 20]) for n in range(0, 200, 20)] * 4
    alone = [chat.render(template_sources.find_family("zephyr"), b).text for b in batches]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda batch: chat.render(template, batch).text, batches))
    assert all(one.equals(other) for one, other in zip(alone, together, strict=True))


def test_rendering_imports_neither_pandas_nor_transformers():
    pytest.importorskip("pandas")
    program = """
import sys, io, json, pyarrow as pa, pyarrow.json
from fmtkit.rendering import chat, template_sources
from fmtkit.core.tables import MESSAGE
turns = [{"role": "user", "content": " <think>hi"}, {"role": "assistant", "content": "x"}]
row = {"messages": turns}
lines = io.BytesIO((json.dumps(row) + chr(10)).encode() * 9)
schema = pa.schema([("messages", pa.list_(MESSAGE))])
options = pyarrow.json.ParseOptions(explicit_schema=schema)
table = pyarrow.json.read_json(lines, parse_options=options)
for name in ("zephyr", "gemma", "identity"):
    chat.render(template_sources.find_family(name), table.column("messages"))
    chat.render_reply(template_sources.find_family(name), table.column("messages"),
                      {"chosen": table.column("messages")})
heavy = {"pandas", "transformers", "torch", "trl", "datasets"} & set(sys.modules)
sys.exit(" ".join(heavy) if heavy else 0)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def every_template() -> list[str]:
    trl = [template_sources.TRL_PREFIX + name for name in template_sources.trl_names()]
    return [*template_sources.SHIPPED, *trl]


@cache
def interpreter(source: str) -> Interpreter:
    return Interpreter(source, TOKENS)


@cache
def template_named(name: str) -> ChatTemplate:
    return template_sources.find_family(name).with_tokens(TOKENS)


@cache
def forms(source: str) -> Forms:
    return forms_of(interpreter(source))


def rendered(source: str, conversation: Any, prompt: bool) -> str | Refusal:
    given = [in_form(message, forms(source)) for message in conversation]
    return interpreter(source).render([Request(given, None, prompt)])[0]


def check_cut(name: str, rows: list[Any]) -> None:
    """Prompt and reply are the whole, as one of the template's two forms writes it."""
    template = template_named(name)
    replies = {"one": column([r[1] for r in rows]), "two": column([r[2] for r in rows])}
    done = chat.render_reply(template, column([r[0] for r in rows]), replies)
    assert done.difference is None
    failed = {failure.row: failure for failure in done.failures}
    sources = [template.source, *([template.training] if template.training else [])]
    for row, (prompt, *answers) in enumerate(rows):
        if row in failed:
            assert done.prompt[row].as_py() is None
            continue
        texts = [done.replies[key][row].as_py() for key in replies]
        begin = done.prompt[row].as_py()
        wholes = [tuple(rendered(s, prompt + a, False) for a in answers) for s in sources]
        assert tuple(begin + text for text in texts) in wholes
        if row not in done.warnings.get("generation_prompt_not_a_prefix", []):
            assert begin in [rendered(s, prompt, True) for s in sources]


answers = messages("assistant").map(lambda message: [message])


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(every_template()),
    st.lists(st.tuples(prompts(), answers, answers), min_size=1, max_size=4),
)
def test_prompt_and_reply_together_are_the_whole(name, rows):
    check_cut(name, rows)


@pytest.mark.parametrize("said", ["</think>", "<think></think>", "\n</think>\n"])
@pytest.mark.parametrize("kept", ["Yes.", "a"])
def test_a_reply_that_a_template_loses_is_lost_though_it_writes_the_same_words(said, kept):
    user = [{"role": "user", "content": "Is it?"}]
    rows = [(user, [{"role": "assistant", "content": c}]) for c in (said, kept)]
    template = template_named("trl:glm4moe_training")
    done = chat.render_reply(
        template, column([r[0] for r in rows]), {"chosen": column([r[1] for r in rows])}
    )
    assert done.difference is None
    assert [(failure.row, failure.code) for failure in done.failures] == [(0, "template_error")]
    assert done.replies["chosen"][1].as_py().endswith(f"{kept}<|user|>")


@pytest.mark.slow
@pytest.mark.parametrize("name", every_template())
@settings(max_examples=20, deadline=None)
@given(rows=st.lists(st.tuples(prompts(), answers, answers), min_size=1, max_size=6))
def test_prompt_and_reply_together_are_the_whole_in_every_template(name, rows):
    check_cut(name, rows)


def test_a_name_that_looks_like_a_symbol_is_taken_for_none():
    """Rows that cannot be traced are probed with symbols; a name in the data may hold one."""
    said = [{"role": "assistant", "content": "yes"}]
    named = {"role": "tool", "content": "", "name": "\U000f000c"}
    prompt = [{"role": "user", "content": "a"}, said[0], named]
    check_cut("trl:muse_glimmer_training", [(prompt, said, [{**said[0], "content": "no"}])])
