"""Which rows `split`, `shards` and `data_files` of a config take: those that `datasets` takes, bad ones too."""

import json

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fmtkit.core.errors import FmtkitError, OptionError
from fmtkit.options.convert_options import ConvertOptions
from fmtkit.training.config.slices import choice, parse_slice, slice_of
from fmtkit.training.data import convert_config

SLICES = [
    "train",
    "train[:50]",
    "train[3:]",
    "train[-7:]",
    "train[:-7]",
    "train[-9:-2]",
    "train[2:-2]",
    "train[10%:]",
    "train[:1%]",
    "train[33%:67%]",
    "train[-20%:]",
    "train[:33%](pct1_dropremainder)",
    "train[50%:](closest)",
    "train[:5]+train[-5:]",
    "train+train[:10%]",
]


def taken(text: str, rows: int, shard: dict | None = None) -> list[int]:
    selection = slice_of({"split": text, **(shard or {})}, 7)
    masks = choice(tuple((part, 1) for part in selection.parts), selection.shard)(
        [rows] * len(selection.parts)
    )
    return [int(i) for mask in masks for i in np.flatnonzero(mask)]


@pytest.mark.parametrize("rows", [1, 7, 199, 1003])
@pytest.mark.parametrize("text", SLICES)
def test_a_slice_takes_the_rows_that_datasets_takes(text, rows):
    if "dropremainder" in text and rows < 100:
        assert taken(text, rows) == []
        return
    parts = datasets.ReadInstruction.from_spec(text).to_absolute({"train": rows})
    expected = [i for part in parts for i in range(rows)[part.from_ : part.to]]
    assert taken(text, rows) == expected


@pytest.mark.parametrize(("count", "index"), [(1, 0), (3, 0), (3, 1), (3, 2), (7, 6)])
def test_a_shard_has_the_rows_of_axolotls_shuffle_and_shard(count, index):
    whole = datasets.Dataset.from_dict({"n": list(range(50))})
    theirs = whole.shuffle(seed=7).shard(num_shards=count, index=index)["n"]
    assert taken("train", 50, {"shards": count, "shards_idx": index}) == sorted(theirs)


def test_the_shards_together_are_all_rows_of_the_slice():
    found = [taken("train[10:40]", 50, {"shards": 4, "shards_idx": i}) for i in range(4)]
    assert sorted(i for shard in found for i in shard) == list(range(10, 40))


@pytest.mark.parametrize(
    "text", ["train[", "train[x:]", "train[3]", "train+", "[3:]", "train[:5%:]"]
)
def test_what_is_no_slice_is_told_with_an_example(text):
    with pytest.raises(OptionError, match=r"write a name, or a slice such as train\[:500\]"):
        parse_slice(text)


def rows_of(out) -> list[str]:
    lines = out.read_text().splitlines()
    return [json.loads(line)["messages"][0]["content"] for line in lines]


def converted(tmp_path, entry: dict, **keys) -> list[str]:
    out = tmp_path / "out.jsonl"
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"datasets": [{"type": "openai", **entry}], **keys}))
    options = ConvertOptions(overwrite=True)
    convert_config.convert_config(config, [], out, options)
    return rows_of(out)


def line(number: int) -> str:
    turns = [{"role": "user", "content": str(number)}, {"role": "assistant", "content": "a"}]
    return json.dumps({"messages": turns})


@pytest.fixture
def files(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "train.jsonl").write_text("\n".join(line(n) for n in range(10)) + "\n")
    (folder / "test.jsonl").write_text("\n".join(line(n) for n in range(10, 14)) + "\n")
    return folder


@pytest.mark.parametrize(
    ("split", "expected"),
    [
        (None, range(10)),
        ("test", range(10, 14)),
        ("train[:30%]", range(3)),
        ("train[-2:]", range(8, 10)),
        ("train[8:]+test[:50%]", range(8, 12)),
    ],
)
def test_a_folder_gives_the_rows_of_its_splits(split, expected, files, tmp_path):
    entry = {"path": str(files), **({"split": split} if split else {})}
    assert converted(tmp_path, entry) == [str(n) for n in expected]


def test_rows_are_counted_as_they_are_read_and_not_as_they_are_converted(tmp_path):
    source = tmp_path / "rows.jsonl"
    broken = ['{"messages": 3}', "no json", "", line(1), line(2), '{"messages": []}', line(3)]
    source.write_text("\n".join(broken))
    entry = {"path": str(source), "split": "train[2:5]"}
    # Of the six rows that stand there the third to the fifth, of which the last has no turns.
    assert converted(tmp_path, entry) == ["1", "2"]
    told = (tmp_path / "out.quarantine.jsonl").read_text().splitlines()
    assert [json.loads(one)["line"] for one in told] == [6]


@pytest.mark.parametrize("form", ["parquet", "csv", "json"])
def test_a_slice_is_taken_of_files_of_any_layout(form, tmp_path):
    source = tmp_path / f"rows.{form}"
    rows = [{"instruction": str(n), "output": "a"} for n in range(9)]
    if form == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), source, row_group_size=2)
    elif form == "csv":
        source.write_text("instruction,output\n" + "".join(f"{n},a\n" for n in range(9)))
    else:
        source.write_text(json.dumps(rows, indent=1))
    out = tmp_path / "out.jsonl"
    config = tmp_path / "config.json"
    entry = {"path": str(source), "type": "alpaca", "split": "train[3:-2]", "shards": 2}
    config.write_text(json.dumps({"rl": "kto", "datasets": [{**entry, "type": "passthrough"}]}))
    config.write_text(json.dumps({"datasets": [{**entry, "type": {"format": "{instruction}"}}]}))
    convert_config.convert_config(config, [], out, ConvertOptions())
    texts = [json.loads(row)["segments"][0]["text"] for row in out.read_text().splitlines()]
    order = np.random.default_rng(42).permutation(4)[:2]
    assert len(texts) == 2
    assert [text.strip() for text in texts] == [str(3 + n) for n in sorted(order)]


def test_a_slice_without_a_row_says_how_many_there_are(files, tmp_path):
    with pytest.raises(OptionError, match="the slice or shard selects none of 10 rows"):
        converted(tmp_path, {"path": str(files / "train.jsonl"), "split": "train[40:]"})


def test_files_that_are_named_have_one_split(files, tmp_path):
    with pytest.raises(FmtkitError, match="a file that is named by itself is the split train"):
        converted(tmp_path, {"path": str(files / "train.jsonl"), "split": "train+test"})
    named = {"path": str(files), "data_files": ["test.jsonl"], "split": "train[:1]"}
    assert converted(tmp_path, named) == ["10"]


def test_a_run_converts_again_where_the_slice_or_the_seed_changes(files, tmp_path):
    first = converted(tmp_path, {"path": str(files), "shards": 2, "shards_idx": 1})
    other = converted(tmp_path, {"path": str(files), "shards": 2, "shards_idx": 1}, seed=9)
    assert len(first) == len(other) == 5
    assert first != other
