"""Positions at which a text can be split without changing its tokens, for byte-level tokenizers.

A byte-level BPE splits a text by a pattern and encodes each part (pre-token) separately. A cut between two
bytes is safe if every text has a boundary of parts there, and each side is split the same without the other.
Two families of rules cover the patterns of GPT-2 and of cl100k and its successors; with other patterns
nothing is cut. Next to control characters and characters beyond ASCII there is no cut, except before a space.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from fmtkit.core.data_classes import dataclass

Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]

CONTROL, LETTER, DIGIT, PUNCTUATION, APOSTROPHE, SLASH, SPACE, TAB, NEWLINE, BEYOND = range(10)
"""Classes of bytes; BEYOND is a byte of a character that is not ASCII."""

_WORD = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?"
_CASED = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+SUFFIX"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*SUFFIX"
)
_WHITE = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_MARKS = r"| ?[^\s\p{L}\p{N}]+[\r\n]*"
_SLASHES = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*"

CL100K_PATTERNS = frozenset(
    {
        # Llama 3, GLM 4
        (_WORD + r"\p{L}+|\p{N}{1,3}" + _MARKS + _WHITE,),
        # Qwen 2, 2.5, 3
        (_WORD + r"\p{L}+|\p{N}" + _MARKS + _WHITE,),
        # Qwen 3.5
        (_WORD + r"[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*" + _WHITE,),
        # o200k: gpt-oss, Llama 4
        (
            _CASED.replace("SUFFIX", r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?")
            + r"|\p{N}{1,3}"
            + _SLASHES
            + _WHITE,
        ),
        # Tekken (of Mistral)
        (_CASED.replace("SUFFIX", "") + r"|\p{N}" + _SLASHES + _WHITE,),
        # DeepSeek 3: three splits, one after the other; the last one by itself would join digits and words.
        (
            r"\p{N}{1,3}",
            r"[一-龥぀-ゟ゠-ヿ]+",
            r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"
            r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*" + _WHITE,
        ),
    }
)
"""The patterns of cl100k and its successors, each as its splits in order."""

GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""The pattern of `ByteLevel(use_regex=True)`."""


@dataclass(frozen=True)
class Family:
    """The safe cuts of a family of patterns."""

    pairs: Bools
    """Shape (256,): true at `16 * class before + class after` where a cut is between the two."""
    last_white: Bools
    """Shape (16,): white space that, as the last of a run, belongs to the word after it."""


def _family(*, newline_joins_marks: bool) -> Family:
    marks = (PUNCTUATION, APOSTROPHE, SLASH)
    # No match takes white space after anything else, except for newlines after marks in cl100k.
    cuts = [(before, after) for before in (LETTER, DIGIT, *marks) for after in (SPACE, TAB)]
    cuts += [(LETTER, NEWLINE), (DIGIT, NEWLINE)]
    # None takes letters and digits together, nor a mark after either, except for the 's of o200k.
    cuts += [(LETTER, DIGIT), (DIGIT, LETTER), (LETTER, PUNCTUATION), (LETTER, SLASH)]
    cuts += [(DIGIT, mark) for mark in marks] + [(mark, DIGIT) for mark in marks]
    if newline_joins_marks:
        # A run of newlines ends its match; only o200k lets slashes follow.
        cuts += [(NEWLINE, after) for after in (LETTER, DIGIT, PUNCTUATION, APOSTROPHE)]
    else:
        cuts += [(mark, NEWLINE) for mark in marks] + [(PUNCTUATION, LETTER), (SLASH, LETTER)]
    pairs = np.zeros(256, dtype=np.bool_)
    pairs[[16 * before + after for before, after in cuts]] = True
    last_white = np.zeros(16, dtype=np.bool_)
    last_white[[SPACE, TAB]] = True
    last_white[NEWLINE] = not newline_joins_marks
    return Family(pairs, last_white)


CL100K = _family(newline_joins_marks=True)
GPT2 = _family(newline_joins_marks=False)


def _classes() -> Bytes:
    table = np.full(256, BEYOND, dtype=np.uint8)
    table[:128] = CONTROL
    table[33:127] = PUNCTUATION
    for first, last, kind in (("0", "9", DIGIT), ("A", "Z", LETTER), ("a", "z", LETTER)):
        table[ord(first) : ord(last) + 1] = kind
    for text, kind in (
        (" ", SPACE),
        ("\t", TAB),
        ("\n\r", NEWLINE),
        ("'", APOSTROPHE),
        ("/", SLASH),
    ):
        table[[ord(character) for character in text]] = kind
    return table


