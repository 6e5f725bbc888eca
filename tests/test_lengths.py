"""Figures equal a brute-force count, however the rows come in."""

import numpy as np
import pyarrow as pa
import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers

from fmtkit.counting.lengths import Tally, count_columns, count_lists, summarize, summarize_all
from fmtkit.counting.token_counts import TokenCounter
from fmtkit.tokenizers.tokens import Tokenizer


@pytest.fixture(scope="module")
def counter() -> TokenCounter:
    """Return a tokenizer of single bytes, so that a count can be seen in the text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Backend(models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return TokenCounter(Tokenizer("bytes", backend))


@pytest.mark.parametrize("spread", [3, 100, 100_000])
def test_figures_equal_those_of_all_lengths_at_once(spread):
    chance = np.random.default_rng(spread)
    lengths = np.ceil(chance.exponential(spread, 4001)).astype(np.int64)
    tally = Tally()
    for part in np.array_split(lengths, 7):
        tally.add(part)
    found = summarize("x", tally)
    assert found is not None
    percentiles = np.percentile(lengths, (50, 90, 95, 99), method="inverted_cdf")
    assert (found.p50, found.p90, found.p95, found.p99) == tuple(percentiles.tolist())
    assert (found.rows, found.tokens, found.max) == (4001, lengths.sum(), lengths.max())
    assert found.mean == pytest.approx(lengths.mean())
    for bin_ in found.bins:
        assert bin_.rows == ((lengths >= bin_.start) & (lengths < bin_.end)).sum()
    assert sum(bin_.rows for bin_ in found.bins) == 4001
    for limit in (0, 1, spread, found.max):
        assert tally.longer_than(limit) == (lengths > limit).sum()
        assert tally.beyond(limit) == np.maximum(lengths - limit, 0).sum()


def test_a_long_tail_gets_growing_bins():
    tally = Tally()
    tally.add(np.array([10] * 99 + [90_000]))
    assert summarize("x", tally).logarithmic
    even = Tally()
    even.add(np.arange(10, 30))
    assert not summarize("x", even).logarithmic


def test_sides_that_are_compared_have_the_same_bins():
    chance = np.random.default_rng(0)
    tallies = [("chosen", Tally()), ("rejected", Tally()), ("prompt", Tally())]
    for (_, tally), spread in zip(tallies, (30, 300, 9), strict=True):
        tally.add(chance.integers(1, spread, 500))
    chosen, rejected, prompt = summarize_all(tallies)
    edges = [[(bin_.start, bin_.end) for bin_ in f.bins] for f in (chosen, rejected, prompt)]
    assert edges[0] == edges[1] != edges[2]
    assert [sum(bin_.rows for bin_ in f.bins) for f in (chosen, rejected)] == [500, 500]
    assert chosen.max < 30 < rejected.max


def test_equal_lengths_and_no_lengths_have_figures_too():
    tally = Tally()
    assert summarize("x", tally) is None
    tally.add(np.zeros(3, dtype=np.int64))
    found = summarize("x", tally)
    assert (found.p50, found.max, found.bins[0].rows) == (0, 0, 3)


def test_columns_are_counted_alone_and_with_their_prompt(counter):
    texts = {"prompt": ["ab", "c "], "chosen": ["d", " ef"], "rejected": ["", "g"]}
    found = count_columns({name: pa.array(column) for name, column in texts.items()}, counter)
    assert found.columns["prompt+chosen"].tolist() == [3, 5]
    assert found.columns["prompt+rejected"].tolist() == [2, 3]
    assert found.sides == ("prompt+chosen", "prompt+rejected")
    assert found.longest.tolist() == [3, 5]
    assert count_columns({"messages": pa.array(["abc"])}, counter).longest.tolist() == [3]


def test_lists_are_counted_by_their_texts(counter):
    steps = pa.array([["ab", "c"], [], None, ["defg"]], pa.list_(pa.string()))
    assert count_lists(steps, counter).tolist() == [3, 0, 0, 4]
    assert count_lists(steps.slice(3), counter).tolist() == [4]
