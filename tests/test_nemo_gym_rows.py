"""Rows for a Gym: the whole row as text from every kind of source, and who is asked about it."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fmtkit.core.tables import final_rows
from fmtkit.options.convert_options import RowOptions
from fmtkit.running.conversions import open_named
from fmtkit.running.pipeline import stream
from fmtkit.running.preparation import prepare
from fmtkit.training.data.rows import put_together
from fmtkit.work.engines import Threads

ROW = {"responses_create_params": {"input": "2+2?"}, "answer": "4", "level": 3}


def converted(path, **options):
    job = prepare(open_named(str(path)), RowOptions(type="nemo_gym", options=options))
    pieces = list(stream(job, engine=Threads(1)))
    return [row for piece in pieces for row in final_rows(piece.table).to_pylist()]


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_a_line_is_kept_as_it_was_written(tmp_path):
    line = '{"responses_create_params":{"input":"q","top_p":1e0},"x":[0.10,-0.0,12345678901234]}'
    found = converted(write(tmp_path / "a.jsonl", line))
    assert found[0]["nemo_gym_row"] == line


def test_rows_of_a_table_become_the_same_text(tmp_path):
    pq.write_table(pa.Table.from_pylist([ROW, ROW | {"level": 4}]), tmp_path / "a.parquet")
    found = converted(tmp_path / "a.parquet", server_name="math")
    assert [json.loads(row["nemo_gym_row"]) for row in found] == [ROW, ROW | {"level": 4}]
    assert {row["nemo_gym_server"] for row in found} == {"math"}


@pytest.mark.parametrize(
    ("reference", "server", "agent"),
    [
        (None, "fallback", None),
        ({"type": "responses_api_agents", "name": "a"}, "fallback", "a"),
        ({"type": "resources_servers", "name": "s"}, "s", None),
        ({"name": "s"}, "s", None),
        ({"type": "resources_servers"}, "fallback", None),
    ],
)
def test_a_reference_names_the_agent_or_the_server(tmp_path, reference, server, agent):
    line = json.dumps(ROW | {"agent_ref": reference})
    found = converted(write(tmp_path / "a.jsonl", line), server_name="fallback")[0]
    assert (found["nemo_gym_server"], found["nemo_gym_agent"]) == (server, agent)


def test_columns_that_clash_between_environments_are_left_to_the_row():
    datasets = pytest.importorskip("datasets")
    rows = [{"prompt": "p", "nemo_gym_row": "{}", "answer": a, "same": 1} for a in ("4", 4)]
    whole = put_together([datasets.Dataset.from_list([row]) for row in rows])
    assert whole.column_names == ["prompt", "nemo_gym_row", "same"]
    assert whole["same"][:] == [1, 1]