CLASSES = _classes()
IS_WHITE = np.isin(np.arange(16), (SPACE, TAB, NEWLINE))
# A digit may be split off before white space is looked at (DeepSeek, StarCoder): then a run before
# it is whole.
IS_WORD = np.isin(np.arange(16), (LETTER, PUNCTUATION, APOSTROPHE, SLASH))


def family_of(tokenizer: dict[str, Any]) -> Family | None:
    """Return the family of a tokenizer.json; None if texts must not be split."""
    if tokenizer["model"].get("dropout") or not _keeps_ascii(tokenizer["normalizer"]):
        return None
    steps = _steps(tokenizer["pre_tokenizer"])
    if None in steps or "bytes" not in steps:
        return None
    patterns = tuple(step for step in steps if step not in ("digits", "bytes"))
    if patterns == (GPT2_PATTERN,):
        return GPT2
    return CL100K if patterns in CL100K_PATTERNS else None


def _keeps_ascii(normalizer: dict[str, Any] | None) -> bool:
    """Return whether runs of ASCII are unchanged; NFC composes no characters across their ends."""
    if normalizer is None or normalizer["type"] == "NFC":
        return True
    if normalizer["type"] == "Sequence":
        return all(_keeps_ascii(step) for step in normalizer["normalizers"])
    return False


def _steps(step: dict[str, Any] | None) -> list[str | None]:
    """Return the steps in order: patterns to split by, `digits`, `bytes`, and None for unknown ones."""
    if step is None:
        return [None]
    if step["type"] == "Sequence":
        return [found for inner in step["pretokenizers"] for found in _steps(inner)]
    if step["type"] == "ByteLevel" and not step["add_prefix_space"]:
        return [GPT2_PATTERN, "bytes"] if step["use_regex"] else ["bytes"]
    if step["type"] == "Digits":
        return ["digits"]
    if step["type"] == "Split" and step["behavior"] == "Isolated" and not step["invert"]:
        return [step["pattern"].get("Regex")]
    return [None]


def find_cuts(data: Bytes, ends: Ints, family: Family) -> Bools:
    """Mark the bytes that begin a piece; `ends` are the ends of the texts, which are split separately.

    The caller marks the first byte of each text.
    """
    classes = CLASSES[data]
    cuts = np.zeros(len(data), dtype=np.bool_)
    neighbours = (classes[:-1] << 4) | classes[1:]
    cuts[1:] = family.pairs[neighbours]
    # `\s+(?!\S)` leaves the last white space of a run to the word after it.
    last = family.last_white[classes]
    last[1:] &= IS_WHITE[classes[:-1]]
    last[:-1] &= IS_WORD[classes[1:]]
    last[ends[ends > 0] - 1] = False
    cuts |= last
    _cut_beyond_ascii(data, classes, cuts)
    return cuts


def _cut_beyond_ascii(data: Bytes, classes: Bytes, cuts: Bools) -> None:
    """Cut before a space that follows a character beyond ASCII, unless that is white space too."""
    places = np.flatnonzero((classes[1:] == SPACE) & (classes[:-1] == BEYOND)) + 1
    if len(places) == 0:
        return
    last, middle, first = (data[np.maximum(places - back, 0)] for back in (1, 2, 3))
    # U+0085 U+00A0 · U+1680 U+2000-200A U+2028 U+2029 U+202F U+205F U+3000 (U+180E was one once)
    white = (middle == 0xC2) & ((last == 0x85) | (last == 0xA0))
    white |= (first == 0xE1) & (
        ((middle == 0x9A) & (last == 0x80)) | ((middle == 0xA0) & (last == 0x8E))
    )
    general = (last <= 0x8A) | (last == 0xA8) | (last == 0xA9) | (last == 0xAF)
    white |= (first == 0xE2) & (((middle == 0x80) & general) | ((middle == 0x81) & (last == 0x9F)))
    white |= (first == 0xE3) & (middle == 0x80) & (last == 0x80)
    cuts[places[~white]] = True
