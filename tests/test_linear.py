"""Nothing takes more than linear time: the worst inputs, so long that any square of them would never end.

No clock is read: what is linear here takes a second, what grows with the square takes hours.
"""

import json
import random
import sys
import threading
from itertools import count, pairwise

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from fixture_cases import FIXTURES, Case, run

import fmtkit
from fmtkit.columns import references, thinking
from fmtkit.columns.strict_kinds import json_value
from fmtkit.core.errors import NothingWrittenError
from fmtkit.core.tables import MESSAGE
from fmtkit.reading.column_kinds import kinds_of_columns
from fmtkit.rendering.conversation_columns import conversation_column, groups
from fmtkit.rendering.spans import find_spans
from fmtkit.rendering.template_sources import find_model_template
from fmtkit.rendering.text_columns import text_column
from fmtkit.sources.marks import faults
from fmtkit.sources.opening import open_sources
from fmtkit.sources.strict import parse
from fmtkit.stages import pairing

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
    conversations = pl.Series(
        [turns * 10_000, turns], dtype=pl.List(pl.Struct(dict.fromkeys(turns[0], pl.String)))
    )
    template = find_model_template("zephyr")
    spanned, failures = find_spans(template, conversations.to_arrow().cast(pa.list_(MESSAGE)))
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


def _said(conversation):
    return conversation[-1]["content"]


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
        b"[" * (2 * MIB),
        b'[{"a":"' + b'\\"' * MIB,
        b"[\n" + b'{"a":"\n' * (MIB // 56),
    ],
    ids=["nested", "line feeds", "brackets", "quotes", "cut"],
)
def test_a_damaged_array_is_read_to_its_end(tmp_path, text):
    path = tmp_path / "damaged.json"
    path.write_bytes(text)
    (source,) = open_sources(str(path))
    assert sum(len(block.rejects) for block in source.blocks()) > 0


@pytest.mark.slow
def test_a_conversation_of_very_many_messages_is_rendered_in_linear_time(tmp_path):
    messages = [{"role": ("user", "assistant")[i % 2], "content": f"hi {i}"} for i in range(10_000)]
    row, other = {"messages": messages}, {"messages": messages[::-1][1:]}
    path = tmp_path / "long.jsonl"
    path.write_text(json.dumps(row) + "\n" + json.dumps(other) + "\n")
    report = fmtkit.convert(str(path), "chatml.openai", tmp_path / "out.jsonl")
    assert report.converted == 2


def talk(n):
    roles = ("user", "assistant")
    return {"messages": [{"role": roles[i % 2], "content": f"hi {i}"} for i in range(n)]}


