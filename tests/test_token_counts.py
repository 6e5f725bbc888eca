"""Counts by pieces equal the tokenizer's own, for every family of patterns and on nasty text."""

import operator
import random
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, models, normalizers, pre_tokenizers, trainers

from fmtkit.counting import id_hashes, pieces, token_counts
from fmtkit.counting.token_counts import TokenCounter
from fmtkit.tokenizers.tokens import Tokenizer

WORDS = (
    "the quick brown fox doesn't jump; she'll say it's 12345 times, I'VE seen 3rd/4th (foo)bar\n"
    "def f(x): return x  +  1 https://a.b/c?d=e&f=0x1F and/or \"quoted\" 'single' naïve café\n"
    "    indented\tcode\n\n\n- list\r\n``` ''' /// ... 1,000.50 camelCaseWord SNAKE_CASE e-m@x.org"
    " Привет мир 你好 世界 ſ 'ſ ½"
)
NASTY = [
    *("", " ", "  ", "\n", "\n\n", " \n", "\n ", "a ", " a", "a  b", "a \n b", "a\n\nb", "a\n/b"),
    *(".\n\n/x", "foo  5", "foo \t5", "  \tfoo", "foo\u3000 \nbar", "foo\u00a0 bar", "\u2028 x"),
    *("x\u2003  y", "don't DON'T 'S", "\x1c a\x1c b", "\x0b\x0c x", "e\u0301 x e\u0301", "(x"),
    *("\u212a \u037e \u1fef", "x<|im_end|>\n<|im_start|>user\ny", "  <|im_end|>  ", "((x", "'''x"),
    *("a \n<|im_end|>", "<|im_end|><|im_end|>", "<|im_", "<|im_end|", "<<|im_end|>", "x'y'z"),
    *("a/b /c d/ e", "\r\n\r\nx", "a\t\tb", "\t\n\tx", "1'2'3", "a1b2c3", "🎉 🎉x", "中 文  中"),
    *("é é  é\n é", "4t", "中4t 5", "foo\u180e bar"),
]
PATTERNS = sorted(pieces.CL100K_PATTERNS)


def split(pattern: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated")


def plain_bytes() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


def pre_tokenizer(name: str) -> pre_tokenizers.PreTokenizer:
    gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if name == "gpt2":
        return gpt2
    if name == "starcoder":
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), gpt2])
    return pre_tokenizers.Sequence([*map(split, PATTERNS[int(name)]), plain_bytes()])


NAMES = ["gpt2", "starcoder", *map(str, range(len(PATTERNS)))]


def train(
    name: str, *, normalizer: str | None = None, added: list[AddedToken] | None = None
) -> Tokenizer:
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizer(name)
    if normalizer == "NFC":
        backend.normalizer = normalizers.NFC()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=420, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator([" ".join(WORDS)] * 3 + NASTY, trainer)
    for token in added or [
        AddedToken(t, special=True, normalized=False) for t in ("<|im_start|>", "<|im_end|>")
    ]:
        backend.add_tokens([token])
    return Tokenizer(name, backend)


def expected(tokenizer: Tokenizer, texts: list[str]) -> list[int]:
    return [len(e.ids) for e in tokenizer.backend.encode_batch(texts, add_special_tokens=False)]


def expected_hashes(tokenizer: Tokenizer, texts: list[str]) -> list[int]:
    """Return the hashes of whole texts, by the definition."""
    found = []
    for text in texts:
        ids = tokenizer.encode(text).ids
        values = id_hashes.mixed(np.array(ids, np.uint64)).tolist()
        powers = (pow(id_hashes.BASE, place, 2**64) for place in range(len(ids)))
        found.append(sum(map(operator.mul, values, powers)) % 2**64)
    return found


def made_texts(seed: int, number: int = 300) -> list[str]:
    chance = random.Random(seed)
    parts = [*WORDS, *NASTY, " ", "  ", "\n", "\t", "'", "/", ".", "7", "<|im_end|>"]
    return ["".join(chance.choices(parts, k=chance.randrange(12))) for _ in range(number)]


@pytest.mark.parametrize("normalizer", [None, "NFC"])
@pytest.mark.parametrize("name", NAMES)
def test_counts_equal_the_tokenizers_for_every_family(name, normalizer):
    tokenizer = train(name, normalizer=normalizer)
    counter = TokenCounter(tokenizer, hashes_ids=True)
    assert counter.family is not None
    texts = [*NASTY, *made_texts(1), *[" ".join(made_texts(seed, 20)) for seed in range(30)]]
    counts, hashes = counter.count_and_hash(texts)
    assert counts.tolist() == expected(tokenizer, texts)
    assert hashes.tolist() == expected_hashes(tokenizer, texts)
    assert TokenCounter(tokenizer).count(texts).tolist() == counts.tolist()


