"""A column that a type does not read changes no row, whatever its name and its Arrow type are."""

import csv
import io
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cache, partial
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fixture_cases import Case, cases, read_lines
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from image_samples import png

import fmtkit
from fmtkit.core.errors import FmtkitError, OptionError, SourceError
from fmtkit.core.tables import CARRIED, SPLIT_KEY, TABLES, TEXT_NAMES
from fmtkit.formats import registry, target_registry

TOKENIZER = Path(__file__).parents[1] / "fixtures" / "tokenizer"
TYPES = registry.converters()
CASES = [case for case in cases() if case.source.exists()]
Rows = list[dict[str, Any]]

LAYOUTS_OF_TARGETS = (
    *("instruction", "input", "output", "system", "conversations", "conversation", "contents"),
    *("kto_tag", "history", "chosen", "rejected", "label", "from", "value", "systemInstruction"),
)
INTERNAL = (
    *("__row", "__problem", "__warn_0", "__ranking", "__keep_", "__keep_x", "__watch_x"),
    *(
        "__flaw_prompt",
        "__flaw_messages",
        "rank",
        "level",
        "place",
        "draw",
        "row",
        "m",
        "t",
        "0",
        "1",
    ),
    *("scores_worse", "literal", "index", "column_0", SPLIT_KEY, CARRIED, f"{CARRIED}prompt"),
)
STRANGE = (
    "",
    ".",
    "a.b",
    "prompt.content",
    "é",
    "\u202e",
    "line\nbreak",
    "*",
    "^.*$",
    " ",
    "\0",
    '"',
)
NAMES = tuple(
    dict.fromkeys(
        (
            *(name for table in TABLES.values() for name in table.column_names()),
            *TEXT_NAMES.values(),
            *LAYOUTS_OF_TARGETS,
            *INTERNAL,
            *STRANGE,
        )
    )
)

_LIST = pa.list_(pa.null())
_TURNS = [{"role": "user", "content": "carried"}]
KINDS: dict[str, Callable[[int], pa.Array]] = {
    "text": lambda n: pa.array(["carried"] * n),
    "tools as text": lambda n: pa.array(['[{"name":"f","parameters":{}}]'] * n),
    "integer": lambda n: pa.array([3] * n),
    "flag": lambda n: pa.array([True, None] * n)[:n],
    "number": lambda n: pa.array([0.5] * n),
    "null": lambda n: pa.array([None] * n, pa.null()),
    "list of null": lambda n: pa.array([[], [None]] * n, _LIST)[:n],
    "struct of null": lambda n: pa.array([{"a": None}] * n, pa.struct([("a", pa.null())])),
    "struct": lambda n: pa.array([{"a": 1, "b": None}] * n),
    "list of texts": lambda n: pa.array([["a", "b"]] * n),
    "list of numbers": lambda n: pa.array([[1, 2]] * n),
    "turns": lambda n: pa.array([_TURNS] * n),
    "list of structs": lambda n: pa.array([[{"a": 1}]] * n),
    "bytes": lambda n: pa.array([b"carried"] * n),
    "other bytes": lambda n: pa.array([b"\xff\0"] * n),
    "large text": lambda n: pa.array(["carried"] * n, pa.large_string()),
    "text view": lambda n: pa.array(["carried"] * n, pa.string_view()),
    "dictionary": lambda n: pa.array(["carried"] * n).dictionary_encode(),
    "decimal": lambda n: pa.array([Decimal("1.50")] * n),
    "time": lambda n: pa.array([datetime(2026, 1, 2)] * n),
    "duration": lambda n: pa.array([timedelta(seconds=1)] * n),
    "unsigned": lambda n: pa.array([2**64 - 1] * n, pa.uint64()),
    "half": lambda n: pa.array([0.5] * n, pa.float16()),
    "map": lambda n: pa.array([[("k", None)]] * n, pa.map_(pa.string(), pa.null())),
    "fixed list": lambda n: pa.array([[1, 2]] * n, pa.list_(pa.int8(), 2)),
    "list view": lambda n: pa.array([["a"]] * n, pa.list_view(pa.string())),
    "runs": lambda n: pa.RunEndEncodedArray.from_arrays(
        pa.array([n], pa.int32()), pa.array(["carried"])
    ),
    "json": lambda n: pa.array(['{"a":1}'] * n, pa.json_()),
    "uuid": lambda n: pa.array([bytes(range(16))] * n, pa.uuid()),
    "fixed bytes": lambda n: pa.array([b"ab"] * n, pa.binary(2)),
}
JSON_KINDS = (
    *("text", "tools as text", "integer", "flag", "number", "null", "list of null", "struct"),
    *("struct of null", "list of texts", "list of numbers", "turns", "list of structs"),
)


