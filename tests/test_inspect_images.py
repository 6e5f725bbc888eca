"""Inspecting rows with images: what templates write of them, their visual tokens, findings, and how they look."""

import base64
import gzip
import io
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("PIL")
pytest.importorskip("transformers")
pytest.importorskip("torch")
pytest.importorskip("trl")

import chromium
import image_samples as samples
import pyarrow.parquet as pq
import tiny_vision as vision
from PIL import Image
from rich.console import Console
from test_engines import Pickling

import fmtkit
from fmtkit.core.errors import OptionError
from fmtkit.core.image_columns import IMAGES_FIELD, images_array
from fmtkit.core.message_keys import IMAGE
from fmtkit.core.tables import MESSAGE
from fmtkit.findings.written_rows import write
from fmtkit.images.findings import SameImages
from fmtkit.inspection import inspection
from fmtkit.inspection.survey_record import FindingSummary, Survey
from fmtkit.options.convert_options import ConvertOptions
from fmtkit.options.inspect_options import InspectOptions
from fmtkit.rendering import template_sources
from fmtkit.rendering.chat import ChatTemplate
from fmtkit.rendering.content_parts import shown_in_parts
from fmtkit.rendering.row_templates import RowTemplate
from fmtkit.rendering.turn_spans import content_spans
from fmtkit.reports import html, thumbnails
from fmtkit.reports.page import packed
from fmtkit.reports.terminal import print_survey
from fmtkit.running import conversions
from fmtkit.training.building import processors
from fmtkit.work import ray_engine

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


def tokenizer_of(model: str) -> Any:
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
    made = tokenizer_of(model).apply_chat_template(
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


def inspected(model: str, path: Path, **options: Any) -> Survey:
    return inspection.run(str(path), InspectOptions(tokenizer=model, **options)).survey


def counted_by_processor(model: str, text: str, row: dict[str, Any]) -> int:
    images = [Image.open(io.BytesIO(one["bytes"])) for one in row["images"]]
    held = {"images": [images]} if images else {}
    made = processors.load(model)(text=[text], add_special_tokens=False, **held)
    return len(made["input_ids"][0])


def sized_rows(table: str) -> list[dict[str, Any]]:
    """Return rows whose images have sizes of which processors make different numbers of tokens."""
    rows = vision.image_rows(table, COUNTS)
    sizes = iter(((300, 40), (28, 28), (64, 200), (10, 90), (57, 31), (500, 500)))
    for row in rows:
        for one in row["images"]:
            width, height = next(sizes)
            one["bytes"] = vision.picture(width, width=width, height=height)
    return rows


@pytest.mark.parametrize("family", vision.FAMILIES)
def test_lengths_of_rows_include_what_the_processor_makes_of_images(
    folder: Folder, tmp_path: Path, family: str
) -> None:
    model, rows = folder(family), sized_rows("Preference")
    texts = [expected(model, row["prompt"] + row["chosen"]) for row in rows]
    counts = [counted_by_processor(model, text, row) for text, row in zip(texts, rows, strict=True)]
    survey = inspected(model, vision.write_image_rows(tmp_path / "rows.parquet", rows))
    lengths = {one.name: one for one in survey.lengths}
    assert lengths["prompt+chosen"].tokens == sum(counts)
    assert lengths["prompt+chosen"].max == max(counts)
    # A prompt is shorter by its reply, which shows no image.
    assert lengths["prompt"].tokens + lengths["chosen"].tokens == sum(counts)
    assert survey.images is not None
    assert survey.images.visual_tokens is not None
    assert (survey.images.images, survey.images.rows) == (6, 3)
    alone = [*map(len, tokenizer_of(model)(texts, add_special_tokens=False)["input_ids"])]
    # The placeholder is in the text already, and one of the tokens of an image.
    assert survey.images.visual_tokens.tokens == sum(counts) - sum(alone) + 6


def test_lengths_with_images_decide_what_a_maximum_length_cuts(
    folder: Folder, tmp_path: Path
) -> None:
    rows = sized_rows("Conversation")
    path = vision.write_image_rows(tmp_path / "rows.parquet", rows)
    model = folder("idefics3")
    texts = [expected(model, row["messages"]) for row in rows]
    counts = [counted_by_processor(model, text, row) for text, row in zip(texts, rows, strict=True)]
    limit = sorted(counts)[1]
    survey = inspected(model, path, max_length=(limit,))
    assert survey.cutting is not None
    drop = next(cut for cut in survey.cutting.cuts if cut.way == "drop")
    assert drop.rows_lost == sum(count > limit for count in counts) == 2
    out = tmp_path / "out.parquet"
    options = ConvertOptions(
        type="openai",
        tokenizer=model,
        chat_template="tokenizer_default",
        as_="messages",
        max_length=limit,
        on_overlong="drop",
    )
    report = conversions.convert_to(str(path), str(out), options)
    assert report.as_dict()["overlong_dropped"] == 2
    kept = pq.read_table(out)
    assert kept.num_rows == 2
    assert [len(images) for images in kept["images"].to_pylist()] == [
        len(row["images"]) for row, count in zip(rows, counts, strict=True) if count <= limit
    ]


def test_nothing_is_decoded(
    folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = vision.write_image_rows(tmp_path / "rows.parquet", sized_rows("Conversation"))
    model = folder("qwen2_5_vl")

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("an image was opened")

    monkeypatch.setattr(Image, "open", refuse)
    assert inspected(model, path, show_mask=2).images is not None


def test_without_a_rule_for_images_a_note_says_so_and_no_length_is_a_limit(
    folder: Folder, tmp_path: Path
) -> None:
    path = vision.write_image_rows(tmp_path / "rows.parquet", sized_rows("Conversation"))
    model = Path(shutil.copytree(folder("qwen2_5_vl"), tmp_path / "model"))
    for name in ("processor_config.json", "preprocessor_config.json"):
        (model / name).unlink(missing_ok=True)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "model_type": "unheard_of"}))
    survey = inspected(str(model), path)
    assert [note for note in survey.notes if "do not include images" in note]
    assert survey.images is not None
    assert survey.images.visual_tokens is None
    options = ConvertOptions(
        type="openai",
        tokenizer=str(model),
        chat_template="tokenizer_default",
        as_="messages",
        max_length=50,
    )
    with pytest.raises(
        OptionError, match="--max-length and --min-length count the tokens of images"
    ):
        conversions.convert_to(str(path), str(tmp_path / "out.parquet"), options)
    assert not (tmp_path / "out.parquet").exists()


