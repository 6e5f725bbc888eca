"""A kind is told once: what follows from it for each reader and each schema says the same of every row."""

import json
import pickle
import random
import re
from dataclasses import replace
from functools import cache

import jsonschema
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import warm
from fixture_cases import read_lines
from mutated_rows import TOKENS
from spec_reader import UnsureError, read_line
from test_parse import CASES, bound

from fmtkit import catalogue
from fmtkit.columns.kinds import (
    BranchKind,
    IntegerKind,
    Kind,
    ListKind,
    RecordKind,
    TextKind,
    TreeKind,
)
from fmtkit.columns.read_spec import node_of
from fmtkit.columns.strict_kinds import judge, value_of
from fmtkit.columns.typed_kinds import dtype_of
from fmtkit.formats.source_schemas import schema_of, source_schema
from fmtkit.reading.lost_turns import carried
from fmtkit.sources.strict import parse

MUTANTS = 60
EXTRA = ("name", "tool_calls", "function_call", "reasoning", "thinking", "train", "weight", "image")


def places(value, path=()):
    """Yield the path of every value below a value."""
    if not isinstance(value, dict | list):
        return
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        yield (*path, key)
        yield from places(item, (*path, key))


def mutant(line, draw):
    """Change a row in one place: leave a value out, put one in, or set one to another token."""
    row = json.loads(line)
    paths = list(places(row)) if isinstance(row, dict) else []
    if not paths:
        return line
    path = draw.choice(paths)
    holder = row
    for key in path[:-1]:
        holder = holder[key]
    how = draw.randrange(4)
    if how == 0:
        del holder[path[-1]]
    elif how == 1 and isinstance(holder, dict):
        holder[draw.choice(EXTRA)] = "@token@"
    elif how == 2 and isinstance(holder, list):
        holder.insert(path[-1], "@token@")
    else:
        holder[path[-1]] = "@token@"
    token = draw.choice(TOKENS)
    return json.dumps(row, ensure_ascii=False).encode().replace(b'"@token@"', token)


@cache
def lines_of(case):
    """Return the lines of a fixture and mutants of those that are JSON."""
    draw = random.Random(str(case))
    own = read_lines(case.source)
    sound = [line for line in own if _is_json(line)]
    return own + [mutant(draw.choice(sound), draw) for _ in range(MUTANTS)]


def _is_json(line):
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def clean(binding, line):
    try:
        return read_line(binding.spec, line)
    except UnsureError:
        return None