@cache
def rows_of(case: Case) -> pa.Table | None:
    """Return the rows of a fixture that one Arrow table can hold."""
    table, rows = None, []
    for line in read_lines(case.source):
        try:
            rows.append(json.loads(line))
            table = pa.Table.from_pylist(rows)
        except (ValueError, TypeError, pa.ArrowException, AttributeError, OverflowError):
            del rows[-1:]
    return table


@cache
def read_by(name: str) -> frozenset[str]:
    """Return the columns that any converter of a type reads; empty for those that read whole rows."""
    own = [c for c in TYPES if c.name == name or name in c.aliases]
    if any(c.takes_rows or c.rows_by for c in own):
        return frozenset()
    return frozenset(c.path(p).partition(".")[0] for c in own for p in c.columns)


def _names(table: pa.Table) -> list[str]:
    return [f"c{i}" for i in range(table.num_columns)]


def as_lines(table: pa.Table, folder: Path) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    return path


def as_csv(table: pa.Table, folder: Path) -> Path:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(table.schema.names)
    for row in table.to_pylist():
        writer.writerow(
            "" if v is None else v if isinstance(v, str) else json.dumps(v) for v in row.values()
        )
    path = folder / "rows.csv"
    path.write_text(out.getvalue())
    return path


def as_parquet(table: pa.Table, folder: Path) -> Path:
    path = folder / "rows.parquet"
    pq.write_table(table, path)
    return path


def as_ipc(table: pa.Table, folder: Path) -> Path:
    path = folder / "rows.arrow"
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)
    return path


def as_frame(table: pa.Table, folder: Path) -> pl.DataFrame:
    # By number: polars gives a column without a name another one.
    frame = pl.from_arrow(table.rename_columns(_names(table)))
    assert isinstance(frame, pl.DataFrame)
    return frame.rename(dict(zip(_names(table), table.schema.names, strict=True)))


def as_dataset(table: pa.Table, folder: Path) -> Any:
    import datasets

    return datasets.Dataset(datasets.table.InMemoryTable(table))


LAYOUTS: dict[str, Callable[[pa.Table, Path], Any]] = {
    "lines": as_lines,
    "csv": as_csv,
    "parquet": as_parquet,
    "ipc": as_ipc,
    "table": lambda table, _: table,
    "rows": lambda table, _: table.to_pylist(),
    "polars": as_frame,
}
TEXTUAL = ("lines", "csv", "rows")
UNWRITABLE = (pa.ArrowNotImplementedError, pl.exceptions.PolarsError, pl.exceptions.PanicException)


def converted(source: Any, case: Case, folder: Path, **options: Any) -> Any:
    rejects: list[Any] = []
    table = fmtkit.table(source, **_called(case, options), rejects=rejects)
    return table, [(found.row, found.code) for found in rejects]


def _called(case: Case, options: Mapping[str, Any]) -> dict[str, Any]:
    template = options.get("template")
    named = f"{template}.{case.name}" if template else case.name
    return {"type": named, **case.settings, **{k: v for k, v in options.items() if k != "template"}}


def split(source: Any, case: Case, folder: Path, **options: Any) -> Any:
    out = folder / "split"
    called = _called(case, {"val_size": 0.5, "overwrite": True, "format": "parquet", **options})
    if "to" in options:
        del called["format"]
    fmtkit.convert(source, out=out, **called)
    return sorted(
        (path.parent.name, path.name, path.read_bytes() if path.suffix == ".jsonl" else _held(path))
        for path in out.rglob("*-*")
        if path.suffix in (".parquet", ".jsonl") and "_fmtkit" not in path.parts
    )


