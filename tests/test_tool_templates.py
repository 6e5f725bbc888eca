"""Tool calls and tools through templates: columns, rows and transformers write the same text."""

import json
import re
from dataclasses import replace
from datetime import datetime
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from nasty_conversations import column, conversations, messages, texts
from versions import as_pinned

from fmtkit.rendering import chat, template_sources
from fmtkit.rendering.chat import ChatTemplate
from fmtkit.rendering.content_parts import in_form
from fmtkit.rendering.conversation_columns import Batch, conversation_column, groups
from fmtkit.rendering.sandbox import Sandbox

NOW = datetime(2024, 7, 26)
SHORTENED = "generation_prompt_not_a_prefix"
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}

NUMBERS = [
    "1.0",
    "1e5",
    "-0",
    "-0.0",
    "2139000000000000000000",
    "0.1",
    "1E-7",
    "7",
    "1.10",
    "1e400",
]
STRINGS = [
    *('""', '"é😀"', '"\\u00e9\\ud83d\\ude00"', '"</script>&<b>"', '"\\u0000\\u001f\\n\\t\\"\\\\"'),
    *(
        '"\\u2028\\/"',
        '"{\\"a\\": 1}"',
        '"\\udb80\\udc00"',
        '"\U000f0000"',
        '"</think>"',
        '"a, b: c"',
    ),
]
KEYS = [
    '"query"',
    '"page"',
    '"é"',
    '"a.b"',
    '"items"',
    '"Query"',
    '"\\n"',
    '"type"',
    '"<x>"',
    '"_p"',
]