def called(n):
    call = {"function": {"name": "w", "arguments": {"at": "x"}}}
    turns = [
        (
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": "y"},
        )
        for _ in range(n // 2)
    ]
    said = [message for turn in turns for message in turn]
    return {"messages": [{"role": "user", "content": "Hi"}, *said, talk(2)["messages"][1]]}


GROWING = {
    "openai": talk,
    "sharegpt": lambda n: {
        "conversations": [{"from": ("human", "gpt")[i % 2], "value": f"{i}"} for i in range(n)]
    },
    "alpaca": lambda n: {
        "instruction": "Add.",
        "output": "5",
        "history": [[f"q{i}", f"a{i}"] for i in range(n)],
    },
    "input_output": lambda n: {
        "segments": [{"label": i % 2 > 0, "text": f"t {i}"} for i in range(n)]
    },
    "stepwise_supervised": lambda n: {
        "prompt": "Q",
        "completions": [f"s{i}" for i in range(n)],
        "labels": [i % 2 > 0 for i in range(n)],
    },
    "graded": lambda n: {
        "question": "Q",
        "solutions": [{"solution": f"s {i}", "is_correct": i % 2 > 0} for i in range(n)],
    },
    "oasst": lambda n: {
        "message_tree_id": "1",
        "tree_state": "ready",
        "prompt": said(0, None) | {"replies": [said(i, i) for i in range(1, n)]},
    },
}


def said(number, rank):
    role = "assistant" if number else "prompter"
    text = {"message_id": str(number), "text": f"hi {number}", "role": role}
    return text | {"lang": "en", "rank": rank, "replies": []}


@pytest.mark.parametrize(
    ("kind", "template", "make"),
    [(kind, None, make) for kind, make in GROWING.items()]
    + [("openai", t, talk) for t in ("chatml", "llama3", "qwen3")]
    + [("openai", "qwen3", called)],
)
def test_a_list_of_twice_as_many_items_takes_twice_as_many_calls(tmp_path, kind, template, make):
    path, sizes = tmp_path / "row.jsonl", (50, 50, 100, 200)
    calls = []
    for n in sizes:
        path.write_text(json.dumps(make(n)) + "\n")
        if template:
            calls.append(calls_of(fmtkit.convert, str(path), f"{template}.{kind}"))
        else:
            calls.append(calls_of(work, str(path), kind))
    _, small, middle, large = calls
    assert large - middle <= 2.3 * (middle - small) + SPARE


SPARE = 2_000
"""Calls that vary from run to run: of caches, and of threads."""


def work(path, kind):
    report = fmtkit.convert(path, kind)
    assert report.converted == 1
    fmtkit.validate(path, kind)
    fmtkit.inspect(path, kind)


def calls_of(function, *arguments):
    """Count the calls of functions, in this thread and in those that it starts."""
    counter = count()

    def step(_frame, event, _argument):
        if event in ("call", "c_call"):
            next(counter)

    former = sys.getprofile()
    threading.setprofile(step)
    sys.setprofile(step)
    try:
        function(*arguments)
    finally:
        sys.setprofile(former)
        threading.setprofile(former)
    return next(counter)


class Counted(np.ndarray):
    """An array that counts the numbers of all operations on it, and on what they return."""

    numbers = 0

    def __array_ufunc__(self, function, method, *inputs, **options):
        plain = [one.view(np.ndarray) if isinstance(one, Counted) else one for one in inputs]
        made = getattr(function, method)(*plain, **options)
        Counted.numbers += np.size(made)
        return made.view(Counted) if isinstance(made, np.ndarray) else made


def test_rows_are_not_looked_at_for_each_message_of_the_longest_conversation():
    def numbers(n):
        conversations = [talk(n)["messages"], *[talk(2)["messages"]] * n]
        column = conversation_column(pa.array(conversations, pa.list_(MESSAGE)))
        column.starts, column.ends = column.starts.view(Counted), column.ends.view(Counted)
        Counted.numbers = 0
        found = groups([column], np.arange(n + 1))
        assert [len(rows) for rows in found] == [1, n]
        return Counted.numbers

    assert numbers(2_000) <= 2.3 * numbers(1_000)


def tree_of(n, replies):
    """Return a tree as a list: a chain of n messages, with so many replies to each question."""
    made, parent = [], None
    for i in range(n):
        role = ("prompter", "assistant")[i % 2]
        for reply in range(replies if i % 2 else 1):
            record = {"message_id": f"{i}.{reply}", "parent_id": parent, "role": role}
            record |= {"message_tree_id": "t", "text": f"hi {i}", "rank": reply if i % 2 else None}
            made.append(record | {"deleted": False, "lang": "en"})
        parent = f"{i}.0"
    return {"rows": made}


def test_a_tree_that_is_one_long_thread_is_followed_in_linear_time(tmp_path):
    path = tmp_path / "tree.jsonl"
    path.write_text(json.dumps(tree_of(10_000, 1)) + "\n")
    report = fmtkit.convert(str(path), "oasst.rows.threads")
    assert (report.converted, report.rows_written) == (1, 1)


@pytest.mark.parametrize("kind", ["oasst.rows", "oasst.rows.threads"])
def test_a_tree_whose_rows_would_repeat_too_many_messages_is_refused(tmp_path, kind):
    path = tmp_path / "tree.jsonl"
    path.write_text(json.dumps(tree_of(1_200, 2)) + "\n" + json.dumps(tree_of(4, 2)) + "\n")
    report = fmtkit.convert(str(path), kind)
    assert report.reasons == {"value_error": 1}
    (found,) = fmtkit.validate(str(path), kind).items
    assert "more than 250,000 messages" in found.message


def long_talk(n, text="x"):
    """Return a conversation of n questions, each with a reply: the prompt of each repeats those before."""
    return {"messages": [{"role": r, "content": text} for _ in range(n) for r in ROLES]}


ROLES = ("user", "assistant")


@pytest.mark.parametrize(
    "row", [long_talk(501), long_talk(300, "x" * 4_000)], ids=["turns", "text"]
)
def test_a_conversation_whose_rows_would_repeat_too_much_is_refused(tmp_path, row, monkeypatch):
    monkeypatch.setattr(references, "TEXT_BYTES", 64 * MIB)
    path, kind = tmp_path / "talk.jsonl", "ebft_chat_multiturn.transform_all_turns"
    path.write_text(json.dumps(row) + "\n" + json.dumps(long_talk(3)) + "\n")
    report = fmtkit.convert(str(path), kind)
    assert report.reasons == {"value_error": 1}
    assert report.rows_written == 3
    (found,) = fmtkit.validate(str(path), kind).items
    assert "since each repeats those before it: split the conversation" in found.message


def test_a_conversation_is_repeated_up_to_the_limit(tmp_path, monkeypatch):
    path, kind = tmp_path / "talk.jsonl", "ebft_chat_multiturn.transform_all_turns"
    path.write_text(json.dumps(long_talk(10)) + "\n")
    for name, least in (("MESSAGES", 100), ("TEXT_BYTES", 100)):  # 1 + 3 + ... + 19, of a byte each
        monkeypatch.setattr(references, name, least)
        assert fmtkit.convert(str(path), kind).rows_written == 10
        monkeypatch.setattr(references, name, least - 1)
        with pytest.raises(NothingWrittenError):
            fmtkit.convert(str(path), kind, tmp_path / "out.jsonl")
        monkeypatch.undo()


def test_a_column_of_texts_is_looked_at_once_and_not_for_each_message():
    column = text_column(pa.array(["a", " ", ""]))
    for trims, filled in (((("strip", None),), [True, False, False]), ((), [True, True, False])):
        assert column.nonempty(trims).tolist() == filled
        assert column.nonempty(trims) is column.nonempty(trims)