def _held(path: Path) -> Any:
    return json.dumps(pq.read_table(path).to_pylist(), default=str)


def validated(source: Any, case: Case, folder: Path) -> Any:
    found = fmtkit.validate(source, schema=True, **_called(case, {}))
    return [(item.row, item.code) for item in found.items]


def inspected(source: Any, case: Case, folder: Path, **options: Any) -> Any:
    survey = fmtkit.inspect(source, show_mask=3, **_called(case, options))
    assert survey.as_dict()
    return survey.rows_read, survey.rows, survey.roles, len(survey.shown)


def guessed(source: Any, case: Case, folder: Path) -> Any:
    fmtkit.inspect(source).as_dict()
    return None


TARGETS = (
    "alpaca",
    "openai-preference",
    "trl",
    "sharegpt",
    "messages-parquet",
    "prompt-completion",
)
USES: dict[str, Callable[..., Any]] = {
    "table": converted,
    "keep all": partial(converted, keep="all"),
    "text": partial(converted, template="chatml"),
    "kept text": partial(converted, template="chatml", keep="all"),
    "split": split,
    "split, kept": partial(split, keep="all"),
    "validate": validated,
    "inspect": inspected,
    "inspect text": partial(inspected, template="chatml"),
    "guess": guessed,
    **{
        f"to {name}": partial(converted, to=name)
        for name in TARGETS
        if name in target_registry.names()
    },
    **{
        f"split to {name}": partial(split, to=name, keep="all")
        for name in TARGETS
        if name in target_registry.names()
    },
}


