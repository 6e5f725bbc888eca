"""Where a tokenizer's added tokens are in a block of texts.

A tokenizer takes them out of a text before anything else looks at it: leftmost first, of those the
longest, first the tokens that are matched as they are, then in the rest those of the normalized
text.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from fmtkit.core.data_classes import dataclass

Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class AddedTokens:
    """The added tokens of one pass, by how they begin."""

    first: Bools
    """Shape (256,): the bytes that one of them begins with."""
    lengths: dict[bytes, tuple[int, ...]]
    """First two bytes (or the only one) -> lengths of the tokens that begin with them, longest first."""
    by_length: dict[int, npt.NDArray[np.bytes_]]
    """Length in bytes -> the tokens of that length, longest first."""
    greedy: frozenset[bytes]
    """Those that include adjacent white space, or match only between words."""


def passes(added: list[dict[str, Any]]) -> tuple[AddedTokens, ...]:
    """Make the passes of a tokenizer.json's `added_tokens`; a pass without tokens is left out."""
    groups = (
        [t for t in added if t["normalized"] is is_normalized] for is_normalized in (False, True)
    )
    return tuple(_pass(group) for group in groups if group)


def _pass(added: list[dict[str, Any]]) -> AddedTokens:
    first = np.zeros(256, dtype=np.bool_)
    lengths: dict[bytes, set[int]] = {}
    contents = {token["content"].encode(): token for token in added if token["content"]}
    for content in contents:
        first[content[0]] = True
        lengths.setdefault(content[:2], set()).add(len(content))
    greedy = [
        content
        for content, token in contents.items()
        if token["lstrip"] or token["rstrip"] or token["single_word"]
    ]
    ordered = {start: tuple(sorted(found, reverse=True)) for start, found in lengths.items()}
    sizes = sorted({len(content) for content in contents}, reverse=True)
    by_length = {n: np.array([c for c in contents if len(c) == n], dtype=f"S{n}") for n in sizes}
    return AddedTokens(first, ordered, by_length, frozenset(greedy))


@dataclass(frozen=True)
class TokenSpans:
    """Added tokens in a block: where each begins and ends (bytes), and which of them are greedy."""

    starts: Ints
    ends: Ints
    greedy: Bools


def find(data: Bytes, ends: Ints, kinds: tuple[AddedTokens, ...]) -> TokenSpans:
    """Find the added tokens in texts that end at `ends`."""
    spans: list[tuple[int, int, bool]] = []
    limits = ends
    for kind in kinds:
        new = _find_pass(data, limits, kind, spans)
        spans = sorted([*spans, *new])
        limits = np.unique(
            np.concatenate((ends, np.array([s for s, _, _ in spans], dtype=np.int64)))
        )
    table = np.array(spans, dtype=np.int64).reshape(-1, 3)
    return TokenSpans(table[:, 0], table[:, 1], table[:, 2].astype(np.bool_))


def _find_pass(
    data: Bytes, limits: Ints, kind: AddedTokens, taken: list[tuple[int, int, bool]]
) -> list[tuple[int, int, bool]]:
    places = np.flatnonzero(kind.first[data])
    if len(places) == 0:
        return []
    # A second byte rules out most places, for `<` and `[` are common and `<|` is not.
    seconds = np.zeros((256, 256), dtype=np.bool_)
    for start in kind.lengths:
        seconds[start[0], start[1] if len(start) > 1 else slice(None)] = True
    following = data[np.minimum(places + 1, len(data) - 1)]
    places = places[seconds[data[places], following]]
    if taken:
        before = np.searchsorted([start for start, _, _ in taken], places, side="right") - 1
        taken_ends = np.array([end for _, end, _ in taken])
        places = places[(before < 0) | (taken_ends[before] <= places)]
    limit = limits[np.searchsorted(limits, places, side="right")]
    sizes, greedy = _sizes_at(data, places, limit, kind)
    there = np.flatnonzero(sizes)
    starts, stops = places[there], places[there] + sizes[there]
    if len(there) and (stops[:-1] > starts[1:]).any():
        free = _leftmost(starts.tolist(), stops.tolist())
        there, starts, stops = there[free], starts[free], stops[free]
    return list(zip(starts.tolist(), stops.tolist(), greedy[there].tolist(), strict=True))


def _sizes_at(data: Bytes, places: Ints, limit: Ints, kind: AddedTokens) -> tuple[Ints, Bools]:
    """Return the bytes of the longest token at each place, 0 where there is none, and if greedy."""
    sizes = np.zeros(len(places), dtype=np.int64)
    greedy = np.zeros(len(places), dtype=np.bool_)
    for length, contents in kind.by_length.items():
        left = np.flatnonzero((sizes == 0) & (places + length <= limit))
        if not len(left):
            continue
        there = np.ascontiguousarray(data[places[left][:, None] + np.arange(length)])
        # Both sides have the same length, so that numpy's dropping of trailing zeros makes no two equal.
        texts = there.view(f"S{length}").ravel()
        hits = left[np.isin(texts, contents)]
        sizes[hits] = length
        taking = [text for text in kind.greedy if len(text) == length]
        if taking:
            greedy[left[np.isin(texts, np.array(taking, dtype=f"S{length}"))]] = True
    return sizes, greedy


def _leftmost(starts: list[int], stops: list[int]) -> list[int]:
    """Choose from the left spans that do not overlap."""
    chosen, free = [], 0
    for number, (start, stop) in enumerate(zip(starts, stops, strict=True)):
        if start >= free:
            chosen.append(number)
            free = stop
    return chosen
