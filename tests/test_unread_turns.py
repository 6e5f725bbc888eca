"""Columns that carry turns and are not read: named and counted, whatever the source; copies are not."""

import json
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
import runs
from hypothesis import given, settings
from hypothesis import strategies as st

import fmtkit
from fmtkit.columns.strict_kinds import value_of
from fmtkit.reading.lost_turns import CarriedKind, carried, looks_like_turns

ASKED = {"role": "user", "content": "Q"}
PAIR = {"question": "Q", "chosen": "good answer", "rejected": "bad answer"}
TURNS = {
    "history": [["earlier", "said"]],
    "messages": [ASKED, {"role": "assistant", "content": "another answer"}],
    "conversations": [{"from": "human", "value": "earlier"}],
    "context": "A paragraph to answer from.",
    "system_prompt": "Be brief.",
    "response_j": "a third answer",
    "systemInstruction": {"parts": [{"text": "Be brief."}]},
    "label": False,
    "rank": 2,
    "tools": [{"name": "f", "parameters": {"type": "object"}}],
    "my_own": [{"role": "user", "content": "earlier"}],
}
OTHERS = {
    "id": "x1",
    "prompt_id": "a1b2",
    "response_model": "m-7b",
    "score_chosen": 4.5,
    "source": "web",
    "meta": {"prompt": "template 3"},
    "tags": ["math", "easy"],
    "answer_length": 12,
    "text": "### Q\ngood answer",
}