def attempt(use: Callable[..., Any], source: Any, case: Case, folder: Path) -> Any:
    """Return what comes out, or the error that is one line."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return use(source, case, folder)
        except FmtkitError as error:
            return error


def without(found: Any, name: str) -> Any:
    if not isinstance(found, tuple) or not isinstance(found[0], pa.Table):
        return found
    table, rejects = found
    kept = [each for each in table.schema.names if each != name]
    return table.select(kept).to_pylist(), rejects


def check(case: Case, name: str, kind: str, layout: str, used: str, folder: Path) -> bool:
    """Return whether rows with a column were compared with the same rows without it."""
    rows, read = rows_of(case), read_by(case.name)
    if rows is None or not read or name in {*read, *rows.schema.names}:
        return False
    if layout in TEXTUAL and kind not in JSON_KINDS:
        return False
    more = rows.append_column(pa.field(name, KINDS[kind](1).type), KINDS[kind](rows.num_rows))
    make, use = {**LAYOUTS, "datasets": as_dataset}[layout], USES[used]
    for part in ("a", "b"):
        (folder / part).mkdir()
    try:
        plain, carrying = make(rows, folder / "a"), make(more, folder / "b")
    except UNWRITABLE:
        return False
    expected = attempt(use, plain, case, folder / "a")
    found = attempt(use, carrying, case, folder / "b")
    keeps = "kept" in used or "keep" in used or used.startswith("split to") or _keeps(case)
    if isinstance(found, FmtkitError):
        assert "\n" not in str(found).strip() or isinstance(expected, FmtkitError)
        allowed = keeps or layout == "csv" or isinstance(expected, FmtkitError)
        assert allowed, found
        return True
    if keeps and kind == "unsigned" and used in ("keep all", "kept text", "table", "text"):
        # A kept number beyond a signed one of 64 bits makes its row a bad one, by that code and no other.
        bad = {number for number, _ in expected[1]}
        sound = set(range(rows.num_rows)) - bad
        assert {*found[1]} - {*expected[1]} == {(row, "number_overflow") for row in sound}
        return True
    if keeps and (kind in ("other bytes", "uuid", "unsigned") or used.startswith(("split", "to"))):
        # Bytes cannot be kept, and what a layout has no place for makes its row one of no_place.
        return True
    if used.startswith("split") or used == "guess":
        assert isinstance(expected, FmtkitError) or len(found or ()) == len(expected or ())
        return True
    assert without(found, name) == without(expected, name)
    return True


def _keeps(case: Case) -> bool:
    return any(c.keeps for c in TYPES if c.name == case.name)


DRAWN = given(
    case=st.sampled_from(CASES),
    name=st.sampled_from(NAMES),
    kind=st.sampled_from(sorted(KINDS)),
    layout=st.sampled_from(sorted(LAYOUTS)),
    used=st.sampled_from(sorted(USES)),
)


@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.filter_too_much],
)
@DRAWN
def test_a_carried_column_changes_no_row(tmp_path_factory, case, name, kind, layout, used) -> None:
    assume(check(case, name, kind, layout, used, tmp_path_factory.mktemp("carried")))


@pytest.mark.stress  # A hunt, drawn anew each time: what it finds gets a test of its own.
@settings(max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@DRAWN
def test_no_carried_column_changes_a_row(tmp_path_factory, case, name, kind, layout, used) -> None:
    assume(check(case, name, kind, layout, used, tmp_path_factory.mktemp("carried")))


@pytest.mark.stress
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(
    case=st.sampled_from(CASES),
    name=st.sampled_from(NAMES),
    kind=st.sampled_from(sorted(KINDS.keys() - {"list view"})),  # `datasets` has no list views
    used=st.sampled_from(sorted(USES)),
)
def test_no_column_of_a_dataset_changes_a_row(tmp_path_factory, case, name, kind, used) -> None:
    assume(check(case, name, kind, "datasets", used, tmp_path_factory.mktemp("carried")))


ONE = pa.table({"question": ["q", "r"], "chosen": ["a", "b"], "rejected": ["c", "d"]})


def with_column(name: str, values: Sequence[Any], dtype: pa.DataType | None = None) -> pa.Table:
    return ONE.append_column(name, pa.array(values, dtype))


@pytest.mark.parametrize("tools", ["a hammer", '[{"name":"f"}]'])
@pytest.mark.parametrize("keep", [None, "all"])
def test_a_column_of_tools_that_the_type_does_not_read_is_not_rendered(tools, keep):
    rows = [{"question": "q", "answer": "x #### 4"}]
    plain = fmtkit.table(rows, "chatml.gsm8k", method="grpo", keep=keep)
    table = fmtkit.table([{**rows[0], "tools": tools}], "chatml.gsm8k", method="grpo", keep=keep)
    assert table["prompt"] == plain["prompt"]
    assert "tools" not in table.schema.names


def test_a_kept_column_cannot_have_the_name_of_tools():
    with pytest.raises(fmtkit.FmtkitError, match=r"--keep tools: .* rename it"):
        fmtkit.table(with_column("tools", ["x", "y"]), "intel", keep="tools")


@pytest.mark.parametrize(
    "name", ["label", "completions", "input_ids", "replies", "chosen", "segments"]
)
@pytest.mark.parametrize("template", ["", "chatml."])
def test_columns_of_prompts_are_not_those_of_other_tables(name, template):
    rows = [{"question": "q", "answer": "x #### 4", name: "mine"}]
    survey = fmtkit.inspect(rows, f"{template}gsm8k", method="grpo", show_mask=1)
    assert survey.shown[0].details[name] == "mine"
    assert survey.rows == 1


@pytest.mark.parametrize(
    "to", ["alpaca", "openai-preference", "sharegpt-preference", "gemini", "hh-rlhf"]
)
def test_a_split_does_not_depend_on_the_layout(tmp_path, to):
    rows = [{"question": f"q{i}", "chosen": f"a{i}", "rejected": f"b{i}"} for i in range(8)]
    for out, layout in (("plain", None), ("to", to)):
        fmtkit.convert(rows, "intel", tmp_path / out, to=layout, val_size=0.5, format="jsonl")
    held = [
        {word for word in ("a0", "a1", "a2", "a3", "a4", "a5", "a6", "a7") if word in text}
        for out in ("plain", "to")
        if (text := "".join(p.read_text() for p in (tmp_path / out / "data").glob("validation-*")))
    ]
    assert held[0] == held[1]
    assert 0 < len(held[0]) < 8


def test_rows_of_segments_are_split_by_what_comes_before_the_reply(tmp_path):
    rows = [{"question": f"q{i // 2}", "answer": f"a{i}"} for i in range(12)]
    fmtkit.convert(rows, "alpaca_chat.load_qa", tmp_path / "out", val_size=0.5, format="jsonl")
    sides = [
        {
            json.loads(line)["segments"][0]["text"]
            for path in (tmp_path / "out" / "data").glob(f"{side}-*")
            for line in path.open()
        }
        for side in ("train", "validation")
    ]
    assert all(sides)
    assert not sides[0] & sides[1]


TOKENS = {"attention_mask": [1, 1, 0], "labels": [-100, 2, -100], "prompt_length": 1}


@pytest.mark.parametrize(
    ("limits", "left"), [({"max_length": 1}, 0), ({"max_length": 2}, 1), ({"min_length": 3}, 0)]
)
def test_rows_of_tokens_are_measured_by_their_tokens(limits, left):
    rejects: list[Any] = []
    row = {"input_ids": [1, 2, 3], **TOKENS}
    dropped = {"on_overlong": "drop"} if "max_length" in limits else {}
    table = fmtkit.table(
        [row], "passthrough", tokenizer=str(TOKENIZER), rejects=rejects, **limits, **dropped
    )
    assert table.num_rows == left


_NULL = pa.null()
SOUND = {
    "prompt_pairs": {"system": [None], "prompt": ["q"], "completion": ["a"], "label": [True]},
    "alpaca": {"instruction": ["q"], "output": ["a"], "input": [None], "history": [[]]},
    "intel": {"system": [None], "question": ["q"], "chosen": ["a"], "rejected": ["b"]},
}
BAD = {
    "stepwise_supervised": {"prompt": ["Q"], "completions": [[]], "labels": [[]]},
    "input_output": {"segments": [[]]},
    "intel": {"question": ["q"], "chosen": [None], "rejected": ["a"]},
    "openai": {"messages": [[]]},
    "nectar": {"prompt": ["q"], "answers": [[]]},
    "argilla_chat": {"chosen": [[]], "rejected": [[]]},
    "sharegpt": {"conversations": [[None]]},
}


@pytest.mark.parametrize(
    ("name", "columns", "sound"),
    [*((*item, 1) for item in SOUND.items()), *((*item, 0) for item in BAD.items())],
)
def test_columns_and_lists_of_arrows_null_are_read_as_nulls(name, columns, sound):
    rejects: list[Any] = []
    table = fmtkit.table(pa.table(columns), name, rejects=rejects)
    assert (table.num_rows, len(rejects)) == (sound, 1 - sound)
    of_lines: list[Any] = []
    lines = fmtkit.table(pa.table(columns).to_pylist(), name, rejects=of_lines)
    assert lines.equals(table)
    assert [r.code for r in rejects] == [r.code for r in of_lines]


def test_a_bad_row_beside_a_list_of_nulls_is_quarantined(tmp_path):
    rejects: list[Any] = []
    table = with_column("id", [[None], [None]]).set_column(1, "chosen", pa.array(["a", None]))
    assert fmtkit.table(table, "intel", rejects=rejects).num_rows == 1
    assert [r.code for r in rejects] == ["null_field"]


@pytest.mark.parametrize("name", ["", "*", "^.*$", "é\n", "carried: x", "__keep_0"])
def test_a_kept_column_may_have_any_name(name):
    table = fmtkit.table(with_column(name, ["x", "y"]), "intel", keep="all")
    assert [row[name] for row in table.to_pylist()] == ["x", "y"]


def test_two_columns_of_one_name_are_refused():
    with pytest.raises(SourceError, match="two columns are named 'x'"):
        fmtkit.table(pa.table([["q"], ["a"], ["b"]], names=["x", "x", "y"]), "intel")


@pytest.mark.parametrize("keep", ["input", "all"])
def test_a_kept_column_named_as_one_of_the_layout_is_not_written_over_it(keep):
    table = with_column("input", ["x", "y"])
    if keep == "input":
        with pytest.raises(fmtkit.FmtkitError, match=r"--keep input: .* rename it"):
            fmtkit.table(table, "intel", to="openai-preference", keep=keep)
        return
    made = fmtkit.table(table, "intel", to="openai-preference", keep=keep)
    assert made.equals(fmtkit.table(ONE, "intel", to="openai-preference"))


_IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


@pytest.mark.parametrize("name", ["images", "picture"])
@pytest.mark.parametrize("dtype", [_IMAGE, pa.list_(_IMAGE)])
@pytest.mark.parametrize("keep", [None, "all"])
def test_a_row_with_an_image_has_it_and_one_with_a_sound_is_quarantined(
    tmp_path, name, dtype, keep
):
    for data, count in ((png(), 2), (b"RIFF\0\0\0\0WAVEfmt \xff", 1)):
        held = {"bytes": data, "path": None}
        sound = name.replace("images", "audios") if count == 1 else name
        table = with_column(sound, [[held] if pa.types.is_list(dtype) else held, None], dtype)
        path = as_parquet(table, tmp_path)
        rejects: list[Any] = []
        made = fmtkit.table(path, "intel", keep=keep, rejects=rejects)
        assert made.num_rows == count
        if count == 2:
            assert made.column("images").to_pylist() == [[held], []]
        else:
            assert [(r.row, r.code) for r in rejects] == [(0, "unsupported")]
        assert "object at 0x" not in str(fmtkit.inspect(path).as_dict())


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("helpsteer", {"attribute": 0.5}),
        ("prm800k", {"paths": 2}),
        ("ultrafeedback", {"score": []}),
        ("gpteacher", {"style": {"a": 1}}),
        ("openai", {"drop_system_message": "perhaps"}),
        ("openai", {"roles": {"user": 5}}),
        ("openai", {"message_field_role": None}),
        ("stepwise_supervised", {"max_completion_length": [1]}),
        ("helpsteer", {"threshold": "much"}),
    ],
)
def test_an_option_of_another_kind_is_an_option_error(name, options):
    case = next(case for case in CASES if case.name == name)
    with pytest.raises(OptionError, match="give"):
        fmtkit.table(case.source, name, options=options)


def test_a_null_option_is_left_out():
    row = {"instruction": "i", "output": "o"}
    plain = fmtkit.table([row], "user_defined.default", method="sft")
    options = {"system_prompt": None, "format": None}
    assert fmtkit.table([row], "user_defined.default", method="sft", options=options).equals(plain)


def test_a_number_that_is_no_index_is_a_fault_of_its_row():
    steps = [{"completions": [{"text": "a", "rating": 1}], "chosen_completion": 2**63 - 1}]
    rejects: list[Any] = []
    row = {"question": {"problem": "p"}, "label": {"steps": steps}}
    assert not fmtkit.table([row], "prm800k", rejects=rejects).num_rows
    assert [r.code for r in rejects] == ["value_error"]


@pytest.mark.parametrize("name", ["\0", "a\0", "\0a", "a\0b"])
@pytest.mark.parametrize("keep", ["all", "named"])
def test_a_carried_column_keeps_a_name_with_nul_from_every_layout(tmp_path, name, keep):
    table = with_column(name, ["x", "y"])
    batch = table.to_batches()[0]
    sources = [batch, *(make(table, tmp_path) for make in LAYOUTS.values())]
    for source in sources:
        made = fmtkit.table(source, "intel", keep="all" if keep == "all" else (name,))
        assert made.schema.names[-1] == name
        assert made[name].to_pylist() == ["x", "y"]


@pytest.mark.parametrize("name", ["messages", "anything"])
@pytest.mark.parametrize("number", [2**63 - 1, 2**63, 2**64 - 1])
def test_a_kept_unsigned_number_is_kept_exactly_or_its_row_is_bad(name, number):
    rows = [{"instruction": "i", "input": "", "output": f"o{i}", "history": []} for i in range(2)]
    table = pa.Table.from_pylist(rows).append_column(name, pa.array([1, number], pa.uint64()))
    rejects: list[Any] = []
    made = fmtkit.table(table, "alpaca", keep="all", rejects=rejects)
    fits = number < 2**63
    assert made[name].to_pylist() == ([1, number] if fits else [1])
    assert [(one.row, one.code) for one in rejects] == ([] if fits else [(1, "number_overflow")])
