"""Conversations and tools in columns: the kernel reads them as lines, with the rows of the strict parser."""

import json
import random
from datetime import date
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fixture_cases import cases, read_lines

import fmtkit
from fmtkit.core.errors import RejectedRowsWarning
from fmtkit.reading import native

pytestmark = pytest.mark.filterwarnings(
    f"ignore::{RejectedRowsWarning.__module__}.RejectedRowsWarning"
)

TEXTS = [
    "plain", "", " ", "\n", 'a "quoted" \\ text', "\x00\x01\x1f\x7f", "é 漢字 🙂", "\u2028 </s> <|im_end|>",
    "x" * 63, "y" * 64, "z" * 65 + "\t", '"' * 130, "q" * 5000 + "\\" * 200 + "\n", "null", "1", "[]", '{"a":1}',
]  # fmt: skip
REALS = [
    0.0,
    -0.0,
    1.0,
    -2.5,
    0.1,
    1 / 3,
    1e14,
    1e15,
    1e16,
    1e-4,
    9e-5,
    1e300,
    float("nan"),
    float("inf"),
    123456789012345.6,
]
WHOLE = [0, 1, -1, 2**31, -(2**63), 2**63 - 1, 2**53 + 1, 7]


def some(draw, values, nulls=0.15):
    """Return one of some values, or null."""
    return None if draw.random() < nulls else draw.choice(values)


def arguments(draw):
    made = {
        "x": some(draw, TEXTS),
        "n": some(draw, WHOLE),
        "deep": {"a": some(draw, TEXTS), "b": [some(draw, TEXTS)]},
    }
    kept = draw.sample(sorted(made), draw.randint(0, 3))
    return {name: made[name] for name in kept}


def turn(draw):
    said = {
        "role": draw.choice(
            ["user", "assistant", "system", "tool", "nobody"][: draw.choice([2, 4, 5])]
        )
    }
    said["content"] = some(draw, TEXTS)
    if draw.random() < 0.3:
        said["name"] = some(draw, TEXTS)
    if draw.random() < 0.3:
        called = {"name": draw.choice("abc"), "arguments": arguments(draw)}
        said["tool_calls"] = [
            {"id": some(draw, ["1", "2"]), "type": "function", "function": called}
        ]
    if draw.random() < 0.1:
        said["weight"] = some(draw, [0, 1])
    if draw.random() < 0.1:
        said["reasoning_content"] = some(draw, TEXTS)
    return said


def tool(draw):
    properties = {
        name: {"type": "string", "description": some(draw, TEXTS)}
        for name in draw.sample("xnd", draw.randint(0, 3))
    }
    parameters = {"type": "object", "properties": properties, "minimum": some(draw, [0.5, 1.0])}
    return {"type": "function", "function": {"name": draw.choice("abc"), "parameters": parameters}}


def rows_of(draw, count):
    rows = []
    for number in range(count):
        turns = [turn(draw) for _ in range(draw.randint(0, 5))]
        if draw.random() < 0.6:
            turns = [
                {"role": "user", "content": "hi"},
                *turns,
                {"role": "assistant", "content": f"yes {number}"},
            ]
        rows.append(
            {
                "messages": None if draw.random() < 0.05 else turns,
                "tools": some(draw, [[tool(draw) for _ in range(draw.randint(0, 3))]]),
                "score": some(draw, REALS),
                "id": some(draw, WHOLE),
                "ok": some(draw, [True, False]),
                "tags": some(draw, [[], ["a", None, "b"]]),
            }
        )
    return rows


def large(dtype):
    """Return a type with 64-bit offsets."""
    if pa.types.is_string(dtype):
        return pa.large_string()
    if pa.types.is_list(dtype):
        return pa.large_list(large(dtype.value_type))
    if pa.types.is_struct(dtype):
        return pa.struct([field.with_type(large(field.type)) for field in dtype])
    return dtype


def outcome(source, type, out, **options):
    """Convert, and return everything that is said of the rows."""
    report = fmtkit.convert(source, type, out, max_errors="100%", overwrite=True, **options)
    bad = out.with_suffix(".quarantine.jsonl")
    rejects = [json.loads(line) for line in bad.read_text().splitlines()] if bad.exists() else []
    bad.unlink(missing_ok=True)
    return (
        out.read_text() if out.exists() else None,
        rejects,
        dict(report.warnings),
        report.rows_written,
    )


