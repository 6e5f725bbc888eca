"""Exact token counts of the strings of a column, without tokenizing each of them.

Strings are split where no token can cross the boundary (fmtkit.counting.pieces), the tokenizer counts each
distinct piece once, and the counts are added up. With a tokenizer for which no such boundaries are known,
each string is tokenized. A counter can hash the ids of each string in the same way (`id_hashes`).
"""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fmtkit.core import buffers
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import TokenizerError
from fmtkit.counting import added_tokens, id_hashes, pieces, text_bytes
from fmtkit.counting.id_hashes import Hashes
from fmtkit.tokenizers.tokens import Tokenizer

Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]

BLOCK_BYTES = 8 << 20
"""Bytes of text that one thread counts at a time: enough for words to repeat."""

ASK_BYTES = 1 << 20
"""Bytes of text per call of the tokenizer, whose ids and offsets take 60 bytes per byte."""

MEMO_PIECES = 500_000
"""Pieces whose counts are kept, about 100 bytes each; when full, the memo is emptied."""

MEMO_PIECE_BYTES = 64
"""Bytes of the longest piece that is kept; longer ones are rarely repeated."""

LONG_PIECES = 40
"""Mean bytes of a piece above which splitting (Chinese, base64) costs more than it saves."""

NEAR = 256
"""Bytes on either side of a seam in which a boundary is searched."""

SAMPLE = 509
"""Every n-th distinct string is also counted by the tokenizer as a check, at least one per block."""


