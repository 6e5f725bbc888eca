"""Tools and calls that a table stores as structs: the same rows as from JSON lines."""

import json

import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import fmtkit
from fmtkit.reading import native


def tool(name, *arguments, **more):
    properties = {argument: {"type": "string", "description": argument} for argument in arguments}
    parameters = {"type": "object", "properties": properties, **more}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def chat(name, tools, **arguments):
    call = {"type": "function", "function": {"name": name, "arguments": arguments}}
    return {
        "messages": [
            {"role": "user", "content": "do"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": "done", "name": name},
            {"role": "assistant", "content": "Well."},
        ],
        "tools": tools,
    }


ROWS = [
    chat("a", [tool("a", "x", required=["x"])], x="1"),
    # `z` is defined by its tool: this null was written.
    chat("b", [tool("b", "y", "z"), tool("a", "x")], y={"deep": "2", "list": ["1", None]}, z=None),
    chat("a", [tool("a", "x", "w")], x="3"),
]
PREFERENCES = [
    {"prompt": row["messages"][:1], "chosen": row["messages"][1:2], "tools": row["tools"]}
    | {"rejected": [{"role": "assistant", "content": "no"}]}
    for row in ROWS
]


def _file(write, name):
    def source(rows, folder):
        write(pa.Table.from_pylist(rows), folder / name)
        return str(folder / name)

    return source


SOURCES = {
    "parquet": _file(pq.write_table, "t.parquet"),
    "arrow": _file(pyarrow.feather.write_feather, "t.arrow"),
    "table": lambda rows, _: pa.Table.from_pylist(rows),
    "polars": lambda rows, _: pl.DataFrame(rows, infer_schema_length=None),
    "datasets": lambda rows, _: pytest.importorskip("datasets").Dataset.from_list(rows),
}


def converted(source, type, out):
    report = fmtkit.convert(source, type, out)
    return out.read_text(), report.warnings.get("filled_keys", 0)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(
    ("type", "rows"),
    [("openai", ROWS), ("passthrough", ROWS), ("passthrough", PREFERENCES)],
    ids=["openai", "passthrough", "pairs"],
)
def test_structs_of_tools_and_calls_become_what_json_lines_do(tmp_path, type, rows, source):
    lines = tmp_path / "rows.jsonl"
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
    wanted, none = converted(str(lines), type, tmp_path / "wanted.jsonl")
    found, filled = converted(SOURCES[source](rows, tmp_path), type, tmp_path / "found.jsonl")
    assert found == wanted
    assert (none, filled) == (0, 3)
    assert '"z":null' in wanted


@pytest.mark.parametrize("form", ["lines", "written as a table", *SOURCES])
@pytest.mark.parametrize(
    ("type", "rows"),
    [("openai", ROWS), ("passthrough", ROWS), ("passthrough", PREFERENCES)],
    ids=["openai", "passthrough", "pairs"],
)
def test_rows_and_counts_are_the_same_without_the_kernel(tmp_path, monkeypatch, type, rows, form):
    """JSON lines that hold the null keys of a table, as pandas writes them, are read alike too."""
    if form in SOURCES:
        source = SOURCES[form](rows, tmp_path)
    else:
        held = rows if form == "lines" else pa.Table.from_pylist(rows).to_pylist()
        source = str(tmp_path / "held.jsonl")
        (tmp_path / "held.jsonl").write_text("".join(json.dumps(row) + "\n" for row in held))
    made = []
    for kernel in ("1", "0"):
        monkeypatch.setenv(native.VARIABLE, kernel)
        made.append(converted(source, type, tmp_path / f"{kernel}.jsonl"))
    assert made[0] == made[1]
    assert made[0][0].count("\n") == len(rows)