def array(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(values, max_size=3).map(lambda found: f"[{','.join(found)}]")


def record(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pairs = st.lists(st.tuples(st.sampled_from(KEYS), values), max_size=3, unique_by=lambda p: p[0])
    return pairs.map(lambda found: "{" + ",".join(f"{key}:{value}" for key, value in found) + "}")


scalars = st.sampled_from([*NUMBERS, *STRINGS, "null", "true", "false"])
values = st.recursive(scalars, lambda inner: array(inner) | record(inner), max_leaves=6)
objects = record(values)
names = st.sampled_from(['"search"', '"noop"', '"é b"', '""', '"functions.x"'])
arguments = st.one_of(objects, objects, objects, st.sampled_from(STRINGS), values)


@st.composite
def calls(draw: st.DrawFn) -> str:
    """Make the tool calls of a message, as JSON text with numbers and escapes of every form."""
    made = []
    for _ in range(draw(st.sampled_from([1, 1, 1, 2, 3, 0]))):
        function = f'{{"name":{draw(names)},"arguments":{draw(arguments)}}}'
        call = draw(
            st.sampled_from(
                [
                    '{"type":"function","function":%s}',
                    '{"id":"call12345","type":"function","function":%s}',
                    '{"function":%s,"type":"custom","id":null,"index":0}',
                    "%s",
                ]
            )
        )
        made.append(call % function)
    return f"[{','.join(made)}]"


@st.composite
def tool_lists(draw: st.DrawFn) -> str | None:
    """Make the tools of a row: none, an empty list, one or several."""
    made = []
    for _ in range(draw(st.integers(0, 3))):
        properties = draw(record(st.sampled_from(['{"type":"string"}', '{"type":"number"}', "{}"])))
        more = draw(st.sampled_from(["", ',"x":1.0', ',"required":["query"]']))
        described = draw(st.sampled_from(STRINGS))
        made.append(
            f'{{"type":"function","function":{{"name":{draw(names)},"description":{described},'
            f'"parameters":{{"type":"object","properties":{properties}{more}}}}}}}'
        )
    return draw(st.sampled_from([None, f"[{','.join(made)}]", f"[{','.join(made)}]"]))


@st.composite
def with_calls(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Make a conversation that calls tools, now and then in disorder."""
    turns = [draw(messages("system"))] * draw(st.booleans()) + [draw(messages("user"))]
    for _ in range(draw(st.integers(1, 2))):
        caller = draw(messages("assistant"))
        if draw(st.booleans()):
            caller["content"] = draw(st.sampled_from(["", None]))
        turns.append({**caller, "tool_calls": draw(calls())})
        for _ in range(draw(st.integers(0, 2))):
            turns.append({"role": "tool", "content": draw(texts)})
            turns[-1] |= draw(
                st.sampled_from([{}, {"tool_call_id": "call12345", "name": "search"}])
            )
    return turns + [draw(messages("assistant"))] * draw(st.booleans())


def is_said(conversation: list[dict[str, Any]]) -> bool:
    """Return whether no content is a tag alone: of these a template keeps a mere place, lost or not."""
    said = [(message.get("content") or "").strip() for message in conversation]
    return all(re.sub(r"<[^>]*>", "", content).strip() for content in said if content)


talks = (with_calls() | conversations()).filter(is_said)
rows = st.lists(st.tuples(talks, tool_lists()), min_size=1, max_size=4)


@cache
def template_of(name: str) -> ChatTemplate:
    return replace(template_sources.find_family(name).with_tokens(TOKENS), now=NOW)


def by_rows(template: ChatTemplate) -> ChatTemplate:
    """Return a template that is not traced."""
    made = replace(template)
    made.compiled.difference = "so asked"
    return made


def opened(conversation: Any) -> Any:
    """Make values of the tool calls of messages, and drop what is null, as a template gets them."""
    return [
        {k: json.loads(v) if k == "tool_calls" else v for k, v in m.items() if v is not None}
        for m in conversation
    ]


def by_transformers(source: str, conversation: Any, tools: Any, prompt: bool) -> str | None:
    peer = pytest.importorskip("transformers.utils.chat_template_utils")
    try:
        made = peer.render_jinja_template(
            [conversation],
            tools=tools,
            chat_template=source,
            add_generation_prompt=prompt,
            **TOKENS,
        )[0][0]
        made.encode()
    except Exception:  # noqa: BLE001 - whatever transformers raises, we must refuse
        return None
    return made


def check(template: ChatTemplate, given: Any, prompt: bool) -> chat.Rendering:
    """Compare the texts and verdicts of columns and of rows, and the texts with transformers'."""
    said = column([conversation for conversation, _ in given])
    tools = pa.array([tools for _, tools in given], pa.string())
    done = chat.render(template, said, tools=tools, add_generation_prompt=prompt)
    assert done.difference is None
    alone = chat.render(by_rows(template), said, tools=tools, add_generation_prompt=prompt)
    assert done.text.to_pylist() == alone.text.to_pylist()
    assert done.failures == alone.failures
    assert done.warnings.get(SHORTENED) == alone.warnings.get(SHORTENED)
    clocked = "strftime_now" in template.source
    for found, (conversation, known) in zip(done.text.to_pylist(), given, strict=True):
        if found is not None and not clocked:
            values = [in_form(message, template.compiled.forms) for message in opened(conversation)]
            tools = json.loads(known) if known else None
            assert found == by_transformers(template.source, values, tools, prompt)
    return done


def with_tools() -> list[str]:
    names = [template_sources.TRL_PREFIX + name for name in template_sources.trl_names()]
    return [name for name in names if "tool_calls" in template_of(name).source]


@as_pinned
@settings(max_examples=25, deadline=None)
@given(st.sampled_from(with_tools()), rows, st.booleans())
def test_columns_rows_and_transformers_agree_on_tool_calls(name, given, prompt):
    check(template_of(name), given, prompt)


@as_pinned
@pytest.mark.slow
@pytest.mark.parametrize("name", with_tools())
@settings(max_examples=40, deadline=None)
@given(given=rows, prompt=st.booleans())
def test_every_template_agrees_with_transformers_on_tool_calls(name, given, prompt):
    check(template_of(name), given, prompt)


def check_replies(template: ChatTemplate, given: Any) -> None:
    prompts = column([prompt for prompt, _, _, _ in given])
    replies = {
        "chosen": column([chosen for _, chosen, _, _ in given]),
        "rejected": column([rejected for _, _, rejected, _ in given]),
    }
    tools = pa.array([tools for _, _, _, tools in given], pa.string())
    done, alone = (
        chat.render_reply(made, prompts, replies, tools=tools)
        for made in (template, by_rows(template))
    )
    assert done.difference is None
    assert done.prompt.to_pylist() == alone.prompt.to_pylist()
    for name in replies:
        assert done.replies[name].to_pylist() == alone.replies[name].to_pylist()
    assert done.failures == alone.failures
    assert done.warnings.get(SHORTENED) == alone.warnings.get(SHORTENED)


@st.composite
def replies(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Make a reply: an answer, or a call with its result and an answer."""
    answer = draw(messages("assistant"))
    if draw(st.booleans()):
        return [answer]
    called = {"role": "assistant", "content": "", "tool_calls": draw(calls())}
    return [called, {"role": "tool", "content": draw(texts)}, answer][: draw(st.integers(1, 3))]


spoken = replies().filter(is_said)
pairs = st.tuples(talks, spoken, spoken, tool_lists())


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(with_tools()), st.lists(pairs, min_size=1, max_size=3))
def test_replies_with_tool_calls_are_cut_alike_by_columns_and_by_rows(name, given):
    check_replies(template_of(name), given)


SEARCH = '{"type":"function","function":{"name":"search","description":"é","parameters":{"a":1.0}}}'
OTHER = SEARCH.replace("search", "other")


def talk(number: int, arguments: str, more: str = "") -> list[dict[str, Any]]:
    call = f'{{"type":"function","function":{{"name":"search","arguments":{arguments}}}}}'
    return [
        {"role": "user", "content": f"q{number}"},
        {"role": "assistant", "content": more, "tool_calls": f"[{call}]"},
        {"role": "tool", "content": f"r{number}"},
        {"role": "assistant", "content": "a"},
    ]


BY_COLUMNS = [name for name in with_tools() if "deepseekv3" not in name]
"""DeepSeek's adds the arguments to a text: it takes them as a text alone, see below."""


@pytest.mark.parametrize("name", BY_COLUMNS)
def test_rows_with_tools_are_rendered_by_columns(name):
    given = [
        (
            talk(n, f'{{"query":"q\\n{n}","page":{n}.0}}'),
            (None, f"[{SEARCH}]", f"[{SEARCH},{OTHER}]")[n % 3],
        )
        for n in range(30)
    ]
    done = check(template_of(name), given, False)
    assert (done.traced_rows, done.plain_rows) == (30, 0)


@pytest.mark.parametrize("name", ["trl:deepseekv3", "trl:qwen3", "trl:llama3_1"])
def test_arguments_that_are_a_text_are_rendered_by_columns(name):
    given = [(talk(n, json.dumps(json.dumps({"page": n}))), None) for n in range(10)]
    done = check(template_of(name), given, False)
    assert done.plain_rows == 0


def test_every_list_of_tools_of_its_own_is_rendered_by_columns():
    given = [(talk(n, "{}"), f"[{SEARCH.replace('search', f's{n}')}]") for n in range(30)]
    done = check(template_of("trl:qwen3"), given, True)
    assert done.plain_rows == 0
    trees = template_of("trl:qwen3").compiled.trees.values()
    assert not any("s17" in str(signature) for known in trees for signature in known)


def test_lists_of_as_many_tools_are_of_one_group():
    given = [f"[{SEARCH.replace('search', f's{n}')}]" for n in range(30)]
    batch = Batch(
        [conversation_column(column([talk(0, "{}")] * len(given)))], pa.array(given, pa.string())
    )
    assert len(groups(batch.parts, np.arange(len(given)))) == 1
    assert len(groups(batch.parts_with_known_tools, np.arange(len(given)))) == len(given)


def test_numbers_that_equal_true_or_false_are_told_from_others_row_by_row():
    source = MADE.replace("EXPRESSION", "'yes' if c.function.arguments.page == true else 'no'")
    # The first row teaches the template, and is rendered both ways.
    given = [(talk(n, f'{{"page":{page}}}'), None) for n, page in enumerate("2103")]
    done = check(mine(source), given, False)
    assert ["yes" in text for text in done.text.to_pylist()] == [False, True, False, False]


@pytest.mark.parametrize("number", NUMBERS)
def test_a_number_is_printed_as_its_value_is(number):
    done = check(
        template_of("trl:qwen3"), [(talk(0, f'{{"a":[{number}]}}'), f'[{{"x":{number}}}]')], False
    )
    assert json.dumps(json.loads(number)) in done.text[0].as_py()
    assert done.plain_rows == 0


def test_half_a_surrogate_pair_is_an_error_of_its_row_alone():
    given = [
        (talk(0, '{"a":"\\ud800"}'), None),
        (talk(1, "{}"), '["\\udfff"]'),
        (talk(2, "{}"), None),
    ]
    done = check(template_of("trl:qwen3"), given, False)
    assert [failure.row for failure in done.failures] == [0, 1]


MADE = "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}[{{ EXPRESSION }}]{% endfor %}{% endfor %}"
EXPRESSIONS = [
    "c | tojson",
    "c.function | tojson(indent=2)",
    "c.function.arguments | tojson(separators=(',', ':'))",
    "c.function.arguments | tojson(sort_keys=true, ensure_ascii=true)",
    "{'a': c.function.name, 'b': [c.function.arguments, 1.50, none]} | tojson",
    "c.function.arguments",
    "c.function.arguments ~ '!'",
    "c.function.arguments | string | upper",
    "c.function.arguments is string",
    "c.function.arguments is mapping and c.function.arguments is iterable",
    "c.function.arguments is number",
    "c.function.arguments is none or c.function.arguments is not defined",
    "'none' if not c.function.arguments else 'some'",
    "c.function.arguments == {}",
    "c.function.arguments | length",
    "c.function.arguments | items | list",
    "c.function.arguments | dictsort | list | length",
    "c.function.arguments.query",
    "c.function.arguments['query'] | default('no')",
    "c.function.arguments.get('page', 5)",
    "c.function.arguments.keys() | list | join(',')",
    "c.function.arguments.items is callable",
    "c.function.arguments['items'] is defined",
    "c.function.arguments._p",
    "c.function.arguments.update({})",
    "'query' in c.function.arguments",
    "c.function.arguments | tojson | safe",
    "(c.function.arguments | tojson | safe) + '<'",
    "c.function.arguments | tojson | length",
    "c.function.arguments | first",
    "c.function.arguments.query.a",
    "c.function.arguments.query[0]",
    "c.function.arguments.query is string and c.function.arguments.query | trim",
    "c.function.arguments + {}",
    "tools | tojson(indent=1)",
    "tools | length",
    "tools[0].function.name",
    "tools | map(attribute='function') | map(attribute='name') | join(' ')",
    "tools is none",
    "c.id is defined",
    "c.type == 'function'",
    "c.index + 1",
    "messages | tojson",
]
LOOPS = [
    "{% for k, v in c.function.arguments.items() %}{{ k }}={{ v if v is string else v | tojson }};{% endfor %}",
    "{% for k in c.function.arguments %}{{ k }}={{ c.function.arguments[k] }};{% endfor %}",
    "{% for k, v in c.function.arguments | dictsort %}{{ k }}={{ v }}{{ loop.length }};{% endfor %}",
    "{% for t in tools %}{% for k, v in t.function.parameters.properties.items() %}{{ k }}{{ v.type }}{% endfor %}{% endfor %}",
    "{% set n = namespace(a=c.function.arguments) %}{{ n.a | tojson }}{% macro f(x) %}{{ x.query }}{% endmacro %}{{ f(n.a) }}",
]


@cache
def mine(source: str) -> ChatTemplate:
    return ChatTemplate("mine", source, trusted=True)


@pytest.mark.parametrize("expression", [*EXPRESSIONS, *LOOPS])
@settings(max_examples=12, deadline=None)
@given(rows)
@example([(talk(0, '{"query":"é","page":1.0}'), f"[{SEARCH}]")] * 9)
def test_whatever_a_template_asks_of_a_tool_call_comes_out_as_row_by_row(expression, given):
    written = expression if expression.startswith("{%") else "{{ " + expression + " }}"
    said = column([conversation for conversation, _ in given])
    tools = pa.array([tools for _, tools in given], pa.string())
    template = mine(MADE.replace("{{ EXPRESSION }}", written))
    done, alone = (chat.render(made, said, tools=tools) for made in (template, by_rows(template)))
    assert done.difference is None
    assert done.text.to_pylist() == alone.text.to_pylist()
    assert done.failures == alone.failures
    assert done.warnings.get(SHORTENED) == alone.warnings.get(SHORTENED)


def test_a_foreign_template_traces_tool_calls_in_its_worker():
    template = replace(template_of("trl:qwen3"), trusted=False)
    assert isinstance(template.compiled.engine, Sandbox)
    given = [(talk(n, f'{{"a":{n}.0}}'), f"[{SEARCH}]") for n in range(20)]
    done = check(template, given, False)
    assert done.plain_rows == 0
