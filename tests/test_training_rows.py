"""Rows reach the trainer in one shape, in a known order, each as often as its weight says."""

from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("datasets")

import tiny_training as tiny

from fmtkit.core.tables import TABLES
from fmtkit.training.data import rows
from fmtkit.training.data.tokenized_rows import identity_source
from fmtkit.training.planning.job import Job, Source


@pytest.fixture
def work(tmp_path):
    return tiny.make_job(tmp_path, "a/m", "dpo", "Preference")


def wide_file(folder, messages):
    schema = TABLES["Conversation"].schema(frozenset({"messages"}), wide=True, text=False)
    path = folder / "wide.parquet"
    pq.write_table(pa.Table.from_pylist([{"messages": messages}], schema=schema), path)
    return path


def test_a_narrow_table_is_left_as_it_is(work):
    train, _ = rows.load_rows(work, rows_runner("dpo"))
    assert train[0] == tiny.preference_rows()[0]


def rows_runner(method):
    from fmtkit.core.runner import find

    return find(method)


def sources(work: Job, *more: Source) -> Job:
    from dataclasses import replace

    return replace(work, train=more)


def test_absent_keys_of_a_wide_message_are_absent(tmp_path, work):
    call = '[{"function":{"name":"f","arguments":{"zip":"02139","n":1.0}}}]'
    messages = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "", "tool_calls": call},
    ]
    train, _ = rows.load_rows(
        sources(work, Source((str(wide_file(tmp_path, messages)),))), rows_runner("sft")
    )
    assert train[0]["messages"] == [
        {"role": "user", "content": "q"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"function": {"name": "f", "arguments": {"zip": "02139", "n": 1.0}}}],
        },
    ]


def test_text_stays_text_and_becomes_messages_for_trainers_that_take_nothing_else(tmp_path, work):
    path = tmp_path / "text.parquet"
    schema = TABLES["Preference"].schema(
        frozenset({"prompt", "chosen", "rejected"}), wide=False, text=True
    )
    row = {"prompt": "<s>Q: 1 ", "chosen": "A</s>", "rejected": "B</s>"}
    pq.write_table(pa.Table.from_pylist([row], schema=schema), path)
    work = sources(work, Source((str(path),)))
    train, _ = rows.load_rows(work, rows_runner("dpo"))
    assert train[0] == row
    train, _ = rows.load_rows(work, replace(rows_runner("dpo"), text_ends=""))
    assert train[0] == {
        "prompt": [{"role": "user", "content": "<s>Q: 1 "}],
        "chosen": [{"role": "assistant", "content": "A</s>"}],
        "rejected": [{"role": "assistant", "content": "B</s>"}],
        "chat_template_kwargs": {"chat_template": identity_source()},
    }


@pytest.mark.parametrize(("weight", "count"), [(1.0, 16), (2.0, 32), (0.5, 8), (1.25, 20)])
def test_a_weight_is_whole_passes_and_a_sample(work, weight, count):
    weighted = sources(work, Source(work.train[0].files, weight))
    train, _ = rows.load_rows(weighted, rows_runner("dpo"))
    assert len(train) == count
    again, _ = rows.load_rows(weighted, rows_runner("dpo"))
    assert train.to_list() == again.to_list()


def test_labels_are_spread_evenly_and_no_row_is_lost():
    from datasets import Dataset

    labels = [True] * 6 + [False] * 3
    data = Dataset.from_dict({"label": labels, "id": list(range(9))})
    mixed = rows.interleaved(data, 0)
    assert sorted(mixed["id"]) == list(range(9))
    for start in (0, 3, 6):
        assert sum(mixed["label"][start : start + 3]) == 2
    assert rows.interleaved(data, 0)["id"] == mixed["id"]
    assert rows.interleaved(data, 1)["id"] != mixed["id"]


def test_equal_rows_are_dropped_where_that_is_asked_for(work):
    from dataclasses import replace

    twice = sources(work, *work.train, *work.train)
    single = replace(twice, settings={"dataset_exact_deduplication": True})
    assert len(rows.load_rows(twice, rows_runner("dpo"))[0]) == 32
    assert len(rows.load_rows(single, rows_runner("dpo"))[0]) == 16
