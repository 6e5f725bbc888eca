"""Rows that follow each other and belong together are read as one, whatever the blocks they fall into."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from itertools import pairwise

import pytest

import fmtkit
from fmtkit.core.errors import ColumnMismatchError, NothingWrittenError
from fmtkit.rows import joined_rows
from fmtkit.rows.joined_rows import JoinedSource
from fmtkit.sources.blocks import Block
from fmtkit.sources.jsonl import blocks_of_lines


def rows_of(counts: list[int]) -> list[dict[str, object]]:
    return [
        {"prompt": f"q{group}", "response": f"a{group}.{n}", "helpfulness": n}
        for group, count in enumerate(counts)
        for n in range(count)
    ]


@dataclass
class Cut:
    """A source of these blocks."""

    cut: list[Block]
    name = "cut"

    def blocks(self) -> Iterator[Block]:
        return iter(self.cut)


def written(rows, path):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def made_of(source: JoinedSource) -> Iterator[list[str]]:
    for block in source.blocks():
        for text in block.rows:
            yield [row["response"] for row in json.loads(text)["rows"]]


@pytest.mark.parametrize("size", [1, 70, 200, 1_000, 100_000])
def test_rows_are_joined_alike_whatever_block_they_fall_into(size):
    rows = rows_of([2, 1, 3, 2, 5, 1, 2])
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    cut = list(blocks_of_lines(BytesIO(text), block_bytes=size))
    assert len(cut) > 1 or size > len(text)
    source = JoinedSource(Cut(cut), "prompt")
    wanted = [
        [row["response"] for row in group["rows"]] for group in joined_rows.joined(rows, "prompt")
    ]
    assert list(made_of(source)) == wanted
    for block in source.blocks():
        assert all(one < other for one, other in pairwise(block.made_of))


def test_every_row_is_counted_once(tmp_path):
    rows = [*rows_of([2, 1, 3]), {"prompt": "x", "response": 3, "helpfulness": 1}]
    path = written(rows, tmp_path / "a.jsonl")
    out = tmp_path / "out.jsonl"
    report = fmtkit.convert(path, "helpsteer.pairs", out)
    assert (report.rows_read, report.converted, report.joined) == (7, 2, 3)
    assert (report.no_pair, report.quarantined) == (1, 1)
    made = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(row["chosen"][0]["content"], row["rejected"][0]["content"]) for row in made] == [
        ("a0.1", "a0.0"),
        ("a2.2", "a2.0"),
    ]


def test_a_row_that_cannot_be_read_does_not_part_the_rows_around_it(tmp_path):
    one, other = rows_of([2])
    path = tmp_path / "a.jsonl"
    path.write_text(f"{json.dumps(one)}\n{{nonsense\n{json.dumps(other)}\n")
    report = fmtkit.convert(str(path), "helpsteer.pairs", tmp_path / "out.jsonl")
    assert (report.rows_written, report.joined, dict(report.reasons)) == (1, 1, {"json_syntax": 1})


def test_rows_without_end_under_one_prompt_are_refused_and_not_held(tmp_path, monkeypatch):
    monkeypatch.setattr(joined_rows, "MOST", 3)
    path = written(rows_of([5, 2]), tmp_path / "a.jsonl")
    report = fmtkit.convert(path, "helpsteer.pairs", tmp_path / "out.jsonl")
    assert (report.rows_written, report.joined, dict(report.reasons)) == (2, 3, {"value_error": 2})


def test_what_was_quarantined_can_be_converted_again(tmp_path):
    rows = rows_of([2])
    rows[1]["response"] = " "
    path = written(rows, tmp_path / "a.jsonl")
    out = tmp_path / "out.jsonl"
    with pytest.raises(NothingWrittenError):
        fmtkit.convert(path, "helpsteer.pairs", out)
    [reject] = (tmp_path / "out.quarantine.jsonl").read_text().splitlines()
    raw = json.loads(json.loads(reject)["raw"])
    raw["rows"][1]["response"] = "better"
    again = written([raw], tmp_path / "again.jsonl")
    report = fmtkit.convert(again, "helpsteer.pairs", tmp_path / "out2.jsonl")
    assert (report.rows_written, report.joined) == (1, 0)


def test_an_inspection_joins_rows_too(tmp_path):
    path = written(rows_of([2, 2, 2]), tmp_path / "a.jsonl")
    survey = fmtkit.inspect(path, type="helpsteer.pairs")
    assert (survey.rows, survey.ledger["joined"]) == (3, 3)


def test_rows_of_other_columns_are_an_error_that_says_what_is_there(tmp_path):
    path = written([{"a": 1}], tmp_path / "a.jsonl")
    with pytest.raises(ColumnMismatchError, match="message_tree_id"):
        fmtkit.convert(path, "oasst.rows", tmp_path / "out.jsonl")
