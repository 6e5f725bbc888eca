"""JSON text in cells: rows and faults are those of the strict parser, and the kernel reads them."""

import csv
import itertools
import json
import random
import warnings
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fmtkit
from fmtkit.reading import json_cells, native

USER, BOT = (
    {"role": "user", "content": 'Why “ü” \\ "q"?\n\tYes.'},
    {"role": "assistant", "content": "Because."},
)
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": null}'}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "a": None}}}
CELLS = [
    json.dumps([USER, BOT]),
    json.dumps([USER, BOT], ensure_ascii=False),
    json.dumps([USER, BOT], indent=2),
    "  " + json.dumps([USER, BOT]) + " ",
    json.dumps([USER, {"role": "assistant", "content": None, "tool_calls": [CALL]}]),
    json.dumps([USER, {"role": "assistant", "content": "", "tool_calls": json.dumps([CALL])}]),
    json.dumps([{**USER, "name": None}, BOT]),
    json.dumps([{**USER, "weight": 1}, {**BOT, "other": float("nan")}]),
    json.dumps(
        [
            {
                "role": "user",
                "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
            },
            BOT,
        ]
    ),
    json.dumps([USER, BOT])[:-1],
    json.dumps([USER, BOT]) + ', "more": 1',
    json.dumps([USER, BOT]) + "]",
    json.dumps([USER, BOT]) + json.dumps([USER]),
    '[{"role": "user", "role": "system", "content": "twice"}, {"role": "assistant", "content": "x"}]',
    '[{"role": "user", "content": "raw\ttab"}, {"role": "assistant", "content": "x"}]',
    '[{"role": "user", "content": "half \\ud800"}, {"role": "assistant", "content": "x"}]',
    '[{"role": "user", "content": "pair \\ud83d\\ude00 \\u0000"}, {"role": "assistant", "content": "x"}]',
    "[" * 200 + "]" * 200,
    '{"role": "user", "content": "one message"}',
    "[]",
    "{}",
    "[null]",
    "no JSON",
    "",
    "[1" + "0" * 5000 + "]",
    '[{"role": "user", "content": 5}, {"role": "assistant", "content": "x"}]',
    '﻿[{"role": "user", "content": "a"}, {"role": "assistant", "content": "x"}]',
]
TOOLS = [None, json.dumps([TOOL]), "[]", json.dumps(TOOL), "none", json.dumps([json.dumps(TOOL)])]


def rows() -> list[dict[str, str | None]]:
    """Return each cell with each cell of tools, in an order that mixes good and bad ones."""
    found = [
        {"id": f"{i}", "messages": cell, "tools": tools, "note": "a null is no list: ["}
        for i, (cell, tools) in enumerate(itertools.product(CELLS, TOOLS))
    ]
    random.Random(3).shuffle(found)
    return found


def converted(source: Path, type_name: str = "openai") -> tuple[list, list]:
    rejects: list = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = fmtkit.table(source, type_name, rejects=rejects)
    return table.to_pylist(), [(r.row, r.code, r.column, r.message) for r in rejects]


@pytest.fixture(params=["jsonl", "parquet", "csv"])
def source(request, tmp_path: Path) -> Path:
    path = tmp_path / f"rows.{request.param}"
    if request.param == "parquet":
        pq.write_table(pa.Table.from_pylist(rows()), path, row_group_size=50)
    elif request.param == "csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, ["id", "messages", "tools", "note"])
            writer.writeheader()
            writer.writerows(rows())
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows()))
    return path


def test_the_rows_and_faults_are_those_of_the_strict_parser(source, monkeypatch):
    found = converted(source)
    monkeypatch.setattr(json_cells, "names_of", lambda _: frozenset())
    assert found == converted(source)
    assert len(found[0]) > 20
    assert len({code for _, code, *_ in found[1]}) > 3


@pytest.mark.skipif(native.kernel() is None, reason="there is no native kernel")
def test_the_kernel_reads_them(tmp_path):
    plain = [{"messages": json.dumps([USER, BOT])} for _ in range(50)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in plain))
    pq.write_table(pa.Table.from_pylist(plain), tmp_path / "rows.parquet")
    with (tmp_path / "rows.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["messages"], *([row["messages"]] for row in plain)])
    for name in ("rows.jsonl", "rows.parquet", "rows.csv"):
        report = fmtkit.convert(tmp_path / name, "openai", tmp_path / "out.jsonl", overwrite=True)
        assert report.as_dict()["tiers"]["fast_rows"] == 50


def test_what_is_beside_a_cell_stays_as_it_is_written():
    line = b' {"a" : 1.50e0, "messages" :"[{\\"x\\": 1}]", "b":[1, 2 ], "a": "twice" } '
    found = json_cells.in_line(line, {"messages"})
    assert found == ' {"a" : 1.50e0, "messages" :[{"x": 1}], "b":[1, 2 ], "a": "twice" }'
    for other in (
        b'{"messages": [1]}',
        b"[1]",
        b"",
        b'{"messages": "x"}',
        b'{"messages": "[1]"',
        b"\xff",
    ):
        assert json_cells.in_line(other, {"messages"}) is None


def test_a_cell_adds_no_key_to_its_row():
    line = json.dumps({"messages": '[1], "label": true', "label": False}).encode()
    assert json_cells.in_line(line, {"messages"}) is None
    assert json_cells.of_cells({"messages": '[1], "label": true'}, {"messages"}) is None
