"""Pairs of ranked replies, against a plain loop over every pair."""

import json
from hashlib import blake2b
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fmtkit
from fmtkit.columns.message_rules import NARROW, WIDE
from fmtkit.core.errors import OptionError, UnknownNameError
from fmtkit.options.convert_options import RowOptions
from fmtkit.running.conversions import RowStream
from fmtkit.running.pipeline import Piece
from fmtkit.sources.blocks import BLOCK_BYTES
from fmtkit.stages.pairing import POLICIES, check_policy, pair_up

EXACT = [policy for policy in POLICIES if policy not in ("none", "margin:M")] + [
    "margin:0.5",
    "margin:2",
]

Ranked = list[tuple[str, float]]
scores = st.sampled_from([-1.0, 0.0, 0.5, 1.0, 2.0, 2.5])
rankings = st.lists(st.tuples(st.sampled_from("abcd"), scores), max_size=5)


def frame(rows: list[Ranked], dtype: pl.DataType = NARROW) -> pl.DataFrame:
    """Make the frame of a ranking: rows are numbered 10, 20, ..."""
    replies = [[[{"role": "assistant", "content": text}] for text, _ in row] for row in rows]
    data = {
        "__row": pl.Series(range(10, 10 * len(rows) + 10, 10), dtype=pl.Int64),
        "prompt": pl.Series([f"prompt {i}" for i in range(len(rows))], dtype=pl.String),
        "replies": pl.Series(replies, dtype=pl.List(pl.List(dtype))),
        "scores": pl.Series(
            [[score for _, score in row] for row in rows], dtype=pl.List(pl.Float64)
        ),
    }
    return pl.DataFrame(data)


def draw(pair: tuple[str, str], seed: int) -> bytes:
    return blake2b("\0".join(pair).encode(), digest_size=8, key=str(seed).encode()).digest()


def reference(row: Ranked, policy: str, seed: int) -> list[tuple[str, str]]:
    """Return the pairs of one ranking: every better reply with every worse, then what is asked for."""
    ordered = sorted(row, key=lambda reply: -reply[1])
    pairs = [
        (better, worse)
        for i, better in enumerate(ordered)
        for worse in ordered[i + 1 :]
        if better[1] > worse[1] and better[0] != worse[0]
    ]
    if policy.startswith("best"):
        pairs = [pair for pair in pairs if pair[0] is ordered[0]]
        if policy == "best-worst":
            pairs = pairs[-1:]
        elif policy == "best-next":
            pairs = pairs[:1]
        else:
            pairs = sorted(pairs, key=lambda p: draw((p[0][0], p[1][0]), seed))[:1]
    elif policy.startswith("margin"):
        margin = float(policy.partition(":")[2])
        pairs = [pair for pair in pairs if pair[0][1] - pair[1][1] >= margin]
    elif policy == "adjacent":
        levels = sorted({score for _, score in row}, reverse=True)
        found = {}
        for better, worse in pairs:
            if levels.index(worse[1]) == levels.index(better[1]) + 1:
                found.setdefault(better[1], (better, worse))
        pairs = list(found.values())
    return [(better[0], worse[0]) for better, worse in pairs]


@pytest.mark.parametrize("policy", EXACT)
@settings(max_examples=30, deadline=None)
@given(rows=st.lists(rankings, max_size=4), seed=st.integers(0, 3))
def test_pairs_are_those_of_a_plain_loop(policy: str, rows: list[Ranked], seed: int) -> None:
    rows = [[(text, score) for text, score in dict(enumerate(row)).values()] for row in rows]
    made = pair_up(frame(rows), policy, seed)
    found = [
        (row["__row"], row["prompt"], row["chosen"][0]["content"], row["rejected"][0]["content"])
        for row in made.frame.to_dicts()
    ]
    expected = [
        (10 * i + 10, f"prompt {i}", *pair)
        for i, row in enumerate(rows)
        for pair in reference(row, policy, seed)
    ]
    assert found == expected
    without = [10 * i + 10 for i, row in enumerate(rows) if not reference(row, policy, seed)]
    assert made.without_pair.to_list() == without
    assert made.tied == sum(len({s for _, s in row}) < len(row) for row in rows)


