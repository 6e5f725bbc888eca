from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nasty_conversations import column, say, texts

from fmtkit.rendering import chat, template_sources
from fmtkit.rendering.chat import ChatTemplate
from fmtkit.rendering.tracing import Interpreter, Leaf, Refusal, Request, Shape, View
from fmtkit.rendering.unknowns import Slot, expand


def made(source: str, **changes: Any) -> ChatTemplate:
    return ChatTemplate("mine", source, trusted=True, **changes)


@cache
def interpreter(source: str) -> Interpreter:
    return Interpreter(source, {})


@cache
def template(source: str) -> ChatTemplate:
    return made(source)


def trace(source: str, *contents: str) -> Leaf | None:
    """Trace a conversation of user turns."""
    slots = {Slot(0, n, "content"): content for n, content in enumerate(contents)}
    shapes = tuple(Shape("user", ("content",)) for _ in contents)
    return interpreter(source).trace((shapes,), [View((0,))], slots)


def alone(source: str, *contents: str) -> str | Refusal:
    messages = [{"role": "user", "content": content} for content in contents]
    return interpreter(source).render([Request(messages, None, False)])[0]


EXPRESSIONS = [
    "c | trim",
    "c.strip('ax\\n')",
    "c.lstrip()",
    "c | upper",
    "c | capitalize",
    "c | replace('a', 'b')",
    "c | replace('', '-')",
    "c[1:]",
    "c[:-2]",
    "c[0]",
    "c[-1]",
    "c[::-1]",
    "c | reverse",
    "c ~ '|' ~ d",
    "'<' + c + '>' + d",
    "c + c",
    "[c, d] | join(', ')",
    "', '.join([c, d])",
    "c if c else 'none'",
    "c or d",
    "not c",
    "c and d",
    "c == d",
    "c != 'a'",
    "c == c",
    "c in d",
    "'a' in c",
    "'a' not in c",
    "c in ['a', d]",
    "c is string",
    "c is mapping",
    "c is iterable",
    "c is defined and c is not none",
    "c is in ['a']",
    "c.startswith('<')",
    "c.endswith(('a', '\\n'))",
    "c.startswith(d)",
    "c.isspace()",
    "c.isdigit()",
    "(c | length) > 0",
    "(c | length) >= 3",
    "(c | length) == 1",
    "2 > (c | length)",
    "c.split('a')[0]",
    "c.split('a')[-1]",
    "c.split('a')[1]",
    "c.rsplit('a', 1)[-1]",
    "c.split('a') | length",
    "c.split('a') | join('b')",
    "(c.split('</think>') | last).lstrip('\\n')",
    "c.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n')",
    "c | tojson",
    "c | default('x', true)",
    "c.removeprefix('a')",
    "(c | trim) == ''",
    "c.text is defined",
    "c['text'] is defined",
    "messages | selectattr('content', 'equalto', 'a') | list | length",
    "messages | map(attribute='content') | join('/')",
    "(messages | last).content",
    "messages[::-1][0]['content']",
    "dict(x=c).x",
    "(c ~ d).startswith('a')",
    "(c ~ 'k') | length > 2",
    # What cannot be traced must come out right all the same.
    "c | length",
    "c | list",
    "c | first",
    "c | title",
    "'%s' % c",
    "'{}'.format(c)",
    "c < d",
    "c * 2",
    "c.split()",
    "c.find('a')",
    "c | wordcount",
    "{'a': 1}[c]",
    "{'a': 1}.get(c)",
    "c in 'abc'",
    "'abc'.replace('b', c)",
    "c.format(1)",
    "c | e",
    "[c] | unique | list | join",
    "namespace(a=c).a",
    "c | int",
    "[] + c.split('a')",
    "c.foo.bar",
    "c + 1",
    "range(c | length) | list",
    "messages | tojson",
]
PROLOGUE = "{% set c = messages[0].content %}{% set d = messages[1].content %}"
EPILOGUE = "{{ c }}{{ d }}"
"""A rendering without any content would be refused."""


@pytest.mark.parametrize("expression", EXPRESSIONS)
@settings(max_examples=8, deadline=None)
@given(rows=st.lists(st.tuples(texts, texts), min_size=4, max_size=12))
def test_whatever_a_template_does_comes_out_as_row_by_row(expression, rows):
    source = PROLOGUE + "[{{ " + expression + " }}]" + EPILOGUE
    done = chat.render(template(source), column([say(("user", c), ("user", d)) for c, d in rows]))
    assert done.difference is None
    for row, (c, d) in enumerate(rows):
        expected = alone(source, c, d)
        found = done.text[row].as_py()
        assert found == (None if isinstance(expected, Refusal) else expected)


