"""A mixture of datasets in a TRL file: the columns, the shares and the split that TRL's own function makes."""

import json
from pathlib import Path

import pytest
import yaml

pytest.importorskip("trl")

import tiny_training as tiny

import fmtkit
from fmtkit.core.errors import FmtkitError, OptionError
from fmtkit.core.runner import find
from fmtkit.training.data import datasets, rows
from fmtkit.training.planning import plan as planning
from fmtkit.training.run import run

SIZES = {"a": 30, "b": 11}


@pytest.fixture
def folder(tmp_path):
    for name, count in SIZES.items():
        lines = [
            {
                "messages": [
                    {"role": "user", "content": f"{name} {n}"},
                    {"role": "assistant", "content": "red"},
                ],
                # Read as a prompt, each row would be one of another kind.
                "prompt": "river",
                "completion": "stone",
            }
            for n in range(count)
        ]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (tmp_path / f"{name}.jsonl").write_text(text, encoding="utf-8")
    return tmp_path


def entry(folder: Path, name: str, **more: object) -> dict[str, object]:
    files = str(folder / f"{name}.jsonl")
    return {"path": "json", "data_files": files, "split": "train", "columns": ["messages"], **more}


def file_of(folder: Path, entries: list[dict[str, object]], **more: object) -> Path:
    file = folder / "config.yaml"
    keys = {"model_name_or_path": "a/m", "output_dir": str(folder / "run"), "datasets": entries}
    file.write_text(yaml.safe_dump({**keys, "max_length": None, **more}), encoding="utf-8")
    return file


def loaded(file: Path) -> list[list[str]]:
    """Return what the users say in the rows that are trained and evaluated on."""
    plan = planning.plan(file)
    train, evaluation = datasets.prepare(plan, tiny.TEMPLATE)
    parts = rows.load_rows(run.job_of(plan, train, evaluation, tiny.TEMPLATE), find("sft"))
    return [[row["messages"][0]["content"] for row in part or ()] for part in parts]


def theirs(file: Path) -> dict[str, int]:
    from trl import DatasetMixtureConfig, TrlParser, get_dataset

    parser = TrlParser([DatasetMixtureConfig])
    command = ["--config", str(file)]
    mixture, _ = parser.parse_args_and_config(command, return_remaining_strings=True)
    return {name: len(part) for name, part in get_dataset(mixture).items()}


@pytest.mark.parametrize("shares", [(None, None), (0.5, 0.5), (3, 1), (0.7, 0.2), (0, 1)])
@pytest.mark.parametrize("split", [None, 0.2, 6])
def test_a_mixture_is_as_large_as_that_of_trl(folder, shares, split):
    entries = [
        entry(folder, name, **({} if share is None else {"fraction": share}))
        for name, share in zip(SIZES, shares, strict=True)
    ]
    held_out = {} if split is None else {"test_split_size": split, "eval_strategy": "epoch"}
    file = file_of(folder, entries, **held_out)
    train, test = loaded(file)
    expected = theirs(file)
    assert len(train) + len(test) == sum(expected.values())
    # Both splits are drawn: of the rows of each source in fmtkit, of the mixture in TRL.
    if 0 not in shares:
        assert abs(len(test) - expected.get("test", 0)) <= 2
    assert len({*train, *test}) == len(train) + len(test)
    if shares[0] is not None:
        counts = {name: sum(one[0] == name for one in (*train, *test)) for name in SIZES}
        total = sum(counts.values())
        for name, share in zip(SIZES, shares, strict=True):
            assert counts[name] == pytest.approx(total * share / sum(shares), abs=1)


def test_a_sample_of_a_share_is_drawn_by_the_seed(folder):
    entries = [entry(folder, name, fraction=0.5) for name in SIZES]
    first, _ = loaded(file_of(folder, entries, seed=1))
    again, _ = loaded(file_of(folder, entries, seed=1))
    other, _ = loaded(file_of(folder, entries, seed=2))
    assert first == again
    assert {*first} != {*other}


def test_columns_that_are_not_selected_are_not_there(folder):
    source = str(folder / "a.jsonl")
    table = fmtkit.table(source, "passthrough", select=["messages"])
    assert table.column_names == ["messages", "tools"]
    pair = fmtkit.table(source, "passthrough", select=["prompt", "completion"])
    assert sorted(pair.column_names) == ["completion", "prompt"]
    with pytest.raises(
        OptionError, match="--select mesages: no row has that column; did you mean 'messages'"
    ):
        fmtkit.table(source, "passthrough", select=["mesages"])


def test_a_column_that_no_row_has_is_named_with_its_entry(folder):
    file = file_of(folder, [entry(folder, "a") | {"columns": ["mesages"]}])
    with pytest.raises(FmtkitError, match="mesages"):
        loaded(file)


def test_a_column_that_only_later_rows_have_is_absent_unless_it_is_selected(tmp_path):
    pair = {"question": "q", "chosen": "a", "rejected": "b"}
    rows = [{**pair, "question": f"q{i}"} for i in range(5000)] + [{**pair, "system": "late"}]
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    names = ["question", "chosen", "rejected"]
    found = fmtkit.table(source, "intel", select=names).to_pylist()
    assert len(found) == len(rows)
    assert "late" not in json.dumps(found[-1])
    assert "late" in json.dumps(fmtkit.table(source, "intel").to_pylist()[-1])


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "type intel needs rejected"),
        ({"columns": {"rejected": "rejected"}}, "rejected reads rejected"),
        ({"columns": {"rejected": "chosen"}, "keep": ["rejected"]}, "names rejected"),
    ],
)
def test_what_is_not_selected_and_is_needed_is_named_with_select(tmp_path, options, why):
    source = tmp_path / "rows.jsonl"
    source.write_text(json.dumps({"question": "q", "chosen": "a", "rejected": "b"}) + "\n")
    with pytest.raises(OptionError, match=f"select question,chosen: .*{why}; add it"):
        fmtkit.table(source, "intel", select=["question", "chosen"], **options)
