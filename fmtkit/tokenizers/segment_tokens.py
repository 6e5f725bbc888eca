"""Tokenizes segments of text into token ids and the marks of those that are trained on.

Each segment is tokenized separately, so that no token spans trained and untrained text; a test compares the
result with TRL's batches.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from fmtkit.core.data_classes import dataclass
from fmtkit.tokenizers.tokens import Tokenizer

Span = tuple[int, int]


@dataclass(frozen=True)
class SegmentTokens:
    """The tokens of one row; `trained` is true for each token that is trained on."""

    text: str
    """The text of the tokens, with BOS and EOS."""
    ids: list[int]
    trained: list[bool]
    offsets: list[Span]
    """Start and end of each token in `text`, in characters."""

    @property
    def labels(self) -> list[int]:
        """Return the ids of the trained tokens, and -100 for all others."""
        return [
            i if is_trained else -100 for i, is_trained in zip(self.ids, self.trained, strict=True)
        ]


def segment_tokens(
    segments: Sequence[Mapping[str, Any]],
    ends: str,
    tokenizer: Tokenizer,
    *,
    everything: bool = False,
) -> SegmentTokens:
    """Tokenize the segments of a row; with `everything` all of them are trained on (`train_on_inputs`).

    Unless `ends` is "none", the special tokens that the tokenizer adds before a text come first, and its EOS
    last unless the text ends with it. Raises TokenizerError if the tokenizer has no EOS.
    """
    row = SegmentTokens("", [], [], [])
    for place, segment in enumerate(segments):
        is_trained = everything or bool(segment["label"])
        begins = place == 0 and ends != "none"
        row = _joined(row, _encoded(segment["text"], tokenizer, begins=begins), is_trained)
    if ends == "none":
        return row
    closing = tokenizer.needs("eos_token", "a text that is trained on to its end")
    eos = tokenizer.eos_id
    if eos is None or (row.ids and row.ids[-1] == eos):
        return row
    last = everything or bool(segments and segments[-1]["label"])
    return _joined(row, SegmentTokens(closing, [eos], [], [(0, len(closing))]), last)


def _encoded(text: str, tokenizer: Tokenizer, *, begins: bool) -> SegmentTokens:
    encoding = tokenizer.encode(text)
    bare = SegmentTokens(text, encoding.ids, [], list(encoding.offsets))
    if not begins:
        return bare
    added = tokenizer.encode(text, add_special_tokens=True)
    special = added.special_tokens_mask
    first = special.index(0) if 0 in special else special.count(1) if len(special) == 1 else 0
    ids = added.ids[:first]
    written = [tokenizer.backend.id_to_token(i) or "" for i in ids]
    places, at = [], 0
    for word in written:
        places.append((at, at + len(word)))
        at += len(word)
    return _joined(SegmentTokens("".join(written), ids, [], places), bare, is_trained=False)


def _joined(left: SegmentTokens, right: SegmentTokens, is_trained: bool) -> SegmentTokens:
    shift = len(left.text)
    return SegmentTokens(
        left.text + right.text,
        [*left.ids, *right.ids],
        [*left.trained, *[is_trained] * len(right.ids)],
        [*left.offsets, *((start + shift, end + shift) for start, end in right.offsets)],
    )


def cut(row: SegmentTokens, longest: int) -> list[SegmentTokens]:
    """Split a document into rows of a maximum number of tokens, as axolotl's `completion` does."""
    return [_part(row, slice(at, at + longest)) for at in range(0, len(row.ids), longest)]


def _part(row: SegmentTokens, part: slice) -> SegmentTokens:
    offsets = row.offsets[part]
    start, end = min(a for a, _ in offsets), max(b for _, b in offsets)
    return SegmentTokens(
        row.text[start:end],
        row.ids[part],
        row.trained[part],
        [(a - start, b - start) for a, b in offsets],
    )
