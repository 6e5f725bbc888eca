import time
from typing import Any

import pytest
from nasty_conversations import column, say

from fmtkit.core.errors import TemplateError
from fmtkit.core.worker import Limits
from fmtkit.rendering import chat, template_sources
from fmtkit.rendering.chat import ChatTemplate
from fmtkit.rendering.row_templates import RowTemplate
from fmtkit.rendering.sandbox import Sandbox, decode_leaf, encode_leaf, harmless
from fmtkit.rendering.tracing import Interpreter, Refusal, Request, Shape, View
from fmtkit.rendering.unknowns import Slot

QUICK = Limits(seconds=0.5)
LOOP = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"


def ask(*contents: str) -> list[Request]:
    return [Request(say(("user", content)), None, False) for content in contents]


def render(source: str, *contents: str, limits: Limits = QUICK) -> list[str | Refusal]:
    return Sandbox(source, {}, limits=limits).render(ask(*contents))


def refusal(source: str) -> str:
    output = render(source, "hi")[0]
    assert isinstance(output, Refusal)
    return output.message


def test_a_foreign_template_renders_like_a_trusted_one():
    rows: list[Any] = [
        say(("user", " q <think>"), ("assistant", "é" * n), ("user", "x")) for n in range(30)
    ]
    for name in ("chatml", "gemma", "alpaca"):
        trusted = template_sources.find_family(name)
        foreign = ChatTemplate("file.jinja", trusted.source, {"bos_token": ""})
        here, there = chat.render(trusted, column(rows)), chat.render(foreign, column(rows))
        assert there.text.equals(here.text)
        assert there.traced_rows == len(rows)
        assert there.difference is None


def test_replies_of_a_foreign_template_are_cut_like_a_trusted_ones():
    trusted = template_sources.find_family("zephyr")
    foreign = ChatTemplate("file.jinja", trusted.source)
    prompt = column([say(("user", "q"))])
    replies = {"chosen": column([say(("assistant", "a"))])}
    done = chat.render_reply(foreign, prompt, replies)
    assert done.replies["chosen"].to_pylist() == ["a</s>"]


def test_an_endless_loop_fails_its_row_and_no_other():
    source = (
        "{% if messages[0].content == 'loop' %}" + LOOP + "{% endif %}{{ messages[0].content }}"
    )
    began = time.monotonic()
    first, second, third = render(source, "a", "loop", "b", limits=Limits(seconds=1))
    assert (first, third) == ("a", "b")
    assert second == Refusal("no answer within 1 seconds")
    assert time.monotonic() - began < 20


def test_a_template_that_always_loops_is_given_up():
    with pytest.raises(TemplateError, match="exceeded its limits on 5 rows"):
        render(LOOP, *map(str, range(40)), limits=Limits(seconds=0.1))


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'a' * 10 ** 9 }}",
        "{{ messages[0].content * 10 ** 9 }}",
        "{% for a in range(99999) %}{{ messages | string }}{% endfor %}",
        "{% set n = namespace(x='x') %}{% for a in range(40) %}{% set n.x = n.x * 2 %}{% endfor %}"
        "{{ n.x }}",
        "{{ 'a'.ljust(10 ** 11) }}",
    ],
)
def test_a_gigabyte_of_output_is_contained(source):
    output = render(source, "hi", limits=Limits(seconds=5, memory=1 << 29))[0]
    assert isinstance(output, Refusal)


def test_a_power_that_would_take_years_is_refused_even_when_compiled():
    assert "power" in refusal("{{ 9 ** (9 ** 9) }}")


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.__class__.__base__.__subclasses__() }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ raise_exception.__globals__ }}",
        "{{ dict.__class__ }}",
        "{{ ''['__class__'].__mro__ }}",
        "{{ messages[0].content | attr('__class__') | attr('__mro__') }}",
        "{{ '{0.__class__}'.format(messages) }}",
        "{{ self._TemplateReference__context.environment.loader.x }}",
        "{% set messages.x = 1 %}",
        "{{ messages.append(1) }}",
        "{{ namespace(__class__=1) }}",
    ],
)
def test_the_interpreter_cannot_be_reached(source):
    try:
        output = render(source, "hi")[0]
    except TemplateError:
        return
    assert isinstance(output, Refusal) or output in {"", "None"}


def test_half_a_surrogate_pair_is_a_fault():
    assert "surrogates" in refusal("{{ '\\ud800' }}")


def test_endless_recursion_is_a_fault():
    source = "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}"
    assert "Recursion" in refusal(source)


@pytest.mark.parametrize("source", ["{{ 'x' | nofilter }}", "{{ 'x' is notest }}"])
def test_a_template_that_does_not_compile_is_said_so_once(source):
    with pytest.raises(TemplateError, match="does not compile"):
        render(source, "a", "b")