@pytest.mark.parametrize("seed", range(12))
def test_rows_rejects_and_counts_are_those_of_the_strict_parser(tmp_path, monkeypatch, seed):
    draw = random.Random(seed)
    table = pa.Table.from_pylist(rows_of(draw, 60))
    if seed % 3 == 1:
        fields = [field.with_type(large(field.type)) for field in table.schema]
        table = table.cast(pa.schema(fields))
    source = table.slice(draw.randint(0, 5), 50)
    if seed % 2:
        pq.write_table(source, tmp_path / "rows.parquet", row_group_size=17)
        source = str(tmp_path / "rows.parquet")
    options = [
        ("openai", {}),
        ("passthrough", {}),
        ("openai", {"keep": ["score", "id", "tags", "ok"]}),
        ("chatml.openai", {}),
    ]
    for number, (name, more) in enumerate(options):
        made = []
        for kernel in ("1", "0"):
            monkeypatch.setenv(native.VARIABLE, kernel)
            made.append(outcome(source, name, tmp_path / f"{number}-{kernel}.jsonl", **more))
        assert made[0] == made[1], (name, more)
    assert made[0][0], "some rows are converted"
    assert made[0][1], "some are not"


OTHER = {
    "a decimal": ("extra", pa.array([Decimal("1.5"), None])),
    "a day": ("extra", pa.array([date(2026, 1, 1), None])),
    "bytes": ("extra", pa.array([b"abc", b"\xff"])),
    "a map": ("extra", pa.array([[("k", "v")], None], pa.map_(pa.string(), pa.string()))),
    "a small float": ("extra", pa.array([0.1, None], pa.float32())),
    "unsigned": ("extra", pa.array([2**64 - 1, 3], pa.uint64())),
    "a name with quotes": ('a"b\\', pa.array(["1", "2"])),
    "a name with NUL": ("a\0b", pa.array(["1", "2"])),
    "bytes that are not UTF-8": (
        "extra",
        pa.array([b"\xff", b"a"]).cast(pa.binary()).view(pa.string()),
    ),
    "no value at all": ("extra", pa.nulls(2)),
}


@pytest.mark.parametrize("other", OTHER)
def test_columns_beside_the_conversation(tmp_path, monkeypatch, other):
    """What has no line, or no name in Arrow's C interface, is the strict parser's, kept or ignored."""
    name, values = OTHER[other]
    chat = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a", "name": None}]
    table = pa.table({"messages": pa.array([chat, chat]), name: values})
    for keep in ([], [name]):
        made = []
        for kernel in ("1", "0"):
            monkeypatch.setenv(native.VARIABLE, kernel)
            try:
                made.append(outcome(table, "openai", tmp_path / f"{kernel}.jsonl", keep=keep))
            except fmtkit.FmtkitError as error:
                made.append(str(error))
        assert made[0] == made[1], keep


def tables(rows):
    """Return tables of some rows: those together whose values have one type."""
    groups = []
    for row in rows:
        for group in groups:
            try:
                pa.Table.from_pylist([*group, row])
            except (pa.ArrowException, OverflowError, UnicodeEncodeError):
                continue
            group.append(row)
            break
        else:
            groups.append([row])
    for group in groups:
        try:
            yield pa.Table.from_pylist(group)
        except (pa.ArrowException, OverflowError, UnicodeEncodeError):
            continue


CASES = [case for case in cases() if not case.settings]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=map(str, CASES))
def test_the_rows_of_the_fixtures_as_tables(tmp_path, monkeypatch, case):
    rows = []
    for line in read_lines(case.source):
        try:
            row = json.loads(line)
        except ValueError:
            continue
        rows += [row] if isinstance(row, dict) else []
    for table in tables(rows):
        made = []
        for kernel in ("1", "0"):
            monkeypatch.setenv(native.VARIABLE, kernel)
            (tmp_path / kernel).mkdir(exist_ok=True)
            out = tmp_path / kernel / "out.jsonl"
            try:
                made.append(outcome(table, case.name, out))
            except fmtkit.FmtkitError as error:
                made.append(str(error).replace(str(out.parent), ""))
        assert made[0] == made[1]


def bare(value):
    """Return a value without the null keys of its objects."""
    if isinstance(value, dict):
        return {key: bare(item) for key, item in value.items() if item is not None}
    return [bare(item) for item in value] if isinstance(value, list) else value


def called(message):
    """Return a message without the null keys of its calls."""
    if not isinstance(message, dict):
        return message
    names = ("tool_calls", "function_call")
    return {key: bare(item) if key in names else item for key, item in message.items()}


