import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nasty_conversations import column, say

import fmtkit
from fmtkit.core.errors import TemplateError
from fmtkit.rendering import chat, survival, template_sources
from fmtkit.rendering.chat import ChatTemplate
from fmtkit.rendering.content_parts import TEXTS, Form, Forms, cuts_of, forms_of, in_form
from fmtkit.rendering.row_templates import RowTemplate
from fmtkit.rendering.tracing import Interpreter

PARTS = (
    "{% for m in messages %}[{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }}"
    "{% endif %}{% endfor %}]{% endfor %}{% if add_generation_prompt %}[{% endif %}"
)
TEXT = "{% for m in messages %}[{{ m.content }}]{% endfor %}"
EITHER = (
    "{% for m in messages %}[{% if m.content is string %}{{ m.content | trim }}"
    "{% elif m.content is iterable %}{% for p in m.content %}{{ p.text | trim }}{% endfor %}"
    "{% endif %}]{% endfor %}"
)
MUTE = "{% for m in messages %}[{{ m.role }}]{% endfor %}"
FORMS = [(PARTS, Form.PARTS), (TEXT, Form.TEXT), (EITHER, Form.EITHER), (MUTE, Form.TEXT)]
TALK = say(("user", "Hi"), ("assistant", " yo "))


def made(source: str, *, trusted: bool = True) -> ChatTemplate:
    return ChatTemplate("mine", source, trusted=trusted)