COUNTERS = {name: TokenCounter(train(name), hashes_ids=True) for name in NAMES}


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.text(
            st.sampled_from("ab1' \t\n\r/.(é中\u3000\u0301ſA<|>_") | st.characters(codec="utf-8")
        ),
        min_size=1,
    )
)
def test_counts_equal_the_tokenizers_on_any_text(texts):
    for counter in COUNTERS.values():
        counts, hashes = counter.count_and_hash(texts)
        assert counts.tolist() == expected(counter.tokenizer, texts)
        assert hashes.tolist() == expected_hashes(counter.tokenizer, texts)


def test_hashes_tell_ids_and_their_order():
    lists = [[], [0], [0, 0], [1, 2], [2, 1], [1, 2, 3], [2**31, 5]]
    hashes = id_hashes.of(lists, [*map(len, lists)]).tolist()
    assert len({*hashes}) == len(lists)
    assert hashes[0] == 0
    # Split anywhere, the whole has the same hash.
    parts = id_hashes.of([[1], [2, 3]], [1, 2])
    places = [np.array(numbers) for numbers in ([0, 1, 3], [0], [2])]
    assert id_hashes.joined(parts, *places).tolist() == [hashes[5]]


def test_nulls_count_nothing_and_equal_texts_share_a_count():
    counter = COUNTERS["gpt2"]
    counts = counter.count(pa.array(["a b", None, "a b", ""]))
    assert counts.tolist() == [counts[0], 0, counts[0], 0]
    assert counter.count(pa.array([], pa.string())).tolist() == []
    assert counter.count(pa.chunked_array([["a b"], ["c"]])).tolist() == expected(
        counter.tokenizer, ["a b", "c"]
    )


def test_slices_and_small_offsets_are_counted_in_place():
    texts = pa.array(["zero", "one two", "three'll 4", "five"])
    assert COUNTERS["gpt2"].count(texts.slice(1, 2)).tolist() == expected(
        COUNTERS["gpt2"].tokenizer, ["one two", "three'll 4"]
    )


def test_blocks_and_threads_do_not_change_counts(monkeypatch):
    monkeypatch.setattr(token_counts, "BLOCK_BYTES", 200)
    monkeypatch.setattr(token_counts, "MEMO_PIECES", 50)
    texts = made_texts(5)
    tokenizer = train("gpt2")
    one, two = TokenCounter(tokenizer, threads=1), TokenCounter(tokenizer, threads=2)
    assert one.count(texts).tolist() == two.count(texts).tolist() == expected(tokenizer, texts)
    assert len(one.memo) <= 50


@pytest.mark.parametrize("flag", ["lstrip", "rstrip", "single_word"])
def test_added_tokens_that_take_their_surroundings_are_left_to_the_tokenizer(flag):
    added = [
        AddedToken("<x>", **{flag: True}, normalized=False),
        AddedToken("<y>", normalized=False),
    ]
    tokenizer = train("gpt2", added=added)
    texts = ["a <x> b", "a<x>b", "a  <y>  b", " <x> ", "<y><x>\n\n<y> a"]
    assert TokenCounter(tokenizer).count(texts).tolist() == expected(tokenizer, texts)


@pytest.mark.parametrize("normalizer", [None, "NFC"])
def test_added_tokens_that_overlap_are_found_as_the_tokenizer_finds_them(normalizer):
    added = [
        AddedToken("<a", normalized=False), AddedToken("<abc", normalized=False), AddedToken("b", normalized=True),
        AddedToken("  ", normalized=True), AddedToken("K;", normalized=True), AddedToken("<", normalized=True),
    ]  # fmt: skip
    tokenizer = train("gpt2", normalizer=normalizer, added=added)
    texts = ["<a<ab<abc<<abcb", "x   y    b", "\u212a\u037e K; \u212a;", "", "<", "a<", "é <b"]
    assert TokenCounter(tokenizer).count(texts).tolist() == expected(tokenizer, texts)