def with_images(
    images: list[list[bytes]], *, asked: str = "the same question"
) -> list[dict[str, Any]]:
    """Return rows that ask the same, of these images."""
    rows = vision.image_rows("Conversation", [*map(len, images)])
    for row, held in zip(rows, images, strict=True):
        row["messages"][0]["content"][-1]["text"] = asked
        row["messages"][1]["content"][0]["text"] = "the same answer"
        row["images"] = [{"bytes": data, "path": None} for data in held]
    return rows


def findings_of(survey: Survey) -> dict[str, FindingSummary]:
    return {found.code: found for found in survey.findings}


def test_images_that_a_processor_refuses_and_those_that_lose_something_are_findings(
    folder: Folder, tmp_path: Path
) -> None:
    thin, wide16 = samples.png(600, 2), samples.png(mode="I;16")
    images = [[samples.png()], [thin], [wide16, samples.animated()], [samples.jpeg(mode="CMYK")]]
    path = vision.write_image_rows(tmp_path / "rows.parquet", with_images(images))
    survey = inspected(folder("qwen2_5_vl"), path)
    found = findings_of(survey)
    assert [place.row for place in found["image_refused"].places] == [1]
    assert "refuses more than 200" in str(found["image_refused"].details["such as"])
    assert found["image_refused"].severity == "error"
    losses = found["image_losses"].details
    assert {"thin", "clipped_bits", "animated", "cmyk"} <= losses.keys()
    assert str(losses["animated"]).startswith("in 1 image (")
    assert "same_images" not in found
    # Without a model there is no processor that could refuse one.
    bare = findings_of(inspection.run(str(path), InspectOptions()).survey)
    assert "image_refused" not in bare
    assert "image_losses" in bare


def test_all_images_equal_is_a_finding_and_copies_have_equal_images(tmp_path: Path) -> None:
    same = vision.write_image_rows(tmp_path / "same.parquet", with_images([[samples.png()]] * 3))
    found = findings_of(inspection.run(str(same), InspectOptions()).survey)
    assert (found["same_images"].count, found["same_images"].severity) == (3, "error")
    assert found["duplicate_rows"].count == 2
    images = [[samples.png(seed=number)] for number in (1, 2, 3, 1)]
    others = vision.write_image_rows(tmp_path / "others.parquet", with_images(images))
    found = findings_of(inspection.run(str(others), InspectOptions()).survey)
    assert "same_images" not in found
    assert [place.row for place in found["duplicate_rows"].places] == [3]


