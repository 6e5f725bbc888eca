"""A plan reads the first rows of each local dataset: what fails in all of them fails in the plan."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("trl")

import tiny_training as tiny

import fmtkit
from fmtkit.core.errors import FmtkitError

TOOL = {"type": "function", "function": {"name": "a", "parameters": {"type": "object"}}}
CALL = {"type": "function", "function": {"name": "a", "arguments": {"x": 1}}}
CHAT = [{"role": "user", "content": "red"}, {"role": "assistant", "content": "blue"}]
CALLS = [
    CHAT[0],
    {"role": "assistant", "tool_calls": [CALL]},
    {"role": "tool", "content": "3"},
    CHAT[1],
]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny.make_model(tmp_path_factory.mktemp("model"))


def lines(path: Path, rows: list) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def parquet(path: Path, rows: list) -> str:
    pq.write_table(pa.Table.from_pylist(rows), path)
    return str(path)


def planned(model: str, path: str, **keys) -> list[str]:
    """Return the notes of a dry run over a file."""
    base = {"base_model": model, "chat_template": "chatml", "sequence_len": 64}
    whole = {**base, "datasets": [{"path": path, "type": "openai"}], **keys}
    return list(
        fmtkit.train({k: v for k, v in whole.items() if v is not None}, dry_run=True).plan.notes
    )


def refused(model: str, path: str, **keys) -> str:
    with pytest.raises(FmtkitError) as error:
        planned(model, path, **keys)
    assert len(error.value.lines) == 1, error.value.lines
    return str(error.value)


@pytest.mark.parametrize("write", [lines, parquet])
@pytest.mark.parametrize(
    ("rows", "keys", "words"),
    [
        ([{"chat": CHAT}], {}, "type openai needs column messages; the columns are chat"),
        (
            [{"messages": CALLS, "tools": [TOOL]}] * 3,
            {},
            "none of 3 rows can be converted (unsupported 3)",
        ),
        (
            [{"messages": CALLS}] * 3,
            {"sequence_len": None, "excess_length_strategy": "truncate", "train_on_inputs": True},
            "the template has no place for tool calls",
        ),
        ([{"messages": CHAT}] * 4, {"val_set_size": 4}, "val_set_size: 4: there are 4 rows"),
        ([{"messages": CHAT}] * 4, {"val_set_size": 4000}, "some must be left to train on"),
        (
            [{"messages": CHAT}] * 100,
            {"val_set_size": 200},
            "val_set_size: 200: there are 100 rows",
        ),
        ([{"messages": CHAT}], {"val_set_size": 0.5}, "val_set_size: 0.5: there is 1 row"),
        ([{"messages": CHAT}] * 2, {"sequence_len": 2}, "all are longer than sequence_len"),
    ],
)
def test_what_no_row_survives_is_refused_by_the_plan(model, tmp_path, write, rows, keys, words):
    assert words in refused(model, write(tmp_path / f"rows.{write.__name__}", rows), **keys)


def test_a_file_that_is_empty_or_no_data_is_refused_by_the_plan(model, tmp_path):
    assert "it holds no rows" in refused(model, lines(tmp_path / "empty.jsonl", []))
    page = tmp_path / "page.jsonl"
    page.write_text("<html>\n</html>\n")
    assert "page.jsonl is a page of HTML, not data" in refused(model, str(page))
    lists = tmp_path / "lists.jsonl"
    lists.write_text("[1]\n[2]\n")
    assert "none of 2 rows can be converted" in refused(model, str(lists))


def test_rows_that_survive_are_trained_on_and_the_others_are_a_note(model, tmp_path):
    good = {"messages": CHAT}
    assert planned(model, lines(tmp_path / "good.jsonl", [good] * 100), val_set_size=99) == []
    (note,) = planned(model, lines(tmp_path / "some.jsonl", [{"messages": []}, good]))
    assert "1 of 2 rows will not be trained on; the first: " in note
    assert "some.jsonl:1: empty_field" in note
    late = lines(tmp_path / "late.jsonl", [{"messages": []}] * 200 + [good])
    assert "200 of 201 rows will not be trained on" in planned(model, late)[0]
    unseen = lines(tmp_path / "unseen.jsonl", [{**good, "tools": [TOOL]}])
    assert "the template leaves out text or tools of 1 of 1 rows" in planned(model, unseen)[0]


def test_a_run_says_what_the_template_leaves_out_before_and_after_it_converts(model, tmp_path):
    rows = [{"messages": CHAT, "tools": [TOOL]}] * 1000
    for count, words in ((1, ["of 1 of 1 rows"]), (1000, ["of the first ", "1,000 of 1,000 rows"])):
        keys = {
            "base_model": model,
            "chat_template": "chatml",
            "output_dir": str(tmp_path / f"run{count}"),
            "datasets": [
                {"path": lines(tmp_path / f"{count}.jsonl", rows[:count]), "type": "openai"}
            ],
        }
        said: list[str] = []
        fmtkit.train(keys, prepare=True, say=said.append)
        about = [note for note in said if "leaves out text or tools" in note]
        assert len(about) == len(words)
        assert all(part in note for part, note in zip(words, about, strict=True))


def test_one_bad_row_ends_a_run_that_allows_none_and_so_its_plan(model, tmp_path):
    path = lines(tmp_path / "rows.jsonl", [{"messages": CHAT}, {"messages": []}])
    assert "rows.jsonl:2: empty_field" in refused(model, path, on_error="fail")


def test_every_file_of_a_dataset_is_looked_into(model, tmp_path):
    lines(tmp_path / "a.jsonl", [{"messages": CHAT}])
    lines(tmp_path / "b.jsonl", [{"chat": CHAT}])
    assert "b.jsonl: type openai needs column messages" in refused(model, str(tmp_path))


def test_a_tokenizer_that_is_missing_is_one_problem(tmp_path):
    path = lines(tmp_path / "rows.jsonl", [{"messages": CHAT}])
    assert "no such folder" in refused(str(tmp_path / "nowhere"), path)


def test_without_the_model_the_columns_are_still_checked(tmp_path):
    path = lines(tmp_path / "rows.jsonl", [{"chat": CHAT}])
    assert "needs column messages" in refused("nobody/nothing", path)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(
    ("broken", "words"),
    [("", "has no chat template; set chat_template"), ("{", "tokenizer.json cannot be read")],
)
def test_what_the_tokenizer_lacks_is_one_problem_however_many_datasets_meet_it(
    model, tmp_path, count, broken, words
):
    folder = shutil.copytree(model, tmp_path / "model")
    if broken:
        (folder / "tokenizer.json").write_text(broken, encoding="utf-8")
    path = lines(tmp_path / "rows.jsonl", [{"messages": CHAT}] * 8)
    entry = {"path": path, "type": "ebft_strided_chat.transform"}
    keys = {"rl": "ebft", "ebft": {"mode": "strided"}, "chat_template": None}
    assert words in refused(str(folder), path, datasets=[entry] * count, **keys)