@pytest.mark.parametrize("policy", EXACT)
@settings(max_examples=30, deadline=None)
@given(groups=st.lists(st.lists(rankings, min_size=1, max_size=3), max_size=4))
def test_both_sides_of_a_pair_come_of_one_ranking(policy: str, groups: list[list[Ranked]]) -> None:
    """Source rows of several rankings each: every reply and prompt carries its ranking's name."""
    named = [
        [(f"{number}:{text}", score) for text, score in row]
        for number, row in enumerate(ranking for group in groups for ranking in group)
    ]
    rows = [source for source, group in enumerate(groups) for _ in group]
    ranked = frame(named).with_columns(__row=pl.Series(rows, dtype=pl.Int64))
    made = pair_up(ranked, policy)
    found = [
        (row["__row"], row["prompt"], row["chosen"][0]["content"], row["rejected"][0]["content"])
        for row in made.frame.to_dicts()
    ]
    of_ranking = [reference(row, policy, 0) for row in named]
    assert found == [
        (source, f"prompt {number}", *pair)
        for number, (source, pairs) in enumerate(zip(rows, of_ranking, strict=True))
        for pair in pairs
    ]
    paired = {source for source, pairs in zip(rows, of_ranking, strict=True) if pairs}
    assert made.without_pair.to_list() == [n for n in range(len(groups)) if n not in paired]
    assert made.some_without_pair == sum(
        source in paired and not pairs for source, pairs in zip(rows, of_ranking, strict=True)
    )


def test_a_random_choice_is_the_same_tomorrow_and_elsewhere():
    row = [(letter, float(-place)) for place, letter in enumerate("abcdefgh")]
    chosen = [
        pair_up(frame([row]), "best-random", seed).frame["rejected"][0][0]["content"]
        for seed in range(8)
    ]
    assert "".join(chosen) == "fefbhdcg"


def test_a_row_chooses_alike_beside_any_other():
    row = [("a", 3.0), ("b", 2.0), ("c", 1.0), ("d", 0.0)]
    alone = pair_up(frame([row]), "best-random").frame["rejected"].to_list()
    beside = (
        pair_up(frame([[("x", 1.0), ("y", 0.0)], row]), "best-random").frame["rejected"].to_list()
    )
    assert beside[1:] == alone


def test_wide_replies_that_differ_in_their_tool_calls_make_a_pair():
    calls = [
        [[{"role": "assistant", "content": None, "tool_calls": text}]] for text in ("[1]", "[2]")
    ]
    ranked = pl.DataFrame(
        {"__row": [0], "prompt": ["p"]},
    ).with_columns(
        replies=pl.Series([[call[0] for call in calls]], dtype=pl.List(pl.List(WIDE))),
        scores=pl.Series([[1.0, 0.0]]),
    )
    for policy in ("best-worst", "best-random"):
        assert pair_up(ranked, policy).frame.height == 1


@pytest.mark.parametrize("policy", ["all", "none", "margin:0.5", "margin:3"])
def test_a_known_policy_is_taken(policy):
    assert check_policy(policy) == policy


@pytest.mark.parametrize("policy", ["margin", "margin:", "margin:-1", "margin:x", "best_worst", ""])
def test_an_unknown_policy_is_an_error(policy):
    with pytest.raises(UnknownNameError):
        check_policy(policy)


def test_a_margin_without_its_number_says_what_to_write():
    with pytest.raises(OptionError, match="as in margin"):
        check_policy("margin:M")