def test_tallies_of_blocks_add_up_to_that_of_all() -> None:
    def of(images: list[bytes]) -> SameImages:
        made = SameImages()
        for data in images:
            made.add(data)
        return made

    for first, second in (
        ([], [b"a", b"a"]),
        ([b"a"], [b"a"]),
        ([b"a"], [b"b"]),
        ([b"a", b"b"], [b"a"]),
    ):
        both = of(first)
        both.absorb(of(second))
        assert (both.count, both.are_equal) == (len(first + second), of(first + second).are_equal)


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    images = [[samples.jpeg(640, 480)], [], [samples.png(30, 20), samples.jpeg(90, 60)]]
    rows = with_images(images, asked="<img src=x onerror=alert(1)>")
    rows[2]["messages"][0]["content"].insert(
        1, {"type": "text", "text": "between \N{GRINNING FACE}"}
    )
    return vision.write_image_rows(tmp_path / "pictures.parquet", rows)


def test_a_terminal_shows_what_each_image_is_in_its_place(folder: Folder, pictures: Path) -> None:
    for model in (*map(folder, ("qwen2_5_vl", "llava")), None):
        options = InspectOptions(tokenizer=model, rows=(0, 2))
        survey = inspection.run(str(pictures), options).survey
        out = io.StringIO()
        print_survey(survey, Console(file=out, width=200))
        assert "[image 640x480 jpeg]" in out.getvalue()
        assert "[image 30x20 png]" in out.getvalue()
        assert IMAGE not in out.getvalue()
        assert IMAGE not in json.dumps(survey.as_dict(), ensure_ascii=False)
        placeholder = out.getvalue().index("[image 30x20 png]")
        assert placeholder < out.getvalue().index("[image 90x60 jpeg]")


def rows_of(page: str) -> list[dict[str, Any]]:
    chunks = re.findall(r'id="chunk-\d+">([^<]+)<', page)
    return [row for chunk in chunks for row in json.loads(gzip.decompress(base64.b64decode(chunk)))]


