"""`where` in a config: the same rows are planned, converted and trained on."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

pytest.importorskip("trl")

import tiny_training as tiny

import fmtkit
from fmtkit.core.errors import FmtkitError
from fmtkit.options.convert_options import ConvertOptions
from fmtkit.running.conversions import convert_to
from fmtkit.training.data import data_report, datasets
from fmtkit.training.data.convert_config import convert_config
from fmtkit.training.data.convert_first import convert_first
from fmtkit.training.planning import plan as planning


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny.make_model(tmp_path_factory.mktemp("model")))


def chats(path: Path, count: int, **columns: Any) -> str:
    """Write conversations, each with its number and these columns."""
    made = (
        {
            "messages": [
                {"role": "user", "content": f"{n} red"},
                {"role": "assistant", "content": f"blue {n}"},
            ],
            "n": n,
            **columns,
        }
        for n in range(count)
    )
    path.write_text("".join(json.dumps(row) + "\n" for row in made))
    return str(path)


def config(folder: Path, model: str, entries: list[Mapping[str, object]], **keys: object) -> str:
    whole = {"base_model": model, "chat_template": "chatml", "sequence_len": 64, **keys}
    file = folder / "config.yaml"
    run = {"output_dir": str(folder / "run"), "datasets": entries}
    file.write_text(yaml.safe_dump({**whole, **run}))
    return str(file)


def numbers(files: tuple[str, ...]) -> list[int]:
    """Return the numbers of the conversations in files of rows."""
    found = [row for file in files for row in pq.read_table(file).to_pylist()]
    return [int(row["messages"][0]["content"].split()[0]) for row in found]


def test_an_entry_has_its_own_condition_or_that_of_the_config(tmp_path: Path, model: str) -> None:
    first = {"path": chats(tmp_path / "a.jsonl", 6), "type": "openai", "where": "n % 2 = 0"}
    second = {"path": chats(tmp_path / "b.jsonl", 6), "type": "openai"}
    file = config(tmp_path, model, [first, second], where="n > 3")
    made = planning.plan(file)
    train, _ = datasets.prepare(made, made.template_text())
    assert [numbers(source.files) for source in train] == [[0, 2, 4], [4, 5]]
    assert data_report.data_remarks(made) == [
        f"datasets: {tmp_path}/a.jsonl: 3 of 6 rows were left out by where",
        f"datasets: {tmp_path}/b.jsonl: 4 of 6 rows were left out by where",
    ]
    reports = convert_config(file, [], tmp_path / "out", ConvertOptions())
    assert [report.rows_written for report in reports] == [3, 2]
    typed = ConvertOptions(where="n = 5", typed=frozenset({"where"}))
    reports = convert_config(file, [], tmp_path / "typed", typed)
    assert [report.rows_written for report in reports] == [1, 1]


def test_another_condition_converts_again(tmp_path: Path, model: str) -> None:
    entry = {"path": chats(tmp_path / "a.jsonl", 6), "type": "openai"}
    for where, kept in (("n > 3", [4, 5]), ("n < 2", [0, 1]), (None, [*range(6)])):
        made = planning.plan(config(tmp_path, model, [entry | ({"where": where} if where else {})]))
        train, _ = datasets.prepare(made, made.template_text())
        assert numbers(train[0].files) == kept


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("m > 3", 'where "m > 3": no column m in'),
        ("n >", "where \"n >\": unable to parse 'n >' as Expr"),
        ("max(n) > 3", "it asks for other rows"),
        ("n > 'a'", "n is a number here"),
        ("n > 100", "none of 6 rows is left to train on"),
    ],
)
def test_a_dry_run_reports_what_would_end_the_run(
    where: str, said: str, tmp_path: Path, model: str
) -> None:
    entry = {"path": chats(tmp_path / "a.jsonl", 6), "type": "openai", "where": where}
    with pytest.raises(FmtkitError) as error:
        fmtkit.train(config(tmp_path, model, [entry]), dry_run=True)
    assert said in str(error.value)
    assert len(error.value.lines) == 1


def test_the_first_rows_may_all_be_left_out_and_a_file_may_lack_the_column(
    tmp_path: Path, model: str
) -> None:
    entry = {"path": chats(tmp_path / "a.jsonl", 6000), "type": "openai", "where": "n = 5999"}
    assert fmtkit.train(config(tmp_path, model, [entry]), dry_run=True)
    (tmp_path / "many").mkdir()
    chats(tmp_path / "many" / "a.jsonl", 3)
    chats(tmp_path / "many" / "b.jsonl", 3, lang="en")
    entry = {"path": str(tmp_path / "many"), "type": "openai", "where": "lang = 'en'"}
    file = config(tmp_path, model, [entry])
    assert fmtkit.train(file, dry_run=True)
    made = planning.plan(file)
    train, _ = datasets.prepare(made, made.template_text())
    assert numbers(train[0].files) == [0, 1, 2]


def test_as_many_rows_as_steps_draw_are_converted_after_filtering(tmp_path: Path) -> None:
    source = chats(tmp_path / "a.jsonl", 1000)
    options = ConvertOptions(type="openai", where="n % 7 = 6", overwrite=True)
    out = tmp_path / "out"
    convert_first(4, options, lambda limited: convert_to(source, out, limited))
    report = json.loads((out / "report.json").read_text())
    assert report["rows_written"] >= 4
    assert report["rows_read"] < 1000
    assert report["rows_read"] == report["converted"] + report["filtered"]
