"""The report equals what cutting every row would show."""

import random

import numpy as np
import pyarrow as pa
import pytest
from test_lengths import counter as counter  # noqa: PLC0414 - a fixture of single-byte tokens

from fmtkit.counting.lengths import RowLengths, count_columns
from fmtkit.counting.token_counts import TokenCounter
from fmtkit.counting.visual_counts import with_images
from fmtkit.findings.cutting import CuttingTally

LADDER = (4, 8, 12, 16, 24)


def made_rows(number: int) -> list[dict[str, str]]:
    chance = random.Random(3)
    rows = []
    for _ in range(number):
        prompt = "p" * chance.randrange(1, 14)
        start, end = "s" * chance.randrange(14), "e" * chance.randrange(14)
        sides = ["".join(chance.choices("xy", k=chance.randrange(4))) for _ in range(2)]
        rows.append(
            {"prompt": prompt, "chosen": start + sides[0] + end, "rejected": start + sides[1] + end}
        )
    return rows


def tally_of(
    rows: list[dict[str, str]], counter: TokenCounter, names: tuple[str, ...]
) -> CuttingTally:
    tally = CuttingTally(LADDER)
    for start in range(0, len(rows), 30):
        part = rows[start : start + 30]
        texts = {name: pa.array([row[name] for row in part]) for name in names}
        tally.add(
            count_columns(texts, counter),
            texts,
            np.arange(start, start + len(part)),
            counter.tokenizer,
        )
    return tally


def brute(rows: list[dict[str, str]], limit: int, way: str) -> dict[str, int]:
    wholes = [(row["prompt"] + row["chosen"], row["prompt"] + row["rejected"], row) for row in rows]
    long = [w for w in wholes if max(len(w[0]), len(w[1])) > limit]
    if way == "drop":
        return {"rows_lost": len(long), "tokens_lost": sum(len(a) + len(b) for a, b, _ in long)}
    keep = slice(None, limit) if way == "truncate-end" else slice(-limit, None)
    lost = sum(max(len(side) - limit, 0) for a, b, _ in wholes for side in (a, b))
    equal = [a[keep] == b[keep] for a, b, _ in wholes]
    shorter = [min(len(a), len(b)) for a, b, _ in wholes]
    result = {
        "tokens_lost": lost,
        "rows_equal": sum(e and s >= limit for e, s in zip(equal, shorter, strict=True)),
    }
    if way == "truncate-start":
        gone = sum(min(len(row["chosen"]), len(row["rejected"])) >= limit for row in rows)
        return {**result, "rows_empty": gone, "rows_cut": len(long), "rows_without_end": 0}
    gone = sum(len(row["prompt"]) >= limit for row in rows)
    return {**result, "rows_empty": gone, "rows_lost": gone, "rows_without_end": len(long)}


@pytest.mark.parametrize("way", ["drop", "truncate-start", "truncate-end"])
def test_the_report_equals_cutting_every_pair(counter, way):
    rows = made_rows(200)
    report = tally_of(rows, counter, ("prompt", "chosen", "rejected")).report()
    assert report is not None
    cuts = [cut for cut in report.cuts if cut.way == way]
    assert [cut.max_length for cut in cuts] == list(LADDER)
    for cut in cuts:
        expected = brute(rows, cut.max_length, way)
        assert {name: getattr(cut, name) for name in expected} == expected


def test_rows_that_become_equal_are_named(counter):
    rows = [
        {"prompt": "pp", "chosen": "long beginning A", "rejected": "long beginning B"},
        {"prompt": "pp", "chosen": "A", "rejected": "B"},
    ]
    report = tally_of(rows, counter, ("prompt", "chosen", "rejected")).report()
    named = {(cut.max_length, cut.way): cut.equal_rows for cut in report.cuts}
    assert named[12, "truncate-end"] == (0,)
    assert named[24, "truncate-end"] == ()


@pytest.mark.parametrize("budget", [0.0, 0.01, 0.1, 0.5])
def test_the_smallest_length_keeps_the_loss_within_the_budget(counter, budget):
    rows = made_rows(150)
    report = tally_of(rows, counter, ("prompt", "chosen", "rejected")).report(budget)
    longest = [len(r["prompt"]) + max(len(r["chosen"]), len(r["rejected"])) for r in rows]
    within = [n for n in range(60) if sum(size > n for size in longest) <= budget * len(rows)]
    assert report.smallest_max_length == within[0]


def test_one_column_is_cut_like_a_row(counter):
    texts = {"messages": pa.array(["x" * 10, "x" * 5])}
    tally = CuttingTally((6, 20))
    assert tally.report() is None
    tally.add(count_columns(texts, counter), texts, np.arange(2), counter.tokenizer)
    end = next(c for c in tally.report().cuts if c.way == "truncate-end" and c.max_length == 6)
    assert (end.rows_cut, end.tokens_lost, end.rows_without_end) == (1, 4, 1)


@pytest.mark.parametrize("images", [0, 5])
def test_images_of_a_prompt_are_before_what_two_replies_have_in_common(counter, images):
    texts = {
        "prompt": pa.array(["pp"]),
        "chosen": pa.array(["sssx"]),
        "rejected": pa.array(["sssy"]),
    }
    added = np.array([images])
    lengths = RowLengths(with_images(count_columns(texts, counter).columns, added))
    tally = CuttingTally((5, 10))
    tally.add(lengths, texts, np.arange(1), counter.tokenizer, added)
    # Two tokens of the prompt, those of its images, and three that agree.
    agreeing = 5 + images
    for limit in (5, 10):
        key = (limit, "truncate-end")
        assert tally.equal_count.get(key, 0) == int(limit <= agreeing)