def test_a_page_has_small_copies_of_images_within_bounds(
    folder: Folder, pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = inspection.run(str(pictures), InspectOptions(tokenizer=folder("qwen2_5_vl")))
    page = html.render(seen)
    assert IMAGE not in page
    first, second, third = rows_of(page)
    assert [label for label, _ in third["images"]] == ["image 30x20 png", "image 90x60 jpeg"]
    assert second["images"] == []
    sources = [source for row in (first, third) for _, source in row["images"]]
    for source in sources:
        assert re.fullmatch(r"data:image/(png|jpeg);base64,[A-Za-z0-9+/=]+", source)
        assert len(source) <= thumbnails.MOST_BYTES
    small = Image.open(io.BytesIO(base64.b64decode(sources[0].partition(",")[2])))
    assert small.size == (160, 120)
    side = third["sides"][0]
    units = side["text"].encode("utf-16-le")
    assert [units[2 * at :].decode("utf-16-le")[:17] for at in side["images"]] == [
        "<|vision_start|><"
    ] * 2
    monkeypatch.setattr(thumbnails, "MOST_OF_PAGE", 1)
    again = rows_of(html.render(seen))
    assert again[0]["images"] == [["image 640x480 jpeg", None]]
    monkeypatch.setattr(thumbnails, "MOST_OF_ROW", 1)
    monkeypatch.setattr(thumbnails, "MOST_OF_PAGE", 100_000)
    assert [bool(source) for _, source in rows_of(html.render(seen))[2]["images"]] == [True, False]


def test_a_copy_is_not_searched_for_secrets_and_no_other_text_is_spared() -> None:
    key = "AKIA" + "Q7XEXAMPLEKEY234"
    [row] = json.loads(
        gzip.decompress(base64.b64decode(packed([{"a": thumbnails.DataUri(key), "b": key}])))
    )
    assert row["a"] == key
    assert row["b"] != key


@pytest.mark.skipif(chromium.program() is None, reason="there is no Chromium")
@pytest.mark.parametrize("width", [1280, 390])
def test_a_browser_shows_the_pictures_before_their_placeholders(
    folder: Folder, pictures: Path, tmp_path: Path, width: int
) -> None:
    seen = inspection.run(str(pictures), InspectOptions(tokenizer=folder("qwen2_5_vl")))
    html.write(seen, tmp_path / "page.html")
    browser = chromium.Browser(tmp_path / "profile")
    try:
        browser.window(width)
        browser.open(tmp_path / "page.html")
        browser.run("document.querySelectorAll('#list [role=option]')[2].click()")
        browser.run("new Promise(done => setTimeout(done, 300))")
        browser.settle()
        shown = "[...document.querySelectorAll('#row img')].map(i => [i.alt, i.naturalWidth, i.nextSibling.textContent])"
        assert browser.run(shown) == [
            ["image 30x20 png", 30, "<|vision_start|>"],
            ["image 90x60 jpeg", 90, "<|vision_start|>"],
        ]
        assert browser.run("document.documentElement.scrollWidth <= innerWidth")
        wrong = [
            e
            for e in browser.events
            if e["method"] in ("Log.entryAdded", "Runtime.exceptionThrown")
        ]
        assert wrong == []
    finally:
        browser.close()


def test_contents_with_images_are_found_in_what_a_template_writes(folder: Folder) -> None:
    template = RowTemplate(template_of(folder("qwen2_5_vl")))
    row = in_memory(vision.image_rows("Conversation", (2,))).to_pylist()[0]
    row["messages"].insert(
        0, {"role": "user", "content": f"before {IMAGE} between {IMAGE}{IMAGE} after"}
    )
    messages: list[Any] = [shown_in_parts(message) for message in row["messages"]]
    text = template.render(messages)
    spans = content_spans(template, messages, None, text)
    assert None not in spans
    found = [text[span[0] : span[1]] for span in spans if span]
    image = "<|vision_start|><|image_pad|><|vision_end|>"
    said = [message["content"] for message in row["messages"]]
    assert found == [
        f"before {image} between {image}{image} after",
        said[1].replace(IMAGE, ""),
        said[2],
    ]


def test_workers_in_other_processes_count_the_same(
    folder: Folder, pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = folder("idefics3")
    monkeypatch.setattr(ray_engine, "Ray", lambda *_: Pickling())
    threads = inspected(model, pictures, rows=(0,)).as_dict()
    workers = inspected(model, pictures, rows=(0,), engine="ray").as_dict()
    assert threads["images"] is not None
    assert workers == threads


def test_targets_with_images_are_measured_with_them(folder: Folder, tmp_path: Path) -> None:
    rows = sized_rows("Conversation")
    path = vision.write_image_rows(tmp_path / "rows.parquet", rows)
    model = folder("llava")
    texts = [expected(model, row["messages"]) for row in rows]
    counts = [counted_by_processor(model, text, row) for text, row in zip(texts, rows, strict=True)]
    options = ConvertOptions(
        type="openai",
        to="ms-swift",
        tokenizer=model,
        chat_template="tokenizer_default",
        max_length=min(counts),
        on_overlong="drop",
    )
    report = conversions.convert_to(str(path), str(tmp_path / "out.jsonl"), options).as_dict()
    assert report["overlong_dropped"] == sum(count > min(counts) for count in counts) == 3


def test_boxes_out_of_their_image_are_a_finding(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(samples.png(100, 50))
    (tmp_path / "b.png").write_bytes(samples.png(20, 20, seed=1))
    (tmp_path / "turned.jpg").write_bytes(samples.oriented("JPEG", 6, 100, 50))

    def row(images: list[str], **objects: Any) -> str:
        said = [
            {"role": "user", "content": "<image>" * len(images) + "where?"},
            {"role": "assistant", "content": f"here {objects}"},
        ]
        return json.dumps({"messages": said, "images": images, "objects": objects}) + "\n"

    inside, high = [[0, 0, 100, 50]], [[0, 0, 40, 90]]
    rows = [
        row(["a.png"], ref=["x"], bbox=inside),
        row(["a.png"], ref=["x"], bbox=high),
        row(["a.png"], bbox=[[0.1, 0.1, 0.9, 1.0]], bbox_type="norm1"),
        row(["a.png"], bbox=[[0.1, 0.1, 0.9, 1.5]], bbox_type="norm1"),
        row(["a.png", "b.png"], bbox=[*inside, *inside], image_id=[0, 1]),
        row(["a.png", "b.png"], bbox=[*inside, [90, 40]], image_id=[0, 0]),
        row(["turned.jpg"], bbox=high),
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(rows))
    survey = inspection.run(str(path), InspectOptions(type="openai")).survey
    assert survey.rows == len(rows)
    found = findings_of(survey)["boxes_outside"]
    assert [place.row for place in found.places] == [1, 3, 4]
    assert found.details["such as"] == "it reaches out of 100 x 50"


@pytest.mark.parametrize(
    ("family", "token"), [("gemma3", "<image_soft_token>"), ("qwen2_5_vl", "<|image_pad|>")]
)
def test_a_token_of_an_image_in_a_text_is_a_control_token(
    folder: Folder, tmp_path: Path, family: str, token: str
) -> None:
    rows = [
        {
            "messages": [
                {"role": "user", "content": f"{said}?"},
                {"role": "assistant", "content": "x"},
            ]
        }
        for said in ("plain", token)
    ]
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = fmtkit.convert(
        source,
        "openai",
        tmp_path / "out.parquet",
        tokenizer=folder(family),
        chat_template="tokenizer_default",
    )
    assert report.as_dict()["warnings"]["control_tokens"] == 1