def test_a_tokenizer_that_must_not_be_cut_is_asked_for_every_text():
    tokenizer = train("gpt2")
    tokenizer.backend.normalizer = normalizers.Lowercase()
    counter = TokenCounter(tokenizer)
    assert counter.family is None
    texts = made_texts(7)
    assert counter.count(texts).tolist() == expected(tokenizer, texts)
    for other in (
        pre_tokenizers.Metaspace(),
        pre_tokenizers.ByteLevel(add_prefix_space=True),
        pre_tokenizers.Sequence([split(r"\w+"), plain_bytes()]),
        pre_tokenizers.Sequence(
            [split(r"\p{N}{1,3}"), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        ),
    ):
        tokenizer.backend.normalizer = None
        tokenizer.backend.pre_tokenizer = other
        assert TokenCounter(tokenizer).family is None


def test_unbroken_text_is_left_to_the_tokenizer():
    texts = ["中文字符" * 500, "x" * 5000]
    assert COUNTERS["gpt2"].count(texts).tolist() == expected(COUNTERS["gpt2"].tokenizer, texts)


def test_a_wrong_rule_is_noticed_while_counting(monkeypatch):
    tokenizer = train("gpt2")
    counter = TokenCounter(tokenizer)
    everywhere = pieces.Family(np.ones(256, dtype=np.bool_), np.zeros(16, dtype=np.bool_))
    monkeypatch.setattr(counter, "family", everywhere)
    with pytest.raises(ValueError, match="please report it"):
        counter.count(["the quick brown fox the quick"])


@pytest.mark.parametrize("name", ["gpt2", NAMES[-1]])
def test_joined_texts_are_counted_across_the_seam(name):
    counter = COUNTERS[name]
    left = [
        "assistant\n",
        "assistant\n\n",
        "a ",
        "a",
        "",
        "<|im_",
        "say <|im_start|>",
        "é",
        "don",
        "x\n",
    ]
    right = ["Hello", "\nHello", " b", " b", "x", "end|>", "assistant", " y", "'t", "5 z"]
    sums = counter.count(left) + counter.count(right)
    joined = counter.count_joined(pa.array(left), pa.array(right), sums)
    assert joined.tolist() == expected(
        counter.tokenizer, [a + b for a, b in zip(left, right, strict=True)]
    )
    assert (joined != sums).any()


GREEDY = [
    AddedToken("<|im_end|>", special=True, normalized=False, rstrip=True),
    AddedToken("<mask>", special=True, normalized=False, lstrip=True),
    AddedToken("WORD", special=True, normalized=False, single_word=True),
    AddedToken("    ", special=False, normalized=False),
]


@pytest.mark.parametrize("added", [None, GREEDY], ids=["plain", "greedy"])
@pytest.mark.parametrize("name", NAMES)
def test_any_seam_is_counted_as_the_whole_is(name, added):
    counter = COUNTERS[name] if added is None else TokenCounter(train(name, added=added))
    chance = random.Random(7)
    parts = [*WORDS, *NASTY, "<|im_start|>assistant\n", "<mask>", "WORD", "    ", "<|im_", "end|>"]
    left, right = (
        ["".join(chance.choices(parts, k=chance.randrange(1, 8))) for _ in range(1500)]
        for _ in range(2)
    )
    left += ["x" * 400, "one two " + "y" * 300, "", "a b"]
    right += ["z" * 400, "b c", "a", ""]
    sums = counter.count(left) + counter.count(right)
    joined = counter.count_joined(pa.array(left), pa.array(right), sums)
    assert joined.tolist() == expected(
        counter.tokenizer, [a + b for a, b in zip(left, right, strict=True)]
    )


def test_counting_imports_no_pandas(tmp_path):
    # pyarrow imports it wherever it must recognise a Python object: half a second of every run.
    backend = tokenizers.Tokenizer(models.BPE({"a": 0, "b": 1, "ab": 2}, [("a", "b")]))
    backend.pre_tokenizer = plain_bytes()
    backend.save(str(tmp_path / "tokenizer.json"))
    code = (
        "import sys; from fmtkit.core import buffers; from fmtkit.tokenizers import tokens;"
        "from fmtkit.counting.token_counts import TokenCounter;"
        f"counter = TokenCounter(tokens.load({str(tmp_path)!r}));"
        "left, right = buffers.texts(['ab', None, 'ab']), buffers.texts(['b', 'a', 'b']);"
        "counts = counter.count(left) + counter.count(right);"
        "print(counter.count_joined(left, right, counts).tolist(), 'pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("]")[1].strip() == "False"
