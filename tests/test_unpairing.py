"""Pairs for a method that takes single replies: taken apart as TRL does, and counted."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import tiny_training as tiny
import yaml
from datasets import Dataset
from trl import unpair_preference_dataset

import fmtkit
from fmtkit.core.errors import OptionError
from fmtkit.core.tables import TABLES, steps_to, table_for
from fmtkit.formats.registry import tables_of
from fmtkit.options.convert_options import ConvertOptions
from fmtkit.training import train
from fmtkit.training.data.convert_config import convert_config
from fmtkit.training.planning import plan as planning

PAIRS = [
    {"question": f"q{i}", "chosen": f"good {i}", "rejected": f"bad {i}", "system": "s" * (i % 2)}
    for i in range(5)
]


def write(path: Path, rows: list[dict[str, object]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def as_set(rows: list[dict[str, object]]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


@pytest.mark.parametrize("method", ["kto", "bco"])
def test_pairs_become_the_rows_that_trl_makes_of_them(tmp_path, method):
    source = write(tmp_path / "pairs.jsonl", [row | {"id": i} for i, row in enumerate(PAIRS)])
    pairs = fmtkit.table(source, "intel", keep="id")
    rows = fmtkit.table(source, "intel", method=method, keep="id")
    expected = unpair_preference_dataset(Dataset(pairs))
    assert as_set(rows.to_pylist()) == as_set(expected.to_list())
    assert set(rows.column_names) == set(expected.column_names)


def test_a_liked_reply_stands_before_its_disliked_one(tmp_path):
    source = write(tmp_path / "pairs.jsonl", PAIRS)
    rows = fmtkit.table(source, "intel", method="kto").to_pylist()
    assert [row["label"] for row in rows] == [True, False] * 5
    said = [row["completion"][0]["content"] for row in rows]
    assert said == [text for i in range(5) for text in (f"good {i}", f"bad {i}")]


def test_the_ledger_counts_the_pairs_that_were_taken_apart(tmp_path):
    bad = {"question": "q", "chosen": "same", "rejected": "same"}
    source = write(tmp_path / "pairs.jsonl", [*PAIRS, bad])
    report = fmtkit.convert(source, "intel", tmp_path / "out.parquet", method="kto")
    assert (report.table, report.converted, report.quarantined) == ("Unpaired", 5, 1)
    assert (report.unpaired, report.rows_written) == (5, 10)
    assert pq.read_metadata(tmp_path / "out.parquet").num_rows == 10
    assert fmtkit.convert(source, "intel").unpaired == 0


@pytest.mark.parametrize("policy", ["best-worst", "all"])
def test_a_ranking_is_paired_and_then_taken_apart(tmp_path, policy):
    answers = [{"answer": f"a{n}", "rank": n} for n in (1, 2, 3)]
    source = write(tmp_path / "ranked.jsonl", [{"prompt": "p", "answers": answers}])
    pairs = fmtkit.table(source, "nectar", options={"pairs": policy})
    rows = fmtkit.table(source, "nectar", method="kto", options={"pairs": policy})
    assert as_set(rows.to_pylist()) == as_set(unpair_preference_dataset(Dataset(pairs)).to_list())


def test_a_canonical_ranking_is_paired_for_a_method_that_takes_none(tmp_path):
    replies = [[{"role": "assistant", "content": text}] for text in "ab"]
    row = {"prompt": [{"role": "user", "content": "p"}], "replies": replies, "scores": [1.0, 2.0]}
    source = write(tmp_path / "ranking.jsonl", [row])
    assert fmtkit.convert(source, "passthrough").table == "Ranking"
    assert fmtkit.convert(source, "passthrough", method="dpo").table == "Preference"
    report = fmtkit.convert(source, "passthrough", method="kto")
    assert (report.table, report.unpaired, report.rows_written) == ("Unpaired", 1, 2)


def test_tools_and_several_messages_of_a_reply_stay_with_both_rows(tmp_path):
    call = [{"type": "function", "function": {"name": "f", "arguments": {"zip": "02139"}}}]
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    asked = {"role": "user", "content": "q"}
    row = {
        "chosen": [asked, {"role": "assistant", "content": "", "tool_calls": call}],
        "rejected": [asked, {"role": "assistant", "content": "no"}],
        "tools": tools,
    }
    source = write(tmp_path / "pairs.jsonl", [row])
    table = fmtkit.table(source, "chat_template.argilla_chat", method="kto", as_="messages")
    rows = table.to_pylist()
    assert [json.loads(row["tools"]) for row in rows] == [tools, tools]
    assert json.loads(rows[0]["completion"][0]["tool_calls"]) == call
    assert table.column_names == ["prompt", "completion", "label", "tools"]


def test_finished_text_is_taken_apart_as_text(tmp_path):
    rows = [{"prompt": "p ", "chosen": "c", "rejected": "r"}]
    source = write(tmp_path / "pairs.jsonl", rows)
    made = fmtkit.table(source, "passthrough", method="kto").to_pylist()
    assert made == [
        {"prompt": "p ", "completion": "c", "label": True},
        {"prompt": "p ", "completion": "r", "label": False},
    ]


def test_a_column_that_unpairing_makes_is_not_kept_over_it(tmp_path):
    source = write(tmp_path / "pairs.jsonl", [row | {"label": 3} for row in PAIRS])
    with pytest.raises(OptionError, match="the table has a column of that name"):
        fmtkit.convert(source, "intel", method="kto", keep="label")
    assert fmtkit.table(source, "intel", keep="label")["label"].to_pylist() == [3] * 5
    kept = fmtkit.table(source, "intel", method="kto", keep="all")
    assert kept["label"].to_pylist() == [True, False] * 5


def test_labelled_rows_come_before_pairs_where_a_file_has_both(tmp_path):
    both = {"prompt": "p", "completion": "c", "label": False, "chosen": "c", "rejected": "r"}
    source = write(tmp_path / "both.jsonl", [both])
    report = fmtkit.convert(source, "prompt_pairs", method="kto")
    assert (report.unpaired, report.rows_written) == (0, 1)


def test_a_config_of_kto_converts_pairs(tmp_path):
    config = {
        "rl": "kto",
        "datasets": [{"path": write(tmp_path / "pairs.jsonl", PAIRS), "type": "intel"}],
    }
    (tmp_path / "kto.yaml").write_text(yaml.safe_dump(config))
    (report,) = convert_config(
        tmp_path / "kto.yaml", (), tmp_path / "out.parquet", ConvertOptions(type=None)
    )
    assert (report.table, report.unpaired, report.rows_written) == ("Unpaired", 5, 10)


def test_every_method_says_what_each_table_becomes_for_it():
    reached = {
        method: {table for table in TABLES if table_for(table, tables_of(method))}
        for method in ("kto", "dpo", "sft")
    }
    assert reached["kto"] == {"Unpaired", "Preference", "Ranking"}
    assert reached["dpo"] == {"Preference", "Ranking"}
    assert reached["sft"] == {"Conversation", "Completion", "Segments"}
    assert steps_to("Ranking", tables_of("kto")) == 2


def test_the_plan_of_kto_takes_a_type_of_pairs(tmp_path):
    datasets = [{"path": write(tmp_path / "pairs.jsonl", PAIRS), "type": "intel"}]
    made = planning.plan({"rl": "kto", "base_model": "a/m", "datasets": datasets})
    assert made.datasets[0].table == "Unpaired"
    with pytest.raises(OptionError, match="type openai makes Conversation, but kto takes Unpaired"):
        planning.plan({"rl": "kto", "datasets": [{"path": "x", "type": "openai"}]}, partial=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("type", "method", "unpaired"),
    [("chatml.intel", "kto", 8), ("implicit_prompt", "kto", 8), ("implicit_prompt", "dpo", 0)],
)
def test_pairs_train_with_the_real_trainer(tmp_path, type, method, unpaired):
    rows = [
        {"question": f"red {i}", "chosen": f"red apple {i}", "rejected": f"red river {i}"}
        for i in range(8)
    ]
    keys = {
        **tiny.STEP,
        "base_model": tiny.make_model(tmp_path / "model"),
        "rl": method,
        "max_steps": 2,
        "output_dir": str(tmp_path / "run"),
        "datasets": [{"path": write(tmp_path / "pairs.jsonl", rows), "type": type}],
    }
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(keys))
    said: list[str] = []
    assert train(tmp_path / "run.yaml", say=said.append).exit_code == 0
    report = json.loads((tmp_path / "run" / "data" / "00" / "report.json").read_text())
    assert report["unpaired"] == unpaired
    notes = [line for line in said if "pairs were split for kto" in line]
    assert bool(notes) == bool(unpaired)
    metrics = (tmp_path / "run" / "metrics.jsonl").read_text()
    assert '"loss"' in metrics
