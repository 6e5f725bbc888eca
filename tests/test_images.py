"""Images of rows, from any layout to a table, and from there to other layouts; bytes and order stay."""

import base64
import hashlib
import json
import random
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from image_samples import data_uri, jpeg, png

import fmtkit
from fmtkit.core.errors import OptionError
from fmtkit.core.image_columns import IMAGE_TYPE, IMAGES_FIELD
from fmtkit.core.message_keys import IMAGE

A, B = png(32, 24, seed=1), jpeg(24, 32, seed=2)
IMAGE_PART = {"type": "image", "text": None}


def text(said: str) -> dict[str, str]:
    return {"type": "text", "text": said}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with two images, for rows that name them by path."""
    (tmp_path / "pics").mkdir()
    (tmp_path / "pics" / "a.png").write_bytes(A)
    (tmp_path / "pics" / "b.jpg").write_bytes(B)
    return tmp_path


def written(rows: list[dict[str, Any]], folder: Path, name: str = "rows.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return path


def made(source: Any, type_name: str, **options: Any) -> pa.Table:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fmtkit.table(source, type_name, **options)


def hashes(table: pa.Table) -> list[list[str]]:
    """Return what the images of each row are, whether they are bytes or files."""
    rows = table.column("images").to_pylist()
    data = [[i["bytes"] or Path(i["path"]).read_bytes() for i in row] for row in rows]
    return [[hashlib.sha256(one).hexdigest() for one in row] for row in data]


def shown(table: pa.Table, column: str) -> list[list[str]]:
    """Return of each row what its turns say, with an I for each image."""
    return [
        [
            "".join("I" if p["type"] == "image" else p["text"] for p in turn["content"])
            for turn in row
        ]
        for row in table.column(column).to_pylist()
    ]


GIVEN: dict[str, tuple[Any, Any]] = {
    "path": ("pics/a.png", "pics/b.jpg"),
    "data URI": (data_uri(A), data_uri(B, "image/jpeg")),
    "base64": (base64.b64encode(A).decode(), base64.b64encode(B).decode()),
    "stored": ({"bytes": None, "path": "pics/a.png"}, {"bytes": None, "path": "pics/b.jpg"}),
    "OpenAI's": ({"image_url": {"url": "pics/a.png"}}, {"url": "pics/b.jpg"}),
}


@pytest.mark.parametrize("how", GIVEN)
def test_images_are_given_in_any_of_the_usual_ways(folder, how):
    one, other = GIVEN[how]
    turns = [
        {"role": "user", "content": "<image>or<image>?"},
        {"role": "assistant", "content": "x"},
    ]
    rows = [{"messages": turns, "images": [one, other]}]
    table = made(written(rows, folder), "openai")
    assert hashes(table) == [[hashlib.sha256(data).hexdigest() for data in (A, B)]]
    assert shown(table, "messages") == [["IorI?", "x"]]


def test_parts_and_a_column_and_nothing_mark_the_same_places(folder):
    reply = {"role": "assistant", "content": "x"}
    parts = [{"type": "image", "image": "pics/a.png"}, text("Which?")]
    filled = [{"type": "image"}, text("Which?")]
    ways: list[dict[str, Any]] = [
        {"messages": [{"role": "user", "content": parts}, reply]},
        {"messages": [{"role": "user", "content": filled}, reply], "images": ["pics/a.png"]},
        {"messages": [{"role": "user", "content": "<image>Which?"}, reply], "image": "pics/a.png"},
        {"messages": [{"role": "user", "content": "Which?"}, reply], "images": "pics/a.png"},
    ]
    tables = [made(written([row], folder), "openai") for row in ways]
    assert all(table.equals(tables[0]) for table in tables)
    assert shown(tables[0], "messages") == [["IWhich?", "x"]]


def test_the_table_is_what_datasets_decodes(folder, tmp_path):
    datasets = pytest.importorskip("datasets")
    rows = [
        {"question": "<image>What?", "chosen": "a", "rejected": "b", "image": "pics/a.png"},
        {"question": "Which?", "chosen": "a", "rejected": "b", "images": ["pics/b.jpg"] * 2},
        {"question": "None?", "chosen": "a", "rejected": "b"},
    ]
    for mode in ("keep", "embed"):
        out = tmp_path / f"{mode}.parquet"
        fmtkit.convert(written(rows, folder), "intel", out, images=mode)
        assert pq.read_schema(out).field("images").equals(IMAGES_FIELD)
        loaded = datasets.load_dataset("parquet", data_files=str(out), split="train")
        assert loaded.features["images"] == datasets.List(datasets.Image())
        assert [[image.size for image in row] for row in loaded["images"]] == [
            [(32, 24)],
            [(24, 32), (24, 32)],
            [],
        ]
        assert loaded[0]["prompt"][0]["content"] == [IMAGE_PART, text("What?")]
        assert loaded[2]["prompt"][0]["content"] == [text("None?")]


def test_stored_bytes_and_their_names_come_back_as_they_are(tmp_path):
    held = [[{"bytes": A, "path": "a.png"}], [], [{"bytes": B, "path": None}] * 2, None]
    turns = [{"role": "user", "content": "What?"}, {"role": "assistant", "content": "x"}]
    table = pa.table({"images": pa.array(held, pa.list_(IMAGE_TYPE)), "messages": [turns] * 4})
    first = made(table, "openai")
    assert first.column("images").to_pylist() == [row or [] for row in held]
    again = made(first, "passthrough", method="sft")
    assert again.column("images").equals(first.column("images"))
    assert (
        shown(again, "messages")
        == shown(first, "messages")
        == [
            ["IWhat?", "x"],
            ["What?", "x"],
            ["IIWhat?", "x"],
            ["What?", "x"],
        ]
    )


def test_a_batch_of_stored_images_reads_as_its_rows_do(tmp_path):
    """One column of images is taken as it is; beside a second one each row is read by itself."""
    held = [[{"bytes": A, "path": "a.png"}], [{"bytes": None, "path": None}], [None], None, []]
    turns = [{"role": "user", "content": f"{said}?"} for said in ("a", "b", "c", "d", IMAGE)]
    data = {
        "images": pa.array(held, pa.list_(IMAGE_TYPE)),
        "messages": [[turn, {"role": "assistant", "content": "x"}] for turn in turns],
    }
    found = []
    for more in ({}, {"rejected_images": pa.array([None] * 5, pa.list_(IMAGE_TYPE))}):
        rejects: list[Any] = []
        rows = made(pa.table(data | more), "openai", rejects=rejects)
        found.append((rows.to_pylist(), [(r.row, r.code) for r in rejects]))
    assert found[0] == found[1]
    assert found[0][1] == [(4, "image_count")]


def test_stored_images_keep_their_bytes_whichever_rows_are_converted(tmp_path):
    """Images are not copied where rows follow each other in memory; rows without a place for them are left out."""
    draw = random.Random(7)
    images, bad = [], []
    for number in range(200):
        some = [
            {"bytes": png(8, 8, seed=draw.randrange(99)), "path": f"{number}.png"}
            for _ in range(draw.randrange(3))
        ]
        images.append(draw.choice([None, [], [None], some, some, some, [*some, None]]))
        bad.append(number % 7 == 3)
    messages = [
        [
            {"role": "assistant" if wrong else "user", "content": "?"},
            {"role": "assistant", "content": "!"},
        ]
        for wrong in bad
    ]
    rows = pa.table({"messages": messages, "images": pa.array(images, IMAGES_FIELD.type)})
    found = {}
    for name, source in {
        "whole": rows,
        "cut": pa.concat_tables([rows[:9], rows[9:150], rows[150:]]),
    }.items():
        path = tmp_path / f"{name}.parquet"
        with pq.ParquetWriter(path, rows.schema) as writer:
            for batch in source[3:197].to_batches():
                writer.write_batch(batch)
        out = tmp_path / f"{name}.out.parquet"
        fmtkit.convert(path, "openai", out, max_errors=None, workers=2)
        found[name] = pq.read_table(out).column("images").to_pylist()
    there = [[one for one in row or () if one] for row in images[3:197]]
    kept = [row for row, wrong in zip(there, bad[3:197], strict=True) if not (wrong and row)]
    assert found["whole"] == found["cut"] == kept
    assert {row is None for row in images} == {True, False}


TARGETS = {
    "trl": ("passthrough", {"method": "sft"}),
    "openai": ("openai", {}),
    "axolotl": ("chat_template", {}),
    "ms-swift": ("openai", {}),
    "sharegpt": ("sharegpt", {}),
    "llama-factory": ("sharegpt", {}),
}


@pytest.mark.parametrize("to", TARGETS)
def test_what_a_target_writes_comes_back_with_the_same_images(folder, tmp_path, to):
    rows = [
        {
            "messages": [
                {"role": "user", "content": "<image>What, or <image>?"},
                {"role": "assistant", "content": "x"},
                {"role": "user", "content": "And <image>?"},
                {"role": "assistant", "content": "y"},
            ],
            "images": ["pics/a.png", "pics/b.jpg", "pics/a.png"],
        },
        {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]},
    ]
    source = written(rows, folder)
    mode = "paths" if to == "llama-factory" else "embed"
    out = folder / ("out.parquet" if to == "trl" else "out.jsonl")
    fmtkit.convert(source, "openai", out, to=to, images=mode)
    reads, options = TARGETS[to]
    again = made(out, reads, **options)
    first = made(source, "openai")
    assert hashes(again) == hashes(first)
    assert shown(again, "messages") == shown(first, "messages")


@pytest.mark.parametrize("to", ["gemini", "hh-rlhf", "alpaca"])
def test_a_target_without_images_refuses_such_rows_or_counts_them(folder, tmp_path, to):
    rows = [
        {"question": "<image>What?", "chosen": "a", "rejected": "b", "image": "pics/a.png"},
        {"question": "None?", "chosen": "a", "rejected": "b"},
    ]
    rejects: list[Any] = []
    table = made(written(rows, folder), "intel", to=to, rejects=rejects)
    assert table.num_rows == 1
    assert [(r.row, r.code, r.column) for r in rejects] == [(0, "no_place", "images")]
    lossy = made(written(rows, folder), "intel", to=to, allow_loss="images")
    assert lossy.num_rows == 2
    assert IMAGE not in str(lossy.to_pylist())


def test_a_text_that_is_a_placeholder_is_not_written_beside_images(folder):
    parts = [{"type": "image", "image": "pics/a.png"}, text("What is <image> in HTML?")]
    turns = [{"role": "user", "content": parts}, {"role": "assistant", "content": "x"}]
    rejects: list[Any] = []
    source = written([{"messages": turns}], folder)
    assert not made(source, "openai", to="ms-swift", rejects=rejects).num_rows
    assert [(r.code, r.column) for r in rejects] == [("no_place", "content")]


@pytest.mark.parametrize("workers", [1, 3])
def test_rows_do_not_depend_on_the_workers_nor_on_how_they_are_cut(folder, workers, monkeypatch):
    """Images of files that are more than fit into memory at once are written in parts."""
    from fmtkit.running import pipeline

    monkeypatch.setattr(pipeline, "HELD_BYTES", 3 * len(A))
    rows = [
        {"question": f"{i}?", "chosen": "a", "rejected": "b", "image": f"pics/{name}"}
        for i, name in enumerate(["a.png", "b.jpg", "lost.png"] * 40)
    ]
    out = folder / f"{workers}.parquet"
    report = fmtkit.convert(written(rows, folder), "intel", out, images="embed", workers=workers)
    terms = report.as_dict()
    assert (terms["converted"], terms["quarantined"]) == (80, 40)
    table = pq.read_table(out)
    assert [row[0]["bytes"] for row in table.column("images").to_pylist()] == [A, B] * 40
    asked = [prompt[0]["content"][1]["text"] for prompt in table.column("prompt").to_pylist()]
    assert asked == [f"{i}?" for i in range(120) if i % 3 != 2]


def test_sources_with_and_without_images_are_one_file(folder, tmp_path):
    chat = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    plain = written([{"messages": chat}], folder, "plain.jsonl")
    pictured = written([{"messages": chat, "images": ["pics/a.png"]}], folder, "pictured.jsonl")
    table = made([plain, pictured], "openai")
    assert shown(table, "messages") == [["a", "b"], ["Ia", "b"]]
    assert [len(row) for row in table.column("images").to_pylist()] == [0, 1]


def test_rows_of_text_alone_have_no_column_of_images(folder):
    chat = [{"role": "user", "content": "What is <image>?"}, {"role": "assistant", "content": "b"}]
    table = made([{"messages": chat, "images": None}], "openai")
    assert table.schema.names == ["messages", "tools"]
    assert table.column("messages")[0].as_py()[0]["content"] == "What is <image>?"


def test_an_image_behind_the_first_rows_is_refused_unless_images_are_asked_for(folder):
    chat = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    rows: list[dict[str, Any]] = [{"messages": chat}] * 300 + [
        {"messages": chat, "image": "pics/a.png"}
    ]
    source, rejects = written(rows, folder), list[Any]()
    assert made(source, "openai", rejects=rejects).num_rows == 300
    assert [(r.row, r.code) for r in rejects] == [(300, "unsupported")]
    assert "--map images=image" in rejects[0].message
    assert made(source, "openai", images="keep").num_rows == 301


def test_a_column_of_another_name_holds_the_images_that_are_mapped(folder):
    row = {"question": "What?", "chosen": "a", "rejected": "b", "photo": "pics/a.png"}
    table = made(written([row], folder), "intel", map={"images": "photo"})
    assert len(hashes(table)[0]) == 1


@pytest.mark.parametrize("reference", ["/etc/hostname", "../secret.png", "pics/../../secret.png"])
def test_no_file_outside_of_the_folder_is_opened(folder, reference):
    inner = folder / "inner"
    inner.mkdir()
    (folder / "secret.png").write_bytes(A)
    rows = [{"question": "What?", "chosen": "a", "rejected": "b", "image": reference}]
    rejects: list[Any] = []
    assert not made(written(rows, inner), "intel", images="embed", rejects=rejects).num_rows
    assert [r.code for r in rejects] == ["image_missing"]
    if reference.startswith(".."):
        allowed = made(written(rows, inner), "intel", images="embed", image_folder=str(folder))
        assert allowed.num_rows == 1


def test_a_url_is_not_fetched_unless_it_is_asked_for(folder):
    row = {"question": "What?", "chosen": "a", "rejected": "b", "image": "http://127.0.0.1:9/a.png"}
    rejects: list[Any] = []
    made(written([row], folder), "intel", rejects=rejects)
    assert [r.code for r in rejects] == ["image_missing"]
    assert "--fetch-images" in rejects[0].message


def test_images_go_with_messages_and_not_with_text(folder):
    row = {"question": "What?", "chosen": "a", "rejected": "b", "image": "pics/a.png"}
    source = written([row], folder)
    with pytest.raises(OptionError, match="leave the template out"):
        made(source, "chatml.intel", images="keep")
    with pytest.raises(OptionError, match="rows of text"):
        made([{"text": "a"}], "completion", images="embed")
    with pytest.raises(OptionError, match="beside OUT"):
        made(source, "intel", images="paths")


def test_pairs_of_a_ranking_have_its_images(folder):
    rated = [
        {"response": said, "annotations": {"Helpfulness": {"Rating": str(score)}}}
        for score, said in ((5, "a"), (3, "b"), (1, "c"))
    ]
    row = {"prompt": "What?", "completions": rated, "image": "pics/a.png"}
    table = made(written([row], folder), "vlfeedback", options={"pairs": "all"})
    assert table.num_rows == 3
    assert len({tuple(row) for row in hashes(table)}) == 1
    assert shown(table, "prompt") == [["IWhat?"]] * 3


def test_rows_with_images_are_unpaired_with_them(folder):
    row = {"question": "What?", "chosen": "a", "rejected": "b", "image": "pics/a.png"}
    table = made(written([row], folder), "intel", method="kto")
    assert table.column("label").to_pylist() == [True, False]
    assert [len(images) for images in hashes(table)] == [1, 1]


def test_a_run_that_was_stopped_goes_on_with_the_same_images(folder):
    rows = [
        {"question": f"{i}?", "chosen": "a", "rejected": "b", "image": "pics/a.png"}
        for i in range(50)
    ]
    source = written(rows, folder)
    fmtkit.convert(source, "intel", folder / "once", images="embed")
    fmtkit.convert(source, "intel", folder / "again", images="embed")
    once, again = (pq.read_table(folder / name / "data") for name in ("once", "again"))
    assert once.equals(again)
    with pytest.raises(fmtkit.FmtkitError):
        fmtkit.convert(source, "intel", folder / "again", images="keep", resume=True)


def test_one_question_about_many_images_is_many_prompts(folder):
    """Whole prompts are held out: the text alone would put all rows into one split."""
    images = [data_uri(png(16, 12, seed=seed)) for seed in range(40)]
    rows = [
        {"question": "What?", "chosen": "a", "rejected": "b", "image": image}
        for image in images * 2
    ]
    out = folder / "out"
    fmtkit.convert(written(rows, folder), "intel", out, val_size=10)
    parts = {
        name: pq.read_table(next((out / "data").glob(f"{name}*.parquet")))
        for name in ("train", "validation")
    }
    held = {name: {row[0] for row in hashes(part)} for name, part in parts.items()}
    assert parts["validation"].num_rows == 10
    assert not held["train"] & held["validation"]


def test_a_bad_image_is_named_with_what_it_is(folder):
    (folder / "pics" / "drawing.png").write_bytes(b"<svg xmlns='http://www.w3.org/2000/svg'/>")
    row = {"question": "What?", "chosen": "a", "rejected": "b"}
    rows = [
        {**row, "images": ["pics/a.png", "pics/drawing.png"]},
        {**row, "images": [data_uri(A), data_uri(A[:20])]},
        {**row, "images": ["pics/lost.png"]},
    ]
    rejects: list[Any] = []
    made(written(rows, folder), "intel", rejects=rejects)
    drawing, cut, lost = (reject.message for reject in rejects)
    assert drawing.startswith("pics/drawing.png: the file is an SVG drawing")
    assert cut.startswith("data:image/png;base64,")
    assert "ends within its header" in cut
    assert len(cut) < 200
    assert lost.startswith("there is no file pics/lost.png")