def write(path: Path, rows: list[dict[str, object]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def sources(folder: Path, rows: list[dict[str, object]]) -> dict[str, object]:
    """Return the same rows as every kind of source."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    frame = pl.DataFrame([{n: row.get(n) for n in names} for row in rows], infer_schema_length=None)
    (folder / "rows.json").write_text(json.dumps(rows))
    frame.write_parquet(folder / "rows.parquet")
    cells = [
        {n: v if isinstance(v, str | None) else json.dumps(v) for n, v in row.items()}
        for row in frame.to_dicts()
    ]
    pl.DataFrame(cells).write_csv(folder / "rows.csv")
    return {
        "jsonl": write(folder / "rows.jsonl", rows),
        "json": str(folder / "rows.json"),
        "parquet": str(folder / "rows.parquet"),
        "csv": str(folder / "rows.csv"),
        "table": frame.to_arrow(),
    }


KINDS = ["jsonl", "json", "parquet", "csv", "table"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", TURNS)
def test_turns_that_are_not_read_are_counted_by_column(tmp_path, kind, name):
    rows = [PAIR, PAIR | {name: TURNS[name]}, PAIR | {name: None}, PAIR | {name: TURNS[name]}]
    report = fmtkit.convert(sources(tmp_path, rows)[kind], "intel")
    assert (report.converted, report.unread_columns) == (4, {name: 2})
    assert report.warnings["unread_turns"] == 2


@pytest.mark.parametrize("kind", KINDS)
def test_what_says_nothing_of_the_turns_is_no_finding(tmp_path, kind):
    report = fmtkit.convert(sources(tmp_path, [PAIR | OTHERS] * 3)[kind], "intel")
    assert (report.converted, report.unread_columns) == (3, {})
    assert set(report.ignored_columns) == set(OTHERS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_of_what_was_read_is_redundant(tmp_path, kind):
    answered = [ASKED, {"role": "assistant", "content": "good answer"}]
    copies = {"messages": answered, "prompt": " Q\n", "response": "good answer", "history": []}
    rows = [PAIR | copies, PAIR | copies | {"response": "good"}]
    report = fmtkit.convert(sources(tmp_path, rows)[kind], "intel")
    assert report.unread_columns == {"response": 1}


def test_messages_of_ultrafeedback_binarized_are_redundant(tmp_path):
    chosen = [ASKED, {"role": "assistant", "content": "c"}]
    rejected = [ASKED, {"role": "assistant", "content": "r"}]
    row = {
        "prompt": "Q",
        "prompt_id": "1",
        "chosen": chosen,
        "rejected": rejected,
        "messages": chosen,
        "score_chosen": 9.0,
        "score_rejected": 1.0,
    }
    source = write(tmp_path / "rows.jsonl", [row] * 4)
    for name in ("ultra", "argilla_chat", "chat_template.argilla_chat", "implicit_prompt"):
        report = fmtkit.convert(source, name)
        assert (report.converted, report.unread_columns) == (4, {}), name


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("name", ["history", "messages", "system", "label", "context"])
def test_a_column_that_starts_late_is_found(tmp_path, name, wide):
    row = PAIR | ({"meta": {"a": 1}} if wide else {})
    rows = [row] * 3000 + [row | {name: TURNS.get(name, "Be brief.")}] * 3 + [row] * 3000
    report = fmtkit.convert(write(tmp_path / "rows.jsonl", rows), "intel")
    assert report.converted == 6003
    assert report.unread_columns == ({} if name == "system" else {name: 3})


def test_workers_and_blocks_change_no_count(tmp_path):
    rows = [PAIR | ({"history": [["a", str(i)]]} if i % 3 else {}) for i in range(40_000)]
    source = write(tmp_path / "rows.jsonl", rows)
    counts = [fmtkit.convert(source, "intel", workers=n).unread_columns for n in (1, 3)]
    assert counts == [{"history": sum(bool(i % 3) for i in range(40_000))}] * 2


def test_values_of_mixed_kinds_reject_no_row(tmp_path):
    values = [1, "one", None, ["x"], {"role": "user"}, [["a", "b"]], True, [1, "a"], "", [[]]]
    source = write(tmp_path / "rows.jsonl", [PAIR | {"answer": value} for value in values])
    report = fmtkit.convert(source, "intel")
    assert (report.converted, report.quarantined) == (len(values), 0)
    assert report.unread_columns == {"answer": 4}


def test_a_row_that_is_not_converted_is_not_counted(tmp_path):
    bad = PAIR | {"chosen": "same", "rejected": "same", "history": TURNS["history"]}
    report = fmtkit.convert(write(tmp_path / "rows.jsonl", [PAIR, bad]), "intel")
    assert (report.quarantined, report.unread_columns) == (1, {})


def test_a_column_that_is_kept_or_read_under_another_name_is_no_finding(tmp_path):
    source = write(tmp_path / "rows.jsonl", [PAIR | {"system_prompt": "Be brief.", "label": True}])
    assert fmtkit.convert(source, "intel").unread_columns == {"label": 1, "system_prompt": 1}
    for options in (
        {"keep": "label,system_prompt"},
        {"keep": "all"},
        {"keep": "label", "map": {"system": "system_prompt"}},
    ):
        assert fmtkit.convert(source, "intel", **options).unread_columns == {}


def test_a_label_beside_a_completion_is_named_though_passing_through_keeps_it(tmp_path):
    row = {"prompt": "Q", "completion": "a bad answer", "label": False}
    source = write(tmp_path / "rows.jsonl", [row])
    for name in ("passthrough", "completion"):
        assert fmtkit.convert(source, name, method="sft").unread_columns == {"label": 1}
    assert fmtkit.convert(source, "passthrough").unread_columns == {}
    system = write(tmp_path / "chat.jsonl", [{"messages": [ASKED], "system": "Be brief."}])
    assert fmtkit.convert(system, "passthrough").unread_columns == {"system": 1}


def test_validate_and_the_terminal_name_the_columns(tmp_path, capsys):
    source = write(tmp_path / "rows.jsonl", [PAIR | {"history": TURNS["history"]}])
    found = fmtkit.validate(source, "intel").as_dict()
    assert found["unread_columns"] == {"history": 1}
    out = ["-o", str(tmp_path / "out.parquet")]
    for command, more in (("validate", []), ("convert", out)):
        done = runs.fmtkit(capsys, command, source, "--type", "intel", *more)
        assert done.code == 0
        assert "not read, rows by column" in done.err
        assert "1  history" in done.err


def test_the_history_of_alpaca_is_read(tmp_path):
    row = {"instruction": "And 3?", "output": "9", "history": [["1?", "1"], ["2?", "4"]]}
    source = write(tmp_path / "rows.jsonl", [row])
    (made,) = fmtkit.table(source, "alpaca").to_pylist()
    assert [m["content"] for m in made["prompt"]] == ["1?", "1", "2?", "4", "And 3?"]
    assert [m["role"] for m in made["prompt"]] == ["user", "assistant"] * 2 + ["user"]
    assert fmtkit.convert(source, "alpaca").unread_columns == {}


@pytest.mark.parametrize("kind", KINDS)
def test_alpaca_reads_the_history_of_every_source(tmp_path, kind):
    rows = [
        {"instruction": "i", "output": "o", "history": [["q", "a"]]},
        {"instruction": "j", "output": "p", "history": None},
    ]
    made = fmtkit.table(sources(tmp_path, rows)[kind], "alpaca").to_pylist()
    assert [len(row["prompt"]) for row in made] == [3, 1]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text("a [{\"'é\n", max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["role", "content", "value", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=200, deadline=None)
@given(st.lists(json_values, min_size=1, max_size=4), st.booleans())
def test_a_column_and_single_values_carry_the_same_texts(values, is_label):
    try:
        array = pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return
    column = pl.from_arrow(array)
    assert isinstance(column, pl.Series)
    found = carried(column, is_label=is_label).to_list()
    kind = CarriedKind(is_label=is_label)
    # Arrow fills a struct with nulls for the keys that a value lacks, and {} becomes one of them.
    alone = [[] if value is None else value_of(kind, value) for value in column.to_list()]
    assert [sorted(texts) for texts in found] == [sorted(texts) for texts in alone]


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("history", [["a", "b"]], True),
        ("human_ref_A", "text", True),
        ("rejectedResponse", "text", True),
        ("chosen_text", "text", True),
        ("anything", [{"from": "gpt", "value": "x"}], True),
        ("anything", [["a", "b"]], True),
        ("is_correct", True, True),
        ("label", "", False),
        ("prompt_id", "x", False),
        ("chosen_score", 3.5, False),
        ("score_chosen", 3.5, False),
        ("num_turns", 3, False),
        ("turns", 3, False),
        ("points", [["a", "b", "c"]], False),
        ("system_fingerprint", "fp", False),
        ("", "x", False),
    ],
)
def test_names_and_values_tell_turns_from_other_columns(name, value, told):
    assert looks_like_turns(name, [value]) is told


def test_a_table_of_the_library_warns_of_them(tmp_path):
    source = write(tmp_path / "rows.jsonl", [PAIR | {"history": TURNS["history"]}])
    with pytest.warns(fmtkit.UnreadTurnsWarning, match="history 1; use a type"):
        fmtkit.table(source, "intel")
    with pytest.warns(fmtkit.UnreadTurnsWarning):
        list(fmtkit.read(source, "intel"))


def test_inspect_finds_them_and_fails_on_them(tmp_path, capsys):
    rows = [PAIR, PAIR | {"system_prompt": "Be brief.", "history": TURNS["history"]}]
    source = write(tmp_path / "rows.jsonl", rows)
    (found,) = [f for f in fmtkit.inspect(source, "intel").findings if f.code == "unread_turns"]
    assert (found.count, found.details) == (1, {"history": 1, "system_prompt": 1})
    done = runs.fmtkit(capsys, "inspect", source, "-t", "intel", "--fail-on", "unread_turns")
    assert done.code == 1
    assert "unread_turns" in done.out + done.err


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([[["a", "b"]]], pa.large_list(pa.large_list(pa.large_string()))),
        ([[["a", "b"]]], pa.list_(pa.list_(pa.string(), 2))),
        ([[("key", "a value")]], pa.map_(pa.string(), pa.string())),
        ([b"a text"], pa.binary()),
        ([b"a text"], pa.large_binary()),
        (["a text"], pa.string_view()),
        (["a text"], pa.dictionary(pa.int8(), pa.string())),
    ],
)
def test_turns_of_every_arrow_type_are_found(values, dtype):
    columns = {name: [text] for name, text in PAIR.items()}
    table = pa.table(columns | {"history": pa.array(values, dtype)})
    assert fmtkit.convert(table, "intel").unread_columns == {"history": 1}
