"""A folder has the splits that `datasets` finds in it; one is read, and what is not read is said."""

import json
from pathlib import Path

import pytest

import fmtkit
from fmtkit.core.errors import OptionError, UnreadFilesWarning
from fmtkit.sources.opening import open_sources
from fmtkit.sources.splits import splits_of

LAYOUTS = [
    ("train.jsonl", "test.jsonl"),
    ("data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet"),
    ("data/train-00000-of-00001.parquet", "data/holdout-00000-of-00001.parquet", "notes.csv"),
    ("train/a.jsonl", "val/b.jsonl", "stray.jsonl"),
    ("my-training-01.jsonl", "dev.jsonl", "x_eval_2.jsonl", "README.jsonl"),
    ("retrain.jsonl", "contest.jsonl"),
    ("sub/train.json", "sub/validation.json", "validated.json"),
    ("train_a/test.jsonl", "b/c.jsonl"),
]


def row(text: str) -> str:
    roles = ("user", "assistant")
    return json.dumps({"messages": [{"role": role, "content": text} for role in roles]}) + "\n"


def folder(path: Path, *names: str) -> Path:
    for name in names:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(row(name), encoding="utf-8")
    return path


@pytest.mark.parametrize("names", LAYOUTS, ids=[" ".join(names) for names in LAYOUTS])
def test_splits_are_those_of_datasets(tmp_path, names):
    data_files = pytest.importorskip("datasets").data_files
    root = folder(tmp_path, *names)
    patterns = data_files.get_data_patterns(str(root))
    theirs = {
        str(split): sorted(
            str(Path(file).relative_to(root))
            for file in data_files.DataFilesList.from_patterns(found, base_path=str(root))
        )
        for split, found in patterns.items()
    }
    assert splits_of(sorted(names)) == theirs


def test_files_that_are_named_for_no_split_are_to_train_on_where_no_other_is():
    assert splits_of(["a.jsonl", "dev.jsonl"]) == {
        "train": ["a.jsonl"],
        "validation": ["dev.jsonl"],
    }


def test_what_is_not_read_is_said(tmp_path):
    root = folder(tmp_path, "train.jsonl", "test.jsonl")
    with pytest.warns(UnreadFilesWarning, match=r"train is read \(train.jsonl\), not test.jsonl"):
        rows = fmtkit.table(root, "openai")
    assert rows.num_rows == 1
    only = folder(tmp_path / "only", "test.jsonl")
    with pytest.warns(UnreadFilesWarning, match=r"the split test is read \(test.jsonl\)"):
        assert fmtkit.table(only, "openai").num_rows == 1


@pytest.mark.filterwarnings("error")
def test_a_folder_without_splits_is_read_whole_and_a_split_that_is_asked_for_is_no_news(tmp_path):
    plain = folder(tmp_path / "plain", "a.jsonl", "b.jsonl")
    assert fmtkit.table(plain, "openai").num_rows == 2
    named = folder(tmp_path / "named", "train.jsonl", "test.jsonl")
    assert [Path(s.name).name for s in open_sources(named, split="test")] == ["test.jsonl"]


def test_a_split_that_is_not_there_is_an_error_that_lists_what_is(tmp_path):
    root = folder(tmp_path, "train.jsonl", "test.jsonl")
    with pytest.raises(OptionError, match=r"no split 'dev'; it has train \(train.jsonl\), test"):
        open_sources(root, split="dev")
    with pytest.raises(OptionError, match="no split 'test': a file that is named by itself"):
        open_sources(root / "train.jsonl", split="test")
    assert len(open_sources(root / "test.jsonl", split="train")) == 1
    several = folder(tmp_path / "several", "test.jsonl", "dev.jsonl")
    with pytest.raises(OptionError, match="no split 'train'; it has validation"):
        open_sources(several)


def config(tmp_path: Path, **entry: object) -> dict[str, object]:
    return {
        "base_model": "a/m",
        "output_dir": str(tmp_path / "run"),
        "datasets": [{"type": "openai", **entry}],
    }


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"path": "rows/train.jsonl", "split": "test"}, "no split 'test': a file that is named"),
        ({"path": "rows", "split": "train+nonsense[:5]"}, "no split 'nonsense'; it has train"),
    ],
)
def test_a_plan_says_that_a_split_is_not_there(tmp_path, monkeypatch, entry, message):
    pytest.importorskip("trl")
    folder(tmp_path / "rows", "train.jsonl", "test.jsonl")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OptionError, match=message):
        fmtkit.train(config(tmp_path, **entry), dry_run=True)


@pytest.mark.parametrize(("split", "name"), [({}, "train"), ({"split": "test"}, "test")])
@pytest.mark.filterwarnings("ignore::fmtkit.core.errors.UnreadFilesWarning")
def test_a_config_reads_one_split_in_every_command(tmp_path, split, name):
    pytest.importorskip("trl")
    import yaml

    from fmtkit.options.convert_options import ConvertOptions
    from fmtkit.options.inspect_options import InspectOptions
    from fmtkit.training.data.convert_config import convert_config
    from fmtkit.training.data.inspect_config import inspect_config

    root = folder(tmp_path / "rows", "train.jsonl", "test.jsonl")
    file = tmp_path / "c.yaml"
    keys = config(tmp_path, path=str(root), **split)
    del keys["base_model"]  # a fragment needs no tokenizer
    file.write_text(yaml.safe_dump(keys), encoding="utf-8")
    out = tmp_path / "out.jsonl"
    convert_config(file, [], out, ConvertOptions())
    assert f'"{name}.jsonl"' in out.read_text(encoding="utf-8")
    [(_, found)] = inspect_config(file, [], InspectOptions())
    assert found.survey.rows == 1
