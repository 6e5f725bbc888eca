"""Rankings that a converter makes several of, from a source row: never mixed, never lost."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import fmtkit
from fmtkit.formats import registry
from fmtkit.options.convert_options import ConvertOptions
from fmtkit.running import pipeline
from fmtkit.running.conversions import convert_to
from fmtkit.sources import jsonl

PLUGIN = '''
"""Trees: a row holds the prompts of a message tree, each with its ranked replies."""

from typing import Annotated

import polars as pl

from fmtkit.columns import records
from fmtkit.columns.expansion import several
from fmtkit.columns.kinds import TextKind
from fmtkit.columns.kinds import ListKind
from fmtkit.columns.kinds import NumberKind
from fmtkit.columns.problems import Column
from fmtkit.formats.registry import converter
from fmtkit.core.tables import Ranking

NODE = {"prompt": TextKind(), "replies": ListKind(TextKind()), "scores": ListKind(NumberKind())}


def message(role, text):
    return pl.concat_list(pl.struct(role=pl.lit(role), content=text))


@converter(name="tree")
def tree(
    nodes: Annotated[Column, ListKind(records(NODE).item)], *, pairs: str = "best-worst"
) -> Ranking:
    """Nodes of a tree."""
    node = pl.element().struct
    prompts = nodes.value.list.eval(message("user", node.field("prompt")))
    said = pl.element().list.eval(message("assistant", pl.element()))
    replies = nodes.value.list.eval(node.field("replies")).list.eval(said)
    scores = nodes.value.list.eval(node.field("scores"))
    column = nodes.but(prompts)
    return Ranking(several(column), several(Column(replies)), several(Column(scores)))
'''


@pytest.fixture
def plugin(tmp_path: Path) -> str:
    """A converter of message trees, registered for one test (`own_converters`)."""
    path = tmp_path / "trees_of_a_test.py"
    path.write_text(PLUGIN)
    registry.load_plugin(str(path))
    return str(path)


def node(name: str, *scores: float) -> dict[str, object]:
    replies = [f"{name} reply {i}" for i in range(len(scores))]
    return {"prompt": f"{name} asked", "replies": replies, "scores": list(scores)}


def trees(path: Path, rows: int) -> Path:
    lines = [
        {"nodes": [node(f"{row}-{n}", *range(2 + (row + n) % 3)) for n in range(1 + row % 4)]}
        for row in range(rows)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def text(conversation: list[dict[str, str]]) -> str:
    (only,) = conversation
    return only["content"]


def names_of(row: dict[str, list[dict[str, str]]]) -> set[str]:
    return {text(row[side]).split()[0] for side in ("prompt", "chosen", "rejected")}


def in_blocks_of(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl, "BLOCK_BYTES", size)
    monkeypatch.setattr(pipeline, "BLOCK_BYTES", size)


@pytest.mark.parametrize(
    "policy", ["best-worst", "best-next", "best-random", "adjacent", "all", "margin:1"]
)
@pytest.mark.parametrize("block_bytes", [300, 6 * 1024 * 1024])
@pytest.mark.usefixtures("plugin")
def test_no_pair_mixes_two_rankings_of_a_row(tmp_path, monkeypatch, policy, block_bytes):
    in_blocks_of(block_bytes, monkeypatch)
    source = trees(tmp_path / "trees.jsonl", 40)
    made = fmtkit.table(str(source), "tree", options={"pairs": policy}).to_pylist()
    assert {len(names_of(row)) for row in made} == {1}
    asked = sum(1 + row % 4 for row in range(40))
    assert len({text(row["prompt"]) for row in made}) == asked


@pytest.mark.usefixtures("plugin")
def test_rankings_of_a_row_keep_apart_in_a_split_and_after_a_resume(tmp_path, monkeypatch):
    in_blocks_of(2000, monkeypatch)
    source = trees(tmp_path / "trees.jsonl", 60)
    options = {"type": "tree", "options": {"pairs": "all"}, "val_size": "0.3", "workers": 2}
    whole = convert_to(str(source), tmp_path / "whole", ConvertOptions(**options))

    def stop(done: int, size: int | None, ledger: object) -> None:
        if size and done > size / 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert_to(str(source), tmp_path / "cut", ConvertOptions(**options), watch=stop)
    report = convert_to(str(source), tmp_path / "cut", ConvertOptions(**options, resume=True))
    assert rows_of(tmp_path / "cut") == rows_of(tmp_path / "whole")
    splits = rows_of(tmp_path / "whole")
    rows = [row for rows in splits.values() for row in rows]
    assert len(rows) == whole.rows_written == report.rows_written
    assert {len(names_of(row)) for row in rows} == {1}
    prompts = [{text(row["prompt"]) for row in rows} for rows in splits.values()]
    assert all(prompts)
    assert prompts[0].isdisjoint(prompts[1])


def rows_of(out: Path) -> dict[str, list[dict[str, list[dict[str, str]]]]]:
    data = out / "data"
    return {
        split: [row for file in sorted(data.glob(f"{split}-*")) for row in read(file)]
        for split in ("train", "validation")
    }


def read(file: Path) -> list[dict[str, list[dict[str, str]]]]:
    return pq.ParquetFile(file).read().to_pylist()


@pytest.mark.usefixtures("plugin")
def test_a_ranking_without_a_pair_is_counted_beside_one_with_a_pair(tmp_path):
    source = tmp_path / "trees.jsonl"
    rows = [
        {"nodes": [node("a", 1, 2), node("b", 1, 1)]},
        {"nodes": [node("c", 1, 1), node("d", 3)]},
    ]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = fmtkit.convert(str(source), "tree")
    assert (report.converted, report.no_pair, report.rows_written) == (1, 1, 1)
    assert report.warnings == {"rank_tie": 2, "ranking_without_pair": 1}


SEVERAL = '''
from fmtkit.columns import Texts
from fmtkit.columns.expansion import several
from fmtkit.formats.registry import converter
from fmtkit.core.tables import Completion
import polars as pl


def turns(role, column):
    turn = pl.struct(role=pl.lit(role), content=pl.element())
    return several(column.but(column.value.list.eval(pl.concat_list(turn))))


def filled(column):
    return column.but(column.value.list.eval(pl.element().filter(pl.element() != "-")))


@converter(name="exchanges")
def exchanges(asked: Texts, answered: Texts) -> Completion:
    """Questions and answers."""
    return Completion(turns("user", filled(asked)), turns("assistant", filled(answered)))
'''


@pytest.mark.usefixtures("plugin")
def test_a_row_that_makes_no_row_or_uneven_ones_is_a_reject(tmp_path):
    path = tmp_path / "exchanges_of_a_test.py"
    path.write_text(SEVERAL)
    registry.load_plugin(str(path))
    rows = [
        {"asked": ["q"], "answered": ["a"]},
        {"asked": ["-"], "answered": ["-"]},
        {"asked": ["q", "r"], "answered": ["a"]},
    ]
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = fmtkit.convert(str(source), "exchanges")
    assert (report.converted, report.quarantined) == (1, 2)
    assert report.reasons == {"empty_field": 1, "length_mismatch": 1}