def parts(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


@pytest.mark.parametrize(("source", "form"), FORMS)
def test_the_form_of_content_is_told_by_what_a_template_writes(source, form):
    assert forms_of(Interpreter(source, {})) == Forms(form)


def test_a_template_that_prints_the_list_itself_takes_texts():
    for filtered in ("m.content", "m.content | tojson", "m.content | string | upper"):
        source = f"{{% for m in messages %}}{{{{ {filtered} }}}}{{% endfor %}}"
        assert forms_of(Interpreter(source, {})) == TEXTS


def test_a_template_that_begins_with_a_system_turn_only_is_tried_with_one():
    source = "{% if messages[0].role != 'system' %}{{ raise_exception('no') }}{% endif %}" + PARTS
    assert forms_of(Interpreter(source, {})) == Forms(Form.PARTS)


@pytest.mark.parametrize("trusted", [True, False])
def test_a_role_may_take_another_form_than_the_rest(trusted):
    source = (
        "{% for m in messages %}{% if m.role == 'system' %}<{{ m.content }}>{% elif m.role == 'tool' %}"
        "({{ m.content[0].text }}){% elif m.content is string %}[{{ m.content }}]"
        "{% else %}[{% for p in m.content %}{{ p.text }}{% endfor %}]{% endif %}{% endfor %}"
    )
    template = made(source, trusted=trusted)
    expected = Forms(Form.EITHER, {"system": Form.TEXT, "tool": Form.PARTS})
    assert template.compiled.forms == expected
    talk = say(("system", "sy"), ("user", "ab"), ("assistant", "c"), ("tool", "t"))
    cuts = {1: cuts_of([parts("s", "y"), parts("a", "b")])}
    done = chat.render(template, column([talk, talk]), cuts=cuts)
    assert done.text.to_pylist() == ["<sy>[ab][c](t)"] * 2
    assert not done.warnings
    listed = [{**m, "content": parts(m["content"])} for m in talk]
    assert RowTemplate(template).render(listed) == "<sy>[ab][c](t)"


def test_no_template_of_trl_prints_a_list_of_parts():
    pytest.importorskip("trl")
    roles = ("system", "user", "assistant")
    for name in template_sources.trl_names():
        template = template_sources.find_family(f"trl:{name}")
        for first in (0, 1):
            talk = [{"role": role, "content": parts("Sa", "id")} for role in roles[first:]]
            made = (
                chat.render(
                    template,
                    column([[in_form(message, TEXTS) for message in talk]]),
                    cuts={0: {"Said": ("Sa", "id")}},
                )
                .text[0]
                .as_py()
            )
            assert made is None or not {"'Sa'", '"Sa"'} & set(made.replace("}", " ").split())
            assert made is None or "'text'" not in made, name


def test_trls_training_templates_take_the_form_of_the_templates_they_stand_for():
    pytest.importorskip("trl")
    for name in template_sources.trl_names():
        template = template_sources.find_family(f"trl:{name}")
        if template.training is not None:
            assert forms_of(Interpreter(template.training, {})) == template.compiled.forms, name


@pytest.mark.parametrize("name", ["smolvlm", "idefics3", "llava_next"])
def test_a_template_that_reads_parts_alone_gets_parts(name):
    pytest.importorskip("trl")
    template = template_sources.find_model_template(f"trl:{name}")
    assert template.compiled.forms.most is Form.PARTS
    done = chat.render(template, column([TALK, TALK]))
    assert "Hi" in done.text[0].as_py()
    assert " yo " in done.text[0].as_py()
    assert done.traced_rows == 2
    assert not done.failures
    assert RowTemplate(template).render(TALK) == done.text[0].as_py()


@pytest.mark.parametrize("trusted", [True, False])
def test_columns_and_rows_give_parts_alike(trusted):
    template = made(PARTS, trusted=trusted)
    cuts = {0: cuts_of([parts("H", "i")])}
    done = chat.render(template, column([TALK, TALK]), cuts=cuts)
    assert done.text.to_pylist() == ["[Hi][ yo ]"] * 2
    assert (done.traced_rows, done.plain_rows, done.difference) == (1, 1, None)


def test_rows_with_tools_keep_what_a_template_of_parts_writes():
    tools = pa.array([json.dumps([{"type": "function", "function": {"name": "f"}}])] * 2)
    template = made(PARTS + "{{ tools | length if tools }}")
    cuts = {1: cuts_of([parts("H", "i")])}
    done = chat.render(template, column([TALK, TALK]), tools=tools, cuts=cuts)
    assert done.text.to_pylist() == ["[Hi][ yo ]1"] * 2
    assert (done.failures, done.warnings, done.plain_rows) == ([], {}, 1)


@pytest.mark.parametrize("trusted", [True, False])
def test_each_part_is_trimmed_by_a_template_that_does_so(trusted):
    template = made(EITHER, trusted=trusted)
    rows = [say(("user", " a  b "), ("assistant", " c "))] * 3
    cuts = {1: cuts_of([parts(" a ", " b ")]), 2: cuts_of([parts(" a  b "), parts(" c ")])}
    done = chat.render(template, column(rows), cuts=cuts)
    assert done.text.to_pylist() == ["[a  b][c]", "[ab][c]", "[a  b][c]"]
    # A single part is traced like a text.
    assert (done.traced_rows, done.plain_rows) == (2, 1)


def test_a_content_without_parts_stays_without():
    done = chat.render(
        made(EITHER), column([[{"role": "user", "content": ""}, *TALK]]), cuts={0: {"": ()}}
    )
    assert done.text.to_pylist() == ["[][Hi][yo]"]


@pytest.mark.parametrize("trusted", [True, False])
@pytest.mark.parametrize("prompt", [True, False])
def test_a_rendering_without_any_content_is_refused(trusted, prompt):
    blank = say(("user", " \n"), ("assistant", ""))
    done = chat.render(
        made(MUTE, trusted=trusted), column([TALK, blank, TALK]), add_generation_prompt=prompt
    )
    assert [(f.row, f.code, f.message) for f in done.failures] == [
        (row, "template_error", survival.ALL_LOST.message) for row in (0, 2)
    ]
    assert done.text.to_pylist() == [None, "[user][assistant]", None]


@pytest.mark.parametrize("rest", ["", "{{ [''] | random }}"])
def test_a_prompt_whose_texts_are_all_lost_is_refused_with_its_reply(rest):
    source = "{% for m in messages %}{% if m.role == 'assistant' %}[{{ m.content }}]{% endif %}"
    template = made(source + "{% endfor %}" + rest)
    replies = {"chosen": column([TALK[1:]]), "rejected": column([say(("assistant", "no"))])}
    done = chat.render_reply(template, column([TALK[:1]]), replies)
    assert [f.message for f in done.failures] == [survival.ALL_LOST.message]
    assert done.prompt.to_pylist() == [None]


def test_a_part_that_a_template_leaves_out_is_a_warning_and_all_of_them_a_reject():
    source = (
        "{% for m in messages %}[{{ m.content[0].text if m.content is not string else m.content }}]"
        "{% endfor %}"
    )
    rows = [say(("user", "ab"), ("assistant", "c")), say(("user", " b"), ("assistant", ""))]
    cuts = {0: cuts_of([parts("a", "b")]), 1: cuts_of([parts(" ", "b")])}
    done = chat.render(made(source), column(rows), cuts=cuts)
    assert done.text.to_pylist() == ["[a][c]", None]
    assert done.warnings == {"content_dropped": [0]}
    assert [f.message for f in done.failures] == [survival.ALL_LOST.message]


def test_a_reply_in_parts_of_which_nothing_is_left_fails_the_row():
    source = "{% for m in messages %}{% if m.content is string or m.role == 'user' %}"
    source += "[{{ m.content if m.content is string else m.content[0].text }}]"
    source += "{% elif m.content | length == 1 %}[{{ m.content[0].text }}]{% endif %}{% endfor %}"
    replies = {"completion": column([say(("assistant", "cd"))])}
    cuts = {0: cuts_of([parts("c", "d")])}
    done = chat.render_reply(made(source), column([TALK[:1]]), replies, cuts=cuts)
    assert [f.message for f in done.failures] == [survival.REPLY_LOST.message]


contents = st.text("ab \u3000é", max_size=4) | st.lists(
    st.text("ab ", max_size=2).map(lambda text: parts(text)[0]) | st.text("ab ", max_size=2),
    max_size=3,
)


@given(st.lists(contents, max_size=5))
def test_the_parts_of_a_content_are_found_by_its_text_or_it_is_whole(given_contents):
    cuts = cuts_of([*given_contents, None])
    for text, found in cuts.items():
        assert "".join(found) == text
        assert text not in given_contents
    for content in given_contents:
        message = in_form({"role": "user", "content": content}, TEXTS)
        assert isinstance(message["content"], str)


def write_lines(path: Path, *rows: Any) -> str:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return str(path)


MIXED = {"messages": [{"role": "user", "content": [*parts("Look: "), " é😀"]}, TALK[1]]}
WHOLE = {"messages": [{"role": "user", "content": "Look:  é😀"}, TALK[1]]}


@pytest.mark.parametrize("name", ["gemma3", "gemma4", "diffusion_gemma", "smolvlm", "qwen2_5_vl"])
def test_a_source_in_parts_renders_as_transformers_renders_its_messages(tmp_path, name):
    pytest.importorskip("trl")
    peer = pytest.importorskip("transformers.utils.chat_template_utils")
    template = template_sources.find_model_template(f"trl:{name}")
    user = {"role": "user", "content": parts("Look: ", " é😀")}
    reply = in_form(TALK[1], template.compiled.forms)
    expected = peer.render_jinja_template(
        [[user, reply]], chat_template=template.source, bos_token=""
    )[0][0]
    source = write_lines(tmp_path / "rows.jsonl", MIXED, WHOLE, MIXED)
    options = {"chat_template": f"trl:{name}", "form": "text"}
    texts = fmtkit.table(source, "passthrough", **options).column("text").to_pylist()
    assert texts[0] == texts[2] == expected
    assert fmtkit.render(MIXED["messages"], f"trl:{name}") == expected
    assert texts[1] == fmtkit.render(WHOLE["messages"], f"trl:{name}")


def test_every_side_of_a_pair_keeps_its_parts(tmp_path):
    template = tmp_path / "either.jinja"
    template.write_text(EITHER)
    row = {
        "prompt": [{"role": "user", "content": parts("a ", "b")}],
        "chosen": [{"role": "assistant", "content": parts("c ", "d")}],
        "rejected": [{"role": "assistant", "content": "c  e"}],
    }
    source = write_lines(tmp_path / "rows.jsonl", row)
    options = {"chat_template": str(template), "form": "text"}
    (found,) = fmtkit.table(source, "passthrough", **options).to_pylist()
    assert [found[name] for name in row] == ["[ab]", "[cd]", "[c  e]"]


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_parts_are_kept_where_small_files_are_read_together(tmp_path, suffix):
    template = tmp_path / "either.jinja"
    template.write_text(EITHER)
    (tmp_path / "files").mkdir()
    for number in range(5):
        user = {"role": "user", "content": parts(f"{number} ", " b")}
        row = {"messages": [user, {"role": "assistant", "content": parts("c")}]}
        file = tmp_path / "files" / f"{number}.{suffix}"
        write_lines(file, row)
        if suffix == "parquet":
            pq.write_table(pa.Table.from_pylist([row]), file)
    options = {"chat_template": str(template), "form": "text", "out": tmp_path / "out.jsonl"}
    fmtkit.convert(str(tmp_path / "files"), "passthrough", **options)
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    assert [json.loads(line)["text"] for line in lines] == [f"[{n}b][c]" for n in range(5)]


def test_messages_hold_the_joined_text(tmp_path):
    source = write_lines(tmp_path / "rows.jsonl", MIXED)
    (found,) = fmtkit.table(source, "passthrough").to_pylist()
    assert found["messages"][0]["content"] == "Look:  é😀"


def test_a_prompt_table_that_a_template_empties_is_quarantined(tmp_path):
    template = tmp_path / "mute.jinja"
    template.write_text(MUTE)
    source = write_lines(tmp_path / "rows.jsonl", {"prompt": TALK[:1]})
    options = {"chat_template": str(template), "form": "text"}
    findings = fmtkit.validate(source, "passthrough", **options)
    assert [item.code for item in findings.items] == ["template_error"]


@pytest.mark.parametrize("part", [{"type": "image"}, 3, {"type": "text"}, None])
def test_a_part_that_is_no_text_is_refused_by_name(part):
    message = {"role": "user", "content": [part]}
    with pytest.raises(TemplateError, match=r"messages\[0\]\[0\]"):
        fmtkit.render([message], "chatml")


@pytest.fixture
def parts_model(model, tmp_path):
    """Make the small model's tokenizer one whose template reads parts alone."""
    folder = tmp_path / "model"
    shutil.copytree(model, folder)
    source = PARTS.replace("{% for p in", "{% generation %}{% for p in", 1)
    source = source.replace("{% endfor %}]", "{% endfor %}{% endgeneration %}]", 1)
    (folder / "chat_template.jinja").write_text(source)
    return str(folder)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize(
    ("method", "table"), [("dpo", "Preference"), ("sft", "Conversation"), ("kto", "Unpaired")]
)
@pytest.mark.slow
def test_a_trainer_learns_the_texts_of_a_template_that_reads_parts(
    parts_model, tmp_path, method, table, wide
):
    pytest.importorskip("trl")
    import tiny_training as tiny

    from fmtkit.training.building import build

    source = (Path(parts_model) / "chat_template.jinja").read_text()
    work = tiny.make_job(tmp_path / "run", parts_model, method, table, {"max_steps": 1}, wide=wide)
    work = type(work)(**{**work.__dict__, "template_text": source})
    made_parts = build.parts_of(work, [])
    trainer = build.build_trainer(work, made_parts)
    batch = next(iter(trainer.get_train_dataloader()))
    names = [n for n in batch if n.endswith("input_ids")]
    said = "".join(
        made_parts.tokenizer.decode(row, skip_special_tokens=True)
        for n in names
        for row in batch[n]
    )
    assert any(word in said for word in tiny.WORDS)