STATEMENTS = [
    "{% for m in messages if m.content %}{{ m.content }}{{ ', ' if not loop.last }}{% endfor %}",
    "{% set n = namespace() %}{% for m in messages %}{% set n.x = m.content %}{% endfor %}{{ n.x }}",
    "{% macro f(x) %}({{ x | trim }}){% endmacro %}{{ f(c) }}{{ f(c + d) | length > 3 }}",
    "{% set x %}{{ c }}-{{ d }}{% endset %}{{ x | trim }}{% if 'a' in x %}!{% endif %}",
    "{% filter upper %}{{ c }}x{% endfilter %}",
    "{% generation %}{{ c }}{% endgeneration %}",
    "{% for p in c.split('a') %}<{{ p }}>{% if p == 'b' %}{% break %}{% endif %}{% endfor %}",
    "{% for m in messages %}{% if loop.changed(m.content) %}{{ m.content }}{% endif %}{% endfor %}",
    "{% for m in messages %}{{ loop.previtem.content }}{{ m.content }}{% endfor %}",
    "{% if c == 'a' %}1{% elif c.startswith('a') %}2{% elif 'a' in c and d %}3{% endif %}",
    "{% if c %}{{ raise_exception('no: ' + c) }}{% endif %}",
    "{% for letter in c %}{{ letter }}.{% endfor %}",
]


@pytest.mark.parametrize("statement", STATEMENTS)
@settings(max_examples=8, deadline=None)
@given(rows=st.lists(st.tuples(texts, texts), min_size=4, max_size=12))
def test_whatever_a_statement_does_comes_out_as_row_by_row(statement, rows):
    source = PROLOGUE + statement + EPILOGUE
    done = chat.render(template(source), column([say(("user", c), ("user", d)) for c, d in rows]))
    failed = {failure.row: failure.message for failure in done.failures}
    assert done.difference is None
    for row, (c, d) in enumerate(rows):
        expected = alone(source, c, d)
        if isinstance(expected, Refusal):
            assert failed[row] == expected.message
        else:
            assert done.text[row].as_py() == expected


def test_a_leaf_holds_the_questions_and_the_output_without_the_contents():
    leaf = trace("{% if 'x' in messages[0].content %}a{% endif %}[{{ messages[0].content }}]", "hi")
    assert [(q.predicate, q.arguments, answer) for q, answer in leaf.path] == [
        ("contains", ("x",), False)
    ]
    assert "hi" not in leaf.outputs[0]
    other = {Slot(0, 0, "content"): "ho"}
    assert expand(leaf.outputs[0], list(leaf.unknowns), other) == "[ho]"


@pytest.mark.parametrize("source", ["{{ [1, 2] | random }}", "{{ lipsum() }}"])
def test_what_differs_from_call_to_call_is_not_traced(source):
    assert trace(source, "a") is None


def test_private_characters_in_a_template_or_its_variables_keep_it_from_being_traced():
    assert trace("\U000f0000", "a") is None
    assert not Interpreter("{{ bos_token }}", {"bos_token": "\U000f0001"}).traceable


def test_private_characters_in_contents_are_contents():
    rows = [say(("user", "\U000f0000\U000f0001")), say(("user", "\U0010fff0"))]
    done = chat.render(template_sources.find_family("identity"), column(rows))
    assert done.text.to_pylist() == ["\U000f0000\U000f0001", "\U0010fff0"]
    assert done.traced_rows == 2


def test_a_signature_is_traced_once_and_then_known():
    template = template_sources.find_family("zephyr")
    rows = column([say(("user", str(n))) for n in range(50)])
    chat.render(template, rows)
    known = template.compiled.trees
    traced = [tree.leaves for trees in known.values() for tree in trees.values()]
    chat.render(template, rows)
    assert [t.leaves for trees in known.values() for t in trees.values()] == traced == [1]


@pytest.mark.parametrize("name", ["chatml", "llama3", "zephyr", "qwen3"])
def test_all_rows_of_long_conversations_take_the_traced_tier(name):
    if name == "qwen3":
        pytest.importorskip("trl")
    rows = []
    for n in range(400):
        turns = [
            ("user", f" q{n} ") if k % 2 == 0 else ("assistant", "é" * n) for k in range(n % 9 + 1)
        ]
        rows.append(say(*([("system", "s")] if n % 3 else []), *turns))
    done = chat.render(template_sources.find_model_template(name), column(rows))
    assert done.plain_rows == 0
    assert done.traced_rows == 400


def test_a_path_that_rows_take_once_each_ends_in_the_plain_tier():
    bits = "{% for m in messages %}{{ 'x' in m.content }}{{ m.content }}{% endfor %}"
    rows = [say(*[("user", "x" if n >> k & 1 else "y") for k in range(8)]) for n in range(256)]
    done = chat.render(made(bits), column(rows))
    assert done.traced_rows + done.plain_rows == 256
    assert done.plain_rows > 0
    expected = ["".join(("Falsey", "Truex")[n >> k & 1] for k in range(8)) for n in range(256)]
    assert done.text.to_pylist() == expected


def test_a_wrong_leaf_is_found_by_the_sample():
    template = made("[{{ messages[0].content }}]")
    rows = column([say(("user", str(n))) for n in range(20)])
    chat.render(template, rows)
    (trees,) = template.compiled.trees.values()
    (tree,) = trees.values()
    leaf = tree.top[True]
    tree.top[True] = Leaf(leaf.unknowns, leaf.path, (leaf.outputs[0] + "!",))
    tree.taken.clear()
    done = chat.render(template, rows)
    assert done.text.to_pylist() == [f"[{n}]" for n in range(20)]
    assert "row 0" in done.difference
    assert (done.traced_rows, done.plain_rows) == (0, 20)