@pytest.mark.parametrize("keep", ["", "all"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_reader_that_knows_the_spec_alone_reads_what_the_strict_parser_reads(case, keep):
    binding = bound(case, keep).plans[0].binding
    lines, reads, values = [], [], []
    for line in lines_of(case):
        read = clean(binding, line)
        value, fault = parse(line, written=True)
        is_sound = fault is None and not binding.judge(value)
        # The strict parser also takes -NaN and Inf, where nobody uses them, and images.
        is_left = not _is_json(line) or (is_sound and _is_left(binding, value))
        assert (read is not None) == is_sound or (is_sound and is_left), line
        if read is not None:
            lines.append(line)
            reads.append(read)
            values.append(value)
    judged = binding.frame(values, range(len(values))).drop("__row").to_dicts()
    for column in binding.watched:
        told = carried(pl.Series([r.pop(column.name) for r in reads], dtype=pl.List(pl.String)))
        for line, mine, strict in zip(lines, told, judged, strict=True):
            assert sorted(mine) == sorted(strict.pop(column.name) or []), line
    for line, read, strict in zip(lines, reads, judged, strict=True):
        assert read == strict, line


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_spec_is_a_value_that_can_be_pickled(case):
    spec = bound(case, "all").plans[0].binding.spec
    again = pickle.loads(pickle.dumps(spec))
    assert again == spec
    assert hash(again) == hash(spec)


SAID_BY_SCHEMAS = {"missing_field", "null_field", "type_error", "unknown_role"}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_schema_of_a_type_takes_the_rows_that_the_judge_takes(case):
    binding = bound(case).plans[0].binding
    if binding.columns != tuple(c for c in binding.columns if c.path == _default(binding, c)):
        pytest.skip("the case maps columns to other names")
    kinds = {column.name: column.kind for column in binding.columns}
    schema = jsonschema.Draft202012Validator(source_schema(replace(binding.converter, takes=kinds)))
    used = {column.top for column in binding.columns} | {None}
    for line in lines_of(case):
        value, fault = parse(line)
        if fault is not None or not _is_json(line):
            continue
        faults = binding.judge(value)
        if not faults:
            assert schema.is_valid(json.loads(line)), line
        elif any(_is_written(value.get(column.top)) for column in binding.columns):
            # What is in such a text is left to the judge.
            continue
        elif {f.code for f in faults} <= SAID_BY_SCHEMAS and {_top(f) for f in faults} <= used:
            assert not schema.is_valid(json.loads(line)), (line, faults)


def _is_left(binding, row):
    """Return whether a row has images, or JSON text: the strict parser alone reads those."""
    columns = [row.get(name) for name in (*(binding.images or ()), "rejected_images")]
    written = any(_is_written(row.get(c.top)) and _is_json(row[c.top]) for c in binding.columns)
    return written or any(columns) or binding.images_of(row) is not None


def _is_written(value):
    return isinstance(value, str) and value.lstrip()[:1] in ("[", "{")


def _top(fault):
    return re.split(r"[.\[]", fault.column)[0]


def _default(binding, column):
    path = binding.converter.path(column.name)
    return tuple(path.split(".")) if column.name in binding.converter.columns else ()


def test_every_type_has_a_schema_of_its_sources():
    for entry in catalogue.types():
        jsonschema.Draft202012Validator.check_schema(catalogue.source_schema(entry["name"]))


def test_several_readings_of_a_type_have_definitions_of_their_own():
    schema = jsonschema.Draft202012Validator(catalogue.source_schema("ebft_reasoning.transform"))
    turn = {"role": "user", "content": "a"}
    assert schema.is_valid({"messages": [turn]})
    assert schema.is_valid({"conversations": [{"from": "human", "value": "a"}]})
    assert not schema.is_valid({"conversations": [{"from": "nobody", "value": "a"}]})


def test_a_kind_that_nobody_knows_is_no_value():
    with pytest.raises(TypeError, match="BranchKind has no meaning of its own"):
        node_of(BranchKind())
    assert isinstance(BranchKind(), Kind)


TREES = '''"""Message trees: a prompt, and replies with a rank that are answered in turn."""

from typing import Annotated

import polars as pl

from fmtkit.columns.conversations import messages_of
from fmtkit.reading.lost_turns import carried
from fmtkit.columns.kinds import BranchKind, IntegerKind, ListKind, RecordKind, TextKind, TreeKind
from fmtkit.columns.problems import Column, Problem
from fmtkit.formats.registry import converter
from fmtkit.core.tables import Preference

TURN = RecordKind(
    {"text": TextKind(), "rank": IntegerKind(), "replies": ListKind(BranchKind("turn"))},
    frozenset({"rank", "replies"}),
)


@converter()
def best_and_worst(tree: Annotated[Column, TreeKind(TURN, "turn")]) -> Preference:
    """https://example.org/trees."""
    turns = tree.value
    asked = tree.but(turns.list.first().struct.field("text")).once("__asked")
    turn = pl.element().struct
    below = turns.list.eval(pl.element().filter(turn.field("parent") == 0))
    replies = below.list.eval(pl.element().sort_by(turn.field("rank")))
    few = Problem("length_mismatch", "tree", replies.list.len() < 2, "fewer than two replies")
    best = asked.but(replies.list.first().struct.field("text"), few)
    worst = asked.but(replies.list.last().struct.field("text"))
    return Preference(
        messages_of(user=asked), messages_of(assistant=best).having(tree), messages_of(assistant=worst)
    )
'''
REPLIES = [{"text": "worse", "rank": 2}, {"text": "better", "rank": 1, "replies": [{"text": "x"}]}]
ROWS = [
    {"tree": {"text": "q", "replies": REPLIES, "lang": "en"}},
    {"tree": {"text": "q", "replies": [{"rank": 1}]}},
    {"tree": {"text": "q", "replies": [{"text": "a", "replies": [{"text": 5}]}]}},
    {"tree": {"text": "q", "replies": None}},
    {"tree": {"text": "q", "replies": [{"text": "a", "rank": 1.5}]}},
]


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_plugin_declares_a_kind_that_holds_itself(tmp_path, suffix):
    (tmp_path / "trees.py").write_text(TREES)
    source = tmp_path / f"source.{suffix}"
    if suffix == "jsonl":
        source.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
        rows = ROWS
    else:
        # A type that is not recursive says how deep its trees are.
        rows = [row for i, row in enumerate(ROWS) if i not in (2, 4)]
        pq.write_table(pa.Table.from_pylist(rows), source)
    done = run(tmp_path, "convert", source.name, "--type", "trees", "-o", "out.jsonl")
    assert done.returncode == 0, done.stderr
    (made,) = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    assert made["chosen"][0]["content"] == "better"
    assert made["rejected"][0]["content"] == "worse"
    lost = map(json.loads, (tmp_path / "out.quarantine.jsonl").read_text().splitlines())
    codes = {
        "missing_field": "tree.replies[0].text",
        "type_error": "tree.replies[0].replies[0].text",
    }
    found = [(entry["code"], entry["column"]) for entry in lost]
    if suffix == "jsonl":
        rank = ("type_error", "tree.replies[0].rank")
        assert found == [*codes.items(), ("length_mismatch", "tree"), rank]
    else:
        assert found == [("null_field", "tree.replies[0].text"), ("length_mismatch", "tree")]


def run(folder, *arguments):
    return warm.fmtkit(*arguments, "--plugin", "trees.py", cwd=folder)


def test_the_schema_of_a_kind_that_holds_itself_refers_to_itself(tmp_path):
    (tmp_path / "trees.py").write_text(TREES)
    schema = json.loads(run(tmp_path, "schema", "trees", "--source").stdout)
    assert schema["$defs"]["turn"]["properties"]["replies"]["anyOf"][0]["items"] == {
        "$ref": "#/$defs/turn"
    }
    assert schema["properties"]["tree"] == {"$ref": "#/$defs/turn"}
    valid = jsonschema.Draft202012Validator(schema)
    assert [valid.is_valid(row) for row in ROWS] == [True, False, False, True, False]


CHAIN = RecordKind({"n": IntegerKind(), "next": BranchKind("chain")}, frozenset({"next"}))


def test_a_tree_of_single_branches_is_read_in_order_and_within_the_limit_of_nesting():
    kind = TreeKind(CHAIN, "chain")
    node = node_of(kind)
    assert (node.branches, node.lists, node.required) == (("next",), (), ())
    assert pickle.loads(pickle.dumps(node)) == node
    value = None
    for n in reversed(range(98)):
        value = {"n": n, "next": value}
    assert judge(kind, value, "tree") == []
    made = value_of(kind, value)
    assert made == [{"n": n, "parent": n - 1 if n else None} for n in range(98)]
    assert str(dtype_of(kind)) == "List(Struct({'n': Int64, 'parent': Int64}))"
    defs = {}
    assert schema_of(ListKind(kind), defs) == {"type": "array", "items": {"$ref": "#/$defs/chain"}}
    assert schema_of(TextKind(), defs) == {"type": "string"}
