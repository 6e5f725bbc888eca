"""Inspecting rows with images: what templates write of them, their visual tokens, findings, and how they look."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("PIL")
pytest.importorskip("transformers")
pytest.importorskip("torch")

import tiny_vision as vision

from fmtkit.core.image_columns import IMAGES_FIELD, images_array
from fmtkit.core.message_keys import IMAGE
from fmtkit.core.tables import MESSAGE
from fmtkit.inspection.written_rows import write
from fmtkit.rendering import template_sources
from fmtkit.rendering.chat import ChatTemplate

Folder = Callable[[str], str]
COUNTS = (1, 0, 2, 3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """Return a function that makes the model of a family, once."""
    made: dict[str, str] = {}

    def model(family: str) -> str:
        if family not in made:
            made[family] = vision.make_vision_model(tmp_path_factory.mktemp(family), family)
        return made[family]

    return model


def template_of(model: str) -> ChatTemplate:
    return template_sources.find_model_template("tokenizer_default", tokenizer=model)


def processor_of(model: str) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(model)


def as_text(message: dict[str, Any]) -> dict[str, str]:
    """Return a message as it is in memory: a text, with the mark of each image."""
    pieces = (IMAGE if part["type"] == "image" else part["text"] for part in message["content"])
    return {"role": message["role"], "content": "".join(pieces)}


def in_memory(rows: list[dict[str, Any]]) -> pa.Table:
    """Return rows as a table of fmtkit's own."""
    names = [name for name in rows[0] if isinstance(rows[0][name], list) and name != "images"]
    columns = [
        pa.array([[*map(as_text, row[name])] for row in rows], pa.list_(MESSAGE)) for name in names
    ]
    images = images_array([[(one["bytes"], one["path"]) for one in row["images"]] for row in rows])
    fields = [*(pa.field(name, pa.list_(MESSAGE)) for name in names), IMAGES_FIELD]
    return pa.table([*columns, images], schema=pa.schema(fields))


def bare(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return messages as transformers takes them: no part has a key without a value."""
    return [
        {
            **m,
            "content": [{k: v for k, v in part.items() if v is not None} for part in m["content"]],
        }
        for m in messages
    ]


def expected(model: str, messages: list[dict[str, Any]], *, asks: bool = False) -> str:
    made = processor_of(model).apply_chat_template(
        bare(messages), tokenize=False, add_generation_prompt=asks
    )
    assert isinstance(made, str)
    return made


@pytest.mark.parametrize("family", vision.FAMILIES)
def test_templates_of_vision_models_write_images_as_transformers_has_them(
    folder: Folder, family: str
) -> None:
    model = folder(family)
    rows = vision.image_rows("Conversation", COUNTS)
    # An image is all that is said, and one stands between two texts.
    parts = [
        {"type": "text", "text": "before"},
        {"type": "image"},
        {"type": "text", "text": "after"},
    ]
    for content in ([{"type": "image"}], parts):
        said = [{"role": "user", "content": content}, rows[0]["messages"][1]]
        rows.append({"messages": said, "images": rows[0]["images"]})
    written = write(in_memory(rows), template_of(model))
    assert written.failures == ()
    assert not written.warnings
    texts = written.texts["messages"].to_pylist()
    assert texts == [expected(model, row["messages"]) for row in rows]
    assert not any(IMAGE in text for text in texts)


@pytest.mark.parametrize("family", vision.FAMILIES)
def test_pairs_with_images_are_cut_into_prompt_and_replies(folder: Folder, family: str) -> None:
    model = folder(family)
    rows = vision.image_rows("Preference", COUNTS)
    written = write(in_memory(rows), template_of(model))
    assert written.failures == ()
    for name in ("chosen", "rejected"):
        sides = (written.texts["prompt"].to_pylist(), written.texts[name].to_pylist())
        assert [a + b for a, b in zip(*sides, strict=True)] == [
            expected(model, row["prompt"] + row[name]) for row in rows
        ]


def test_a_template_of_text_refuses_rows_with_images_only() -> None:
    for name in ("chatml", "llama3"):
        template = template_sources.find_model_template(name)
        written = write(in_memory(vision.image_rows("Conversation", COUNTS)), template)
        assert [failure.row for failure in written.failures] == [0, 2, 3]
        assert {failure.code for failure in written.failures} == {"template_error"}
        assert "writes no images" in written.failures[0].message
        assert not any(IMAGE in text for text in written.texts["messages"].to_pylist())


def test_a_template_that_passes_over_images_refuses_them() -> None:
    source = (
        "{% for m in messages %}{{ m.role }}: {% if m.content is string %}{{ m.content }}"
        "{% else %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}\n{% endfor %}"
    )
    written = write(
        in_memory(vision.image_rows("Conversation", (1, 0))), ChatTemplate("own", source)
    )
    assert [failure.row for failure in written.failures] == [0]
    assert "writes no images" in written.failures[0].message


def test_without_a_template_images_are_no_text() -> None:
    rows = vision.image_rows("Conversation", (2,))
    text = write(in_memory(rows), None).texts["messages"].to_pylist()[0]
    said = [
        part["text"] for m in rows[0]["messages"] for part in m["content"] if part["type"] == "text"
    ]
    assert text == "\n".join(said)
