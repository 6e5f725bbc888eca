"""Nothing takes more than linear time: the worst inputs, so long that any square of them would never end.

No clock is read: what is linear here takes a second, what grows with the square takes hours.
"""

import json
import random
from itertools import pairwise

import polars as pl
import pyarrow as pa
import pytest
from fixture_cases import FIXTURES, Case, run

import fmtkit
from fmtkit.columns import thinking
from fmtkit.columns.strict_kinds import json_value
from fmtkit.converting import pairing
from fmtkit.converting.column_kinds import kinds_of_columns
from fmtkit.core.tables import MESSAGE
from fmtkit.rendering.spans import find_spans
from fmtkit.rendering.template_sources import find_model_template
from fmtkit.sources.marks import faults
from fmtkit.sources.opening import open_sources
from fmtkit.sources.strict import parse

MIB = 1 << 20
LINE = 16 * MIB
"""The longest line that is read."""


@pytest.mark.parametrize(
    "line",
    [
        b'{"a":"' + b"x" * LINE,
        b'{"a":"' + b'\\"' * (LINE // 2),
        b'{"a":"' + b'\\"[' * (LINE // 3),
        b'{"a":"' + b"\\" * LINE,
        b'{"a":' + b'""' * (LINE // 16) + b'"',
        b'{"a":' + b"-" * (LINE // 4) + b"NaN}",
        b'{"a":[' + b"--Inf," * (LINE // 48) + b"1]}",
    ],
    ids=["text", "quotes", "brackets", "backslashes", "empty texts", "signs", "not finite"],
)
def test_a_long_line_that_is_cut_or_no_json_is_judged_in_linear_time(line):
    value, fault = parse(line)
    assert value is None
    assert fault.code == "json_syntax"


@pytest.mark.parametrize(
    "number", ["--NaN", "---Inf", "--Infinity", "-" * 1200 + "NaN", "- NaN", "1-NaN", "+Inf"]
)
def test_a_number_has_at_most_one_sign(number):
    value, fault = parse(b'{"x":' + number.encode() + b"}")
    assert (value, fault.code) == (None, "json_syntax")


@pytest.mark.parametrize("number", ["NaN", "-NaN", "Inf", "-Inf", "Infinity", "-Infinity"])
def test_what_is_not_finite_is_found_however_it_is_written(number):
    value, fault = parse(f'{{"x": [1, "-NaN \\" Inf", {number}]}}'.encode())
    assert fault is None
    assert faults(value["x"], "x").column == "x[2]"
    assert value["x"][1] == '-NaN " Inf'


def test_the_place_of_a_syntax_error_does_not_move_for_a_number_before_it():
    (_, moved), (_, plain) = parse(b'{"x":-Inf,"y":}'), parse(b'{"x":1234,"y":}')
    assert moved.message == plain.message


def test_a_long_key_does_not_make_each_path_below_it_long():
    key = "k" * (LINE // 2)
    line = f'{{"{key}":[{"1," * (LINE // 16)}NaN,NaN]}}'
    value, _ = parse(line.encode())
    found = faults(value, "a")
    assert found.column == f"a.{key}[{LINE // 16}]"


def test_a_text_that_is_json_only_between_our_brackets_is_no_json():
    for text in ('1,"w":2', '[],"v":[]', '[{"name":"a"}],"x":1'):
        assert json_value(text) == text
    assert json_value(' [{"a": 1}] ') == [{"a": 1}]


def test_a_source_of_ever_new_columns_is_read_in_linear_time(tmp_path):
    row = json.loads((FIXTURES / "openai" / "source.jsonl").read_bytes().splitlines()[0])
    path = tmp_path / "many.jsonl"
    path.write_text("".join(json.dumps(row | {f"c{i}": i}) + "\n" for i in range(12_000)))
    outcome = run(Case("openai", ""), path)
    assert len(outcome.rows) == 12_000
    seen = kinds_of_columns(open_sources(str(path)))
    assert len(seen) == 12_000 + len(row)


def test_kinds_of_columns_are_told_where_each_item_of_a_list_has_other_keys(tmp_path):
    path = tmp_path / "keys.jsonl"
    path.write_text(json.dumps({"a": [{f"k{i}": i} for i in range(50_000)], "b": 1.5}) + "\n")
    assert kinds_of_columns(open_sources(str(path))) == {"a": {"json"}, "b": {"float"}}


PIECES = ("<think>", "</think>", "<reasoning>", "</reasoning>", "<|begin_of_thought|>")
PIECES = (*PIECES, "<|end_of_thought|>", "a", "<th", "ink>", " ", "<", "x|")


def test_thinking_is_taken_off_as_one_expression_would_do_it():
    draw = random.Random(0)
    texts = ["".join(draw.choices(PIECES, k=draw.randint(0, 14))) for _ in range(20_000)]
    frame = pl.DataFrame({"text": texts})
    rest = pl.col("text").str.replace_all(f"(?s){thinking.BLOCK}", "")
    after = rest.str.replace(f"(?s)\\A.*(?:{thinking.CLOSE})", "").str.strip_chars()
    wanted = pl.when(~rest.str.contains(thinking.OPEN)).then(after)
    found = frame.select(thinking.answer(pl.col("text")), wanted.alias("wanted"))
    assert found["text"].equals(found["wanted"])
    assert found["text"].null_count() > 1000
    removed = frame.select(rest)["text"].to_list()
    assert list(map(thinking.without_blocks, texts)) == removed


def test_tags_that_nothing_closes_are_looked_at_once():
    size = 2 * MIB
    text = "<think><reasoning></reasoning>" * (size // 30)
    frame = pl.DataFrame({"text": [text]})
    assert frame.select(thinking.answer(pl.col("text"))).item() is None
    assert sum(1 for _ in thinking.blocks(text)) == size // 30
    assert thinking.without_blocks("<think>" * (size // 7)) == "<think>" * (size // 7)


def test_a_conversation_of_very_many_turns_is_refused_where_each_must_be_written_again():
    turns = [{"role": role, "content": "x"} for role in ("user", "assistant")]
    dialogs = pl.Series(
        [turns * 10_000, turns], dtype=pl.List(pl.Struct(dict.fromkeys(turns[0], pl.String)))
    )
    template = find_model_template("zephyr")
    spanned, failures = find_spans(template, dialogs.to_arrow().cast(pa.list_(MESSAGE)))
    assert spanned[0] is None
    assert len(spanned[1].spans) == 1
    assert [(f.row, f.code) for f in failures] == [(0, "template_error")]
    assert "cut the conversation" in failures[0].message


def ranked(rows):
    said = pl.List(pl.List(pl.Struct({"role": pl.String, "content": pl.String})))
    schema = {"__row": pl.Int64, "replies": said, "scores": pl.List(pl.Float64)}
    made = [
        {
            "__row": i,
            "replies": [[{"role": "assistant", "content": text}] for text, _ in row],
            "scores": [score for _, score in row],
        }
        for i, row in enumerate(rows)
    ]
    return pl.DataFrame(made, schema=schema)


def test_adjacent_pairs_are_the_first_of_all_pairs_of_neighbouring_levels():
    draw = random.Random(1)
    rows = [
        [(draw.choice("ab"), draw.choice([None, 0.0, 1.0, 2.0])) for _ in range(draw.randint(0, 7))]
        for _ in range(500)
    ]
    paired = pairing.pair_up(ranked(rows), "adjacent").frame
    found = [(p["__row"], _said(p["chosen"]), _said(p["rejected"])) for p in paired.to_dicts()]
    assert found == [(i, *pair) for i, row in enumerate(rows) for pair in _adjacent(row)]


def _said(dialog):
    return dialog[-1]["content"]


def _adjacent(row):
    scored = sorted((r for r in row if r[1] is not None), key=lambda reply: -reply[1])
    levels = sorted({score for _, score in scored}, reverse=True)
    for upper, lower in pairwise(levels):
        pairs = [
            (better, worse)
            for better, one in scored
            for worse, other in scored
            if (one, other) == (upper, lower) and better != worse
        ]
        yield from pairs[:1]


def test_adjacent_pairs_of_two_large_levels_do_not_take_all_pairs():
    row = [(f"r{i}", float(i % 2)) for i in range(100_000)]
    paired = pairing.pair_up(ranked([row]), "adjacent")
    assert paired.frame.height == 1


@pytest.mark.parametrize(
    "text",
    [
        b"[\n" + b'{"a":\n' * (MIB // 12),
        b'[{"a":"x\ny"},' + b'{"a":"x\ny"},\n' * (MIB // 56) + b'{"b":1}]',
        b"[" * (8 * MIB),
        b'[{"a":"' + b'\\"' * (4 * MIB),
        b"[\n" + b'{"a":"\n' * (MIB // 56),
    ],
    ids=["nested", "line feeds", "brackets", "quotes", "cut"],
)
def test_a_damaged_array_is_read_to_its_end(tmp_path, text):
    path = tmp_path / "damaged.json"
    path.write_bytes(text)
    (source,) = open_sources(str(path))
    assert sum(len(block.rejects) for block in source.blocks()) > 0


def test_a_conversation_of_very_many_messages_is_rendered_in_linear_time(tmp_path):
    messages = [{"role": ("user", "assistant")[i % 2], "content": f"hi {i}"} for i in range(20_000)]
    row, other = {"messages": messages}, {"messages": messages[::-1][1:]}
    path = tmp_path / "long.jsonl"
    path.write_text(json.dumps(row) + "\n" + json.dumps(other) + "\n")
    report = fmtkit.convert(str(path), "chatml.openai", tmp_path / "out.jsonl")
    assert report.converted == 2
