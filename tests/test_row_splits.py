"""`val_set_size` of a config: a share, or a number, of the rows of all datasets together."""

import json
from dataclasses import fields

import pyarrow.parquet as pq
import pytest
import yaml
from runs import fmtkit

pytest.importorskip("trl")

from fmtkit.options.convert_options import ConvertOptions
from fmtkit.training.config.slices import slice_of
from fmtkit.training.data import datasets
from fmtkit.training.planning import plan as planning


def rows(count: int, prompts: int) -> list[dict]:
    return [
        {"question": f"q{i % prompts}", "chosen": f"good {i}", "rejected": "bad"}
        for i in range(count)
    ]


@pytest.fixture
def config(tmp_path):
    def write(*parts: list[dict], **keys) -> str:
        entries = []
        for number, part in enumerate(parts):
            file = tmp_path / f"{number}.jsonl"
            file.write_text("".join(json.dumps(row) + "\n" for row in part))
            entries.append({"path": str(file), "type": "intel"})
        values = {
            "base_model": "a/m",
            "rl": "dpo",
            "datasets": entries,
            "excess_length_strategy": "keep",
            "output_dir": str(tmp_path / "run"),
            **keys,
        }
        path = tmp_path / "config.yaml"
        path.write_text(yaml.safe_dump(values))
        return str(path)

    return write


def prepared(config: str, **options) -> tuple[list, list]:
    train, held_out = datasets.prepare(planning.plan(config), None, **options)
    return tuple(
        [
            row
            for source in sources
            for file in source.files
            for row in pq.read_table(file).to_pylist()
        ]
        for sources in (train, held_out)
    )


@pytest.mark.parametrize(
    ("parts", "size", "expected"),
    [
        ([rows(40, 40)], 0.1, 4),
        ([rows(40, 4)], 0.1, 4),
        ([rows(40, 1)], 0.1, 4),
        ([rows(15, 15), rows(25, 3)], 0.1, 4),
        ([rows(15, 15), rows(15, 15)], 0.1, 3),
        ([rows(20, 20), rows(20, 20)], 7, 7),
        ([rows(9, 9)], 0.01, 1),
    ],
)
def test_so_many_rows_of_all_datasets_are_held_out(config, parts, size, expected):
    train, held_out = prepared(config(*parts, val_set_size=size, split_by="rows"))
    assert len(held_out) == expected
    assert len(train) == sum(map(len, parts)) - expected
    said = [row["chosen"][0]["content"] for row in (*train, *held_out)]
    assert sorted(said) == sorted(row["chosen"] for part in parts for row in part)


def test_a_seed_makes_another_split_and_the_same_seed_the_same(config):
    first = prepared(config(rows(40, 40), val_set_size=0.1))
    assert prepared(config(rows(40, 40), val_set_size=0.1), rebuild=True) == first
    assert prepared(config(rows(40, 40), val_set_size=0.1, seed=7))[1] != first[1]


@pytest.mark.parametrize(
    ("parts", "size", "at_least"),
    [
        ([rows(60, 12)], 10, 10),
        ([rows(60, 12)], 0.1, 6),
        ([rows(24, 24)], 0.05, 2),
        ([rows(30, 10), rows(20, 15)], 0.1, 5),
        ([rows(30, 10), rows(20, 15)], 7, 7),
    ],
)
def test_whole_prompts_of_all_datasets_are_held_out_unless_rows_are_asked_for(
    config, parts, size, at_least
):
    made = config(*parts, val_set_size=size)
    train, held_out = prepared(made)
    asked = [{row["prompt"][0]["content"] for row in part} for part in (train, held_out)]
    assert not asked[0] & asked[1]
    largest = max(sum(row["question"] == "q0" for row in part) for part in parts) * len(parts)
    assert at_least <= len(held_out) < at_least + largest
    assert ("split_by", "prompts") in [line[:2] for line in planning.plan(made).lines()]


@pytest.mark.parametrize(("prompts", "words"), [(1, "have one prompt"), (2, "have 2 prompts")])
def test_prompts_that_are_too_few_to_hold_some_out_are_one_line(config, capsys, prompts, words):
    file = config(rows(10, prompts), val_set_size=9)
    done = fmtkit(capsys, "convert", "-c", file, "-o", file.replace("config.yaml", "out"))
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert words in done.err
    assert "hold out single rows: split_by rows" in done.err
    train, held_out = prepared(config(rows(10, prompts), val_set_size=9, split_by="rows"))
    assert (len(train), len(held_out)) == (1, 9)


DIFFERENT = {
    "seed": "42 as transformers has it; convert has always had 0",
    "max_length": "1024 as TRL has it; convert knows no model that would need one",
    "on_overlong": "drop as axolotl does; convert keeps every row that nothing cuts",
    "rendered_later": "a run's rows are rendered by its trainer",
}
"""Options that a config has another default for, and why."""
GIVEN = {"type", "method", "chat_template", "tokenizer", "as_", "config", "val_size"}
"""Options that every run gives, by its other keys."""


def test_an_option_has_the_same_default_in_a_config_as_in_a_command(config):
    made = planning.plan(config(rows(2, 2), excess_length_strategy=None, val_set_size=1))
    [dataset] = made.datasets
    chosen = datasets.options_of(
        made, dataset, slice_of(dataset.entry, None), local=True, split=True
    )
    usual = ConvertOptions(type="intel")
    differs = {f.name for f in fields(usual) if getattr(chosen, f.name) != getattr(usual, f.name)}
    assert differs - GIVEN == set(DIFFERENT)


def test_a_dataset_is_split_again_where_another_has_changed(config):
    parts = [rows(20, 20), rows(20, 20)]
    first = prepared(config(*parts, val_set_size=0.1))
    again = prepared(config(parts[0], [*parts[1], *rows(20, 20)], val_set_size=0.1))
    assert (len(first[1]), len(again[1])) == (4, 6)


def test_nothing_to_train_on_is_one_line(config, capsys):
    file = config(rows(3, 3), val_set_size=3)
    done = fmtkit(capsys, "convert", "-c", file, "-o", file.replace("config.yaml", "out"))
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "only 3 rows" in done.err


def test_a_conversion_of_the_config_has_the_same_split_as_its_run(config, tmp_path):
    file = config(rows(30, 30), rows(30, 5), val_set_size=0.2)
    _, held_out = prepared(file)
    from fmtkit.options.convert_options import ConvertOptions
    from fmtkit.training.data.convert_config import convert_config

    convert_config(file, [], tmp_path / "out", ConvertOptions())
    files = sorted((tmp_path / "out").glob("*/data/validation-*.parquet"))
    assert [row for f in files for row in pq.read_table(f).to_pylist()] == held_out
    assert len(held_out) == 12


@pytest.mark.parametrize("workers", [1, 4])
def test_rows_are_split_off_by_a_flag_too(config, tmp_path, capsys, workers):
    config(rows(40, 2))
    out = tmp_path / f"out{workers}"
    done = fmtkit(
        capsys, "convert", tmp_path / "0.jsonl", "--type", "intel", "-o", out,
        "--val-size", "0.1", "--split-by", "rows", "--workers", workers,
    )  # fmt: skip
    assert done.code == 0
    (file,) = (out / "data").glob("validation-*.parquet")
    assert pq.read_metadata(file).num_rows == 4