@dataclass
class TokenCounter:
    """Counts the tokens of strings as `len(encode(string, add_special_tokens=False))` does.

    Keeps the counts of pieces between calls. Safe to use from one thread at a time.
    """

    tokenizer: Tokenizer
    threads: int = 2
    hashes_ids: bool = False
    """Whether ids are hashed too, for `count_and_hash`."""
    family: pieces.Family | None = field(init=False)
    added: tuple[added_tokens.AddedTokens, ...] = field(init=False)
    ascii_only: bool = field(init=False)
    cuttable: Bools = field(init=False, repr=False)
    memo: dict[bytes, int] = field(init=False, default_factory=dict, repr=False)
    hashed: dict[bytes, int] = field(init=False, default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        description = json.loads(self.tokenizer.backend.to_str())
        self.family = pieces.family_of(description)
        self.added = added_tokens.passes(description["added_tokens"])
        # A normalizer could make an added token out of other characters.
        normalized = any(token["normalized"] for token in description["added_tokens"])
        self.ascii_only = normalized and description["normalizer"] is not None
        self.cuttable = self._cuttable([t["content"].encode() for t in description["added_tokens"]])

    def count(self, texts: pa.Array | pa.ChunkedArray | list[str]) -> Ints:
        """Return the number of tokens of each string; 0 for a null."""
        return self.count_and_hash(texts)[0]

    def count_and_hash(self, texts: pa.Array | pa.ChunkedArray | list[str]) -> tuple[Ints, Hashes]:
        """Return the number of tokens of each string and the hash of their ids; 0 for a null.

        The hashes are 0 where the counter does not hash ids.
        """
        if isinstance(texts, list):
            texts = buffers.texts(texts)
        if isinstance(texts, pa.ChunkedArray):
            texts = buffers.whole(texts)
        if len(texts) == 0:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.uint64)
        distinct = texts.cast(pa.large_string()).dictionary_encode()
        counts, hashes = self._count_distinct(distinct.dictionary)
        found = buffers.integers(distinct.indices)
        index = np.where(buffers.validity(distinct.indices), found, len(counts))
        return np.append(counts, 0)[index], np.append(hashes, np.uint64(0))[index]

    def count_joined(self, left: pa.Array, right: pa.Array, counts: Ints) -> Ints:
        """Return the number of tokens of `left + right` in each row; `counts` are the sums for the two.

        Where no token can cross the seam, that sum is the result. Elsewhere the text between the nearest
        boundaries around the seam is counted again, or all of it if none is near.
        """
        seams = text_bytes.seams(left, right)
        merging = np.flatnonzero(~self.cuttable[seams])
        if len(merging) == 0:
            return counts
        result = counts.copy()
        left, right = (text_bytes.of_rows(texts, merging) for texts in (left, right))
        tails, heads = self._around(left, right)
        near = np.flatnonzero((tails >= 0) & (heads >= 0))
        if len(near):
            ends = text_bytes.ends_of(text_bytes.of_rows(left, near), tails[near], from_end=True)
            starts = text_bytes.ends_of(
                text_bytes.of_rows(right, near), heads[near], from_end=False
            )
            joined = self.count(text_bytes.joined(ends, starts))
            result[merging[near]] += joined - self.count(ends) - self.count(starts)
        far = np.flatnonzero((tails < 0) | (heads < 0))
        if len(far):
            result[merging[far]] = self.count(
                text_bytes.joined(text_bytes.of_rows(left, far), text_bytes.of_rows(right, far))
            )
        return result

    def _around(self, left: pa.LargeStringArray, right: pa.LargeStringArray) -> tuple[Ints, Ints]:
        """Return the bytes between the seam and the nearest boundary on each side; -1 if none is near."""
        data, borders = text_bytes.flat(left)
        places = np.maximum(borders[1:, None] - NEAR + np.arange(NEAR), borders[:-1, None])
        before = self._cuts_within(data, places)
        tails = np.where(before.any(axis=1), 1 + np.argmax(before[:, ::-1], axis=1), -1)
        data, borders = text_bytes.flat(right)
        last = np.maximum(borders[1:, None] - 1, borders[:-1, None])
        places = np.minimum(borders[:-1, None] + np.arange(NEAR), last)
        after = self._cuts_within(data, places)
        return tails, np.where(after.any(axis=1), 1 + np.argmax(after, axis=1), -1)

    def _cuts_within(self, data: Bytes, places: Ints) -> Bools:
        """Return for each pair of neighbours in rows of places whether a boundary is between them."""
        if len(data) == 0:
            return np.zeros((len(places), NEAR - 1), dtype=np.bool_)
        near = data[np.minimum(places, len(data) - 1)].astype(np.int64)
        cuts = self.cuttable[256 * near[:, :-1] + near[:, 1:]]
        found: Bools = cuts & (places[:, 1:] > places[:, :-1])
        return found

    def _cuttable(self, added: list[bytes]) -> Bools:
        """Return a table that is true at `256 * last byte + first byte` if no token can cross that seam."""
        table = np.zeros((256, 256), dtype=np.bool_)
        if self.family is not None and not self.ascii_only:
            classes = pieces.CLASSES.astype(np.int64)
            table = self.family.pairs[16 * classes[:, None] + classes[None, :]]
        for token in added:
            for first, second in pairwise(token):
                table[first, second] = False
        greedy = [token for kind in self.added for token in kind.greedy]
        for token in greedy:
            # Its match depends on its neighbours: it strips white space, or must be a single word.
            table[token[-1], :] = table[:, token[0]] = False
        if greedy:
            white = np.flatnonzero(pieces.IS_WHITE[pieces.CLASSES])
            table[np.ix_(white, white)] = False
        return table.reshape(-1)

    def _count_distinct(self, texts: pa.LargeStringArray) -> tuple[Ints, Hashes]:
        family = self.family
        if family is None or len(texts) == 0:
            return self._ask(texts)
        blocks = list(text_bytes.blocks(texts, BLOCK_BYTES))
        if len(blocks) == 1 or self.threads == 1:
            parts = [self._count_block(block, family) for block in blocks]
        else:
            with ThreadPoolExecutor(self.threads) as pool:
                parts = list(pool.map(lambda block: self._count_block(block, family), blocks))
        counts, hashes = zip(*parts, strict=True)
        return np.concatenate(counts), np.concatenate(hashes)

    def _count_block(
        self, texts: pa.LargeStringArray, family: pieces.Family
    ) -> tuple[Ints, Hashes]:
        data, borders = text_bytes.flat(texts)
        starts, ends = borders[:-1], borders[1:]
        if len(data) == 0:
            return np.zeros(len(texts), dtype=np.int64), np.zeros(len(texts), dtype=np.uint64)
        found = added_tokens.find(data, ends, self.added)
        cuts = pieces.find_cuts(data, np.concatenate((ends, found.starts)), family)
        inside = _inside(len(data), found)
        cuts &= ~inside
        cuts[found.starts] = True
        after = np.concatenate((starts, found.ends))
        cuts[after[after < len(data)]] = True
        places = np.flatnonzero(cuts)
        if len(data) > LONG_PIECES * len(places):
            return self._ask(texts)
        piece_counts, piece_hashes = self._count_pieces(data, places)
        total = np.concatenate(([0], np.cumsum(piece_counts)))
        first, last = np.searchsorted(places, starts), np.searchsorted(places, ends)
        counts = total[last] - total[first]
        hashes = np.zeros(len(texts), np.uint64)
        if self.hashes_ids:
            hashes = id_hashes.joined(piece_hashes, total, first, last)
        whole = self._whole(data, borders, found)
        if len(whole):
            counts[whole], hashes[whole] = self._ask(texts.take(buffers.int64s(whole)))
        self._check(texts, counts, hashes)
        return counts, hashes

    def _whole(self, data: Bytes, borders: Ints, found: added_tokens.TokenSpans) -> Ints:
        """Return the strings of a block that must not be split."""
        places = found.starts[found.greedy]
        if self.ascii_only:
            places = np.concatenate((places, np.flatnonzero(data >= 128)))
        return np.unique(np.searchsorted(borders, places, side="right") - 1)

    def _count_pieces(self, data: Bytes, places: Ints) -> tuple[Ints, Hashes]:
        borders = np.append(places, len(data)).astype(np.int32)
        all_pieces = pa.Array.from_buffers(
            pa.binary(), len(places), [None, pa.py_buffer(borders), pa.py_buffer(data)]
        )
        distinct = all_pieces.dictionary_encode()
        keys = distinct.dictionary.to_pylist()
        known = [self.memo.get(key, -1) for key in keys]
        hashed = [self.hashed.get(key, 0) for key in keys] if self.hashes_ids else [0]
        new = [number for number, count in enumerate(known) if count < 0]
        if new:
            asked = self._ask(text_bytes.large(keys[number].decode() for number in new))
            self._remember([keys[number] for number in new], *asked)
            for number, count in zip(new, asked[0].tolist(), strict=True):
                known[number] = count
            if self.hashes_ids:
                for number, value in zip(new, asked[1].tolist(), strict=True):
                    hashed[number] = value
        index = buffers.integers(distinct.indices)
        counts: Ints = np.array(known, dtype=np.int64)[index]
        hashes: Hashes = np.array(hashed, np.uint64)
        return counts, hashes[index] if self.hashes_ids else hashes

    def _remember(self, keys: list[bytes], counts: Ints, hashes: Hashes) -> None:
        if len(self.memo) + len(keys) > MEMO_PIECES:
            self.memo, self.hashed = {}, {}
        for memo, values, is_kept in (
            (self.memo, counts, True),
            (self.hashed, hashes, self.hashes_ids),
        ):
            if is_kept:
                new = zip(keys[:MEMO_PIECES], values.tolist(), strict=False)
                memo.update((key, value) for key, value in new if len(key) <= MEMO_PIECE_BYTES)

    def _ask(self, texts: pa.LargeStringArray) -> tuple[Ints, Hashes]:
        """Let the tokenizer count each text, and hash its ids if they are asked for."""
        counts: list[int] = []
        hashes: list[Hashes] = [np.zeros(0, np.uint64)]
        for block in text_bytes.blocks(texts, ASK_BYTES):
            encodings = self.tokenizer.backend.encode_batch_fast(
                block.to_pylist(), add_special_tokens=False
            )
            sizes = [*map(len, encodings)]
            counts.extend(sizes)
            hashes.append(
                id_hashes.of((one.ids for one in encodings), sizes)
                if self.hashes_ids
                else np.zeros(len(sizes), np.uint64)
            )
        return np.array(counts, dtype=np.int64), np.concatenate(hashes)

    def _check(self, texts: pa.LargeStringArray, counts: Ints, hashes: Hashes) -> None:
        sample = np.arange(0, len(texts), SAMPLE)
        expected, ids = self._ask(texts.take(buffers.int64s(sample)))
        wrong = np.flatnonzero((expected != counts[sample]) | (ids != hashes[sample]))
        if len(wrong):
            text = texts[int(sample[wrong[0]])].as_py()
            raise TokenizerError(
                f"fmtkit miscounts the tokens of a string with tokenizer {self.tokenizer.name!r}: "
                f"please report it with this string: {text[:200]!r}"
            )


def _inside(size: int, found: added_tokens.TokenSpans) -> Bools:
    """Mark the bytes of added tokens, except the first byte of each."""
    steps = np.zeros(size + 1, dtype=np.int8)
    steps[found.starts + 1] += 1
    np.add.at(steps, found.ends, -1)
    return np.cumsum(steps[:-1], dtype=np.int8) > 0