def compare_lines(seed):
    """Compare the lines of a random table with its values; return how many rows have one."""
    draw = random.Random(seed)
    table = pa.Table.from_pylist(rows_of(draw, draw.randint(1, 12)))
    if draw.random() < 0.8:  # many of these numbers have no line
        table = table.drop_columns(["score"])
    if draw.random() < 0.3:
        fields = [field.with_type(large(field.type)) for field in table.schema]
        table = table.cast(pa.schema(fields))
    table = table.slice(draw.randint(0, 3))
    holds = tuple({"messages": 2, "tools": 1}.get(name, 0) for name in table.schema.names)
    found = 0
    for batch in table.to_batches(max_chunksize=draw.randint(1, 12)):
        data, filled = native.kernel().lines(*batch.__arrow_c_array__(), holds)
        lines = data.split(b"\n")
        assert lines.pop() == b""
        assert len(lines) == len(filled) == batch.num_rows
        for line, row, is_filled in zip(lines, batch.to_pylist(), filled, strict=True):
            if line == b"!":
                continue
            turns = row["messages"]
            wanted = row | {
                "messages": turns and [called(turn) for turn in turns],
                "tools": bare(row["tools"]),
            }
            made = json.loads(line)
            assert (made, json.dumps(made)) == (wanted, json.dumps(wanted))
            assert is_filled == (wanted != row)
            found += 1
    return found


@pytest.mark.skipif(native.kernel() is None, reason="there is no native kernel")
def test_lines_are_the_values_of_their_rows():
    assert sum(map(compare_lines, range(200))) > 500


@pytest.mark.stress
@pytest.mark.skipif(native.kernel() is None, reason="there is no native kernel")
def test_lines_of_many_tables_are_the_values_of_their_rows():
    assert sum(map(compare_lines, range(200, 20_000))) > 50_000


@pytest.mark.parametrize("texts", [["tools"], ["messages"], ["messages", "tools"]], ids="+".join)
def test_columns_of_which_some_are_the_text_of_json(tmp_path, monkeypatch, texts):
    draw = random.Random(1)
    rows = [
        {
            "messages": [
                turn(draw),
                {"role": "user", "content": "q"},
                {"role": "assistant", "content": f"a{n}"},
            ],
            "tools": [tool(draw)],
        }
        for n in range(40)
    ]
    table = pa.Table.from_pylist(
        [row | {name: json.dumps(row[name]) for name in texts} for row in rows]
    )
    made = []
    for kernel in ("1", "0"):
        monkeypatch.setenv(native.VARIABLE, kernel)
        made.append(outcome(table, "openai", tmp_path / f"{kernel}.jsonl"))
    assert made[0] == made[1]
    assert made[0][0]


@pytest.mark.parametrize("kernel", ["1", "0"])
def test_a_table_whose_columns_are_all_null(tmp_path, monkeypatch, kernel):
    monkeypatch.setenv(native.VARIABLE, kernel)
    dtype = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
    table = pa.table({"messages": pa.array([None] * 5, dtype), "x": pa.nulls(5)})
    with pytest.raises(fmtkit.FmtkitError, match="null_field 5"):
        fmtkit.convert(table, "openai", tmp_path / "out.jsonl")


def test_a_block_without_a_row_that_is_wanted(tmp_path):
    chat = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    table = pa.table({"messages": [chat] * 3, "score": [1, 2, 3]})
    out = tmp_path / "out.jsonl"
    assert fmtkit.convert(table, "openai", out, where="score > 2").rows_written == 1
    with pytest.raises(fmtkit.FmtkitError, match="nothing was written"):
        fmtkit.convert(table, "openai", tmp_path / "none.jsonl", where="score > 5")


def test_a_locale_with_a_decimal_comma_changes_no_number(tmp_path):
    locale = pytest.importorskip("locale")
    known = [name for name in ("de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8") if _has(locale, name)]
    if not known:
        pytest.skip("no locale with a decimal comma is installed")
    chat = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    table = pa.table({"messages": [chat], "score": [1.5]})
    before = locale.setlocale(locale.LC_NUMERIC)
    try:
        locale.setlocale(locale.LC_NUMERIC, known[0])
        made = outcome(table, "openai", tmp_path / "made.jsonl", keep=["score"])
    finally:
        locale.setlocale(locale.LC_NUMERIC, before)
    assert json.loads(made[0])["score"] == 1.5


def _has(locale, name):
    before = locale.setlocale(locale.LC_NUMERIC)
    try:
        locale.setlocale(locale.LC_NUMERIC, name)
    except locale.Error:
        return False
    finally:
        locale.setlocale(locale.LC_NUMERIC, before)
    return True