@pytest.mark.parametrize("policy", ["all", "margin:0.5", "best-worst", "adjacent"])
@settings(max_examples=30, deadline=None)
@given(rows=st.lists(rankings, max_size=4), size=st.integers(1, 400), most=st.integers(1, 800))
def test_parts_hold_all_pairs_once_and_only_a_large_row_is_cut(policy, rows, size, most):
    made = pair_up(frame(rows), policy)
    parts = made.parts(size, most)
    assert [(one.stop, two.first) for one, two in pairwise(parts)] == [
        (one.stop, one.stop) for one in parts[:-1]
    ]
    assert pl.concat([made.rows(part.first, part.stop) for part in parts]).equals(made.frame)
    of_row = {
        row: sum(made.nbytes(p.stop) - made.nbytes(p.first) for p in parts if p.row == row)
        for row in {part.row for part in parts} - {None}
    }
    assert all(found > most for found in of_row.values())
    for part in parts:
        is_one = part.stop - part.first == 1
        if part.row is not None:
            assert made.nbytes(part.stop) - made.nbytes(part.first) <= size or is_one
            assert set(made.rows(part.first, part.stop)["__row"]) <= {part.row}


ANSWERS, LETTERS = 400, 1_000


def many_answers(path: Path, marked: int | None = None) -> Path:
    """Write a ranking whose pairs are 160 MB, between two small ones."""
    large = [f"{'BAD ' if i == marked else ''}{i} {'x' * LETTERS}" for i in range(ANSWERS)]
    rows = [["a", "b"], large, ["c", "d"]]
    path.write_text(
        "".join(
            json.dumps(
                {
                    "prompt": f"prompt {number}",
                    "answers": [{"answer": a, "rank": i} for i, a in enumerate(answers)],
                }
            )
            + "\n"
            for number, answers in enumerate(rows)
        )
    )
    return path


def pieces_of(path: Path, **options: Any) -> list[tuple[Piece, int, list[str]]]:
    wanted = RowOptions(options={"pairs": "all"}, **options)
    rows = RowStream(str(path), wanted)
    found = [(p, p.table.nbytes, p.table.column("prompt").to_pylist()) for p in rows]
    rows.ledger.check()
    return found


def test_all_pairs_of_many_answers_are_made_part_by_part(tmp_path):
    found = pieces_of(many_answers(tmp_path / "n.jsonl"), type="zephyr.nectar")
    sizes = [size for _, size, _ in found]
    pairs = ANSWERS * (ANSWERS - 1) // 2
    assert sum(sizes) > 2 * pairs * LETTERS
    assert max(sizes) < 4 * BLOCK_BYTES
    prompts = [prompt for _, _, prompts in found for prompt in prompts]
    assert len(prompts) == pairs + 2
    assert ["prompt 0" in prompts[0], "prompt 2" in prompts[-1]] == [True, True]
    *others, last = (piece for piece, _, _ in found)
    assert {piece.counts.rows_read for piece in others} == {0}
    assert (last.counts.rows_read, last.counts.converted, last.counts.rows_written) == (
        3,
        3,
        pairs + 2,
    )


def test_a_row_of_many_answers_one_of_which_has_no_text_is_rejected_as_a_whole(tmp_path):
    template = tmp_path / "strict.jinja"
    template.write_text(
        "{% for m in messages %}{% if 'BAD' in m.content %}{{ raise_exception('bad') }}{% endif %}"
        "[{{ m.role }}]{{ m.content }}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
    )
    path = many_answers(tmp_path / "n.jsonl", marked=ANSWERS - 1)
    found = pieces_of(path, type="nectar", chat_template=str(template), on_error="quarantine")
    assert sum(len(prompts) for _, _, prompts in found) == 2
    assert [reject.row for piece, _, _ in found for reject in piece.rejects] == [1]


def test_the_output_of_many_answers_is_that_of_each_pair(tmp_path):
    path = many_answers(tmp_path / "n.jsonl")
    report = fmtkit.convert(str(path), "nectar", tmp_path / "out.jsonl", options={"pairs": "all"})
    pairs = ANSWERS * (ANSWERS - 1) // 2
    assert (report.rows_written, report.converted) == (pairs + 2, 3)
    with (tmp_path / "out.jsonl").open() as lines:
        made = [
            (row["chosen"][0]["content"].split()[0], row["rejected"][0]["content"].split()[0])
            for row in map(json.loads, lines)
        ]
    order = [str(i) for i in range(ANSWERS)]
    assert made == [("a", "b"), *combinations(order, 2), ("c", "d")]