def test_a_leaf_survives_its_way_out_of_the_process():
    source = "{% if m0.startswith(('a', 'b')) %}x{% endif %}{{ m0[1:] }}{{ m0.split('x')[-1] }}"
    source = source.replace("m0", "messages[0].content")
    row = {Slot(0, 0, "content"): "axb"}
    signature = ((Shape("user", ("content",)),),)
    leaf = Interpreter(source, {}).trace(signature, [View((0,))], row)
    assert leaf is not None
    assert decode_leaf(encode_leaf(leaf)) == leaf
    assert Sandbox(source, {}).trace(signature, [View((0,))], row) == leaf


@pytest.mark.parametrize(
    "source", ["{{ messages[0].content.replace('a', 'b' * 99) }}", "{{ messages[0].content }}" * 9]
)
def test_a_leaf_that_makes_much_of_little_is_refused(source):
    row = {Slot(0, 0, "content"): "a"}
    signature = ((Shape("user", ("content",)),),)
    leaf = Interpreter(source, {}).trace(signature, [View((0,))], row)
    assert leaf is not None
    assert not harmless(leaf, 8, 1 << 18)
    assert Sandbox(source, {}).trace(signature, [View((0,))], row) is None


SAID = "{% for m in messages %}{{ m.content }}{% endfor %}"
DEEP = [
    "{% if messages %}" * 500 + SAID + "{% endif %}" * 500,
    "{{ " + "(" * 5_000 + "1" + ")" * 5_000 + " }}" + SAID,
    "{{ " + "-" * 3_000 + "1 }}" + SAID,
    "{{ " + "1 + " * 5_000 + "1 }}" + SAID,
    "{{ messages" + ".a" * 5_000 + " }}" + SAID,
    "{% generation %}" * 300 + SAID + "{% endgeneration %}" * 300,
    "{% set a %}" * 300 + SAID + "{% endset %}" * 300,
    # Python refuses more than 20 loops in each other, and 100 levels of indentation.
    "{% for a in [1] %}" * 30 + SAID + "{% endfor %}" * 30,
    "{% for a in [1] %}" * 120 + SAID + "{% endfor %}" * 120,
]


@pytest.mark.parametrize("source", DEEP, ids=range(len(DEEP)))
def test_a_template_that_nests_too_deeply_is_refused_in_one_line(source):
    with pytest.raises(TemplateError) as refused:
        chat.render(ChatTemplate("deep", source), column([say(("user", "hi"))]))
    assert "\n" not in str(refused.value)
    assert "deeply" in str(refused.value) or "does not compile" in str(refused.value)


@pytest.mark.parametrize("source", DEEP[-2:], ids=["blocks", "indentation"])
def test_a_template_whose_spans_are_asked_for_is_refused_likewise(source):
    with pytest.raises(TemplateError, match="does not compile"):
        RowTemplate(
            ChatTemplate("deep", source + "{% generation %}x{% endgeneration %}")
        ).render_spans(say(("user", "hi")))


@pytest.mark.parametrize(
    "source",
    [
        "{% for m in messages recursive %}{{ loop(messages) }}{% endfor %}",
        "{% block a %}{{ self.a() }}{% endblock %}",
        "{% for i in range(10 ** 12) %}x{% endfor %}",
        "{% set n = namespace(x=[]) %}{% for i in range(5000) %}{% set n.x = [n.x] %}{% endfor %}"
        "{{ n.x | tojson }}",
        "{% include 'self' %}",
    ],
)
def test_what_recurses_while_it_runs_is_a_fault_of_the_row(source):
    assert refusal(source)


DOUBLED = "{% set ns = namespace(x=messages[0].content) %}{% for i in range(12) %}{% set ns.x = (ns.x ~ ns.x) | trim %}{% endfor %}"


@pytest.mark.parametrize(
    "source",
    [
        DOUBLED + "{{ ns.x }}",
        DOUBLED + "{{ ns.x[0] }}",
        DOUBLED + "{% if ns.x == 'a' %}b{% endif %}{{ messages[0].content }}",
        "{{ messages[0].content" + " | tojson" * 12 + " }}",
        "{% for i in range(50) %}{{ messages[0].content[i:] }}{% endfor %}",
    ],
)
def test_texts_that_grow_through_operations_are_not_made_outside_of_the_worker(source):
    with_text = {Slot(0, 0, "content"): "a" * 60}
    signature = ((Shape("user", ("content",)),), ())
    assert Sandbox(source, {}).trace(signature, [View((0,), False, 1)], with_text) is None


def test_parts_of_one_text_do_not_add_up():
    source = (
        "{% for p in messages[0].content.split(',') %}{{ p | trim }}{% endfor %}"
        "{{ messages[0].content | tojson }}"
    )
    with_text = {Slot(0, 0, "content"): ",".join("abcdefghij")}
    signature = ((Shape("user", ("content",)),), ())
    leaf = Sandbox(source, {}).trace(signature, [View((0,), False, 1)], with_text)
    assert leaf is not None
