"""The tokens of rows of text with the BOS and EOS that TRL's trainers put around them.

TRL's present trainers write EOS behind a reply that does not end with it and let the tokenizer add what it
adds to any text (`text`); CPO's and ORPO's put the ids of BOS and EOS (`ids`). Tests compare both with TRL's
own trainers.
"""

from collections.abc import Callable

from fmtkit.core.data_classes import dataclass
from fmtkit.core.runner import TextEnds
from fmtkit.tokenizers.tokens import Tokenizer

Span = tuple[int, int]


@dataclass(frozen=True)
class TextTokens:
    """The tokens of a text, and where they are in it."""

    text: str
    """The text with the EOS that was written behind it."""
    ids: list[int]
    offsets: tuple[Span, ...]
    """Start and end of each token in `text`, in characters; (n, n) for one that the text does not have."""


def tokens_of(text: str, tokenizer: Tokenizer, ends: TextEnds, *, closed: bool) -> TextTokens:
    """Return the tokens of a text with its BOS, and with EOS behind it if it is `closed`.

    Raises TokenizerError if a text is to be closed and the tokenizer has no EOS.
    """
    if ends == "ids":
        return _with_ids(text, tokenizer, closed=closed)
    if ends and closed:
        text = closed_text(text, needed_eos(tokenizer))
    encoding = tokenizer.encode(text, add_special_tokens=bool(ends))
    offsets = list(encoding.offsets)
    for place in range(len(offsets) - 1, -1, -1):
        # What a tokenizer adds behind a text is at its end, not at its beginning.
        if not (encoding.special_tokens_mask[place] and offsets[place] == (0, 0) and place):
            break
        offsets[place] = (len(text), len(text))
    return TextTokens(text, list(encoding.ids), tuple(offsets))


def begun(text: str, tokenizer: Tokenizer, ends: TextEnds) -> list[int]:
    """Return the ids of a text that a model is to continue: with its BOS, and without an end."""
    if ends != "text":
        return tokens_of(text, tokenizer, ends, closed=False).ids
    encoding = tokenizer.encode(text, add_special_tokens=True)
    ids, special = list(encoding.ids), list(encoding.special_tokens_mask)
    while len(ids) > 1 and special[-1]:
        ids, special = ids[:-1], special[:-1]
    return ids


def closed_text(text: str, eos: str) -> str:
    """Return a text with EOS behind it, unless it ends with one."""
    return text if text.endswith(eos) else text + eos


def needed_eos(tokenizer: Tokenizer) -> str:
    """Return the EOS token; raise TokenizerError where there is none."""
    return tokenizer.needs("eos_token", "text that ends where it is trained on")


def _with_ids(text: str, tokenizer: Tokenizer, *, closed: bool) -> TextTokens:
    encoding = tokenizer.encode(text)
    ids, offsets = list(encoding.ids), list(encoding.offsets)
    if tokenizer.bos_id is not None and ids[:1] != [tokenizer.bos_id]:
        ids, offsets = [tokenizer.bos_id, *ids], [(0, 0), *offsets]
    if not closed:
        return TextTokens(text, ids, tuple(offsets))
    eos, end = needed_eos(tokenizer), len(text)
    if tokenizer.eos_id is not None and ids[-1:] != [tokenizer.eos_id]:
        text += eos
        ids, offsets = [*ids, tokenizer.eos_id], [*offsets, (end, len(text))]
    return TextTokens(text, ids, tuple(offsets))


Writer = Callable[[str, bool, bool], str]
"""Returns a text with its special tokens, given whether it begins its row and whether it ends it."""


def written_around(tokenizer: Tokenizer, ends: TextEnds) -> Writer:
    """Return what writes special tokens around texts, for rows to which the trainer adds none."""
    before, after = map("".join, added_around(tokenizer) if ends == "text" else ([], []))
    if ends == "ids":
        before = tokenizer.special_tokens.get("bos_token", "")
    eos = needed_eos(tokenizer) if ends else ""

    def write(text: str, begins: bool, closes: bool) -> str:
        if begins and not (ends == "ids" and text.startswith(before)):
            text = before + text
        return closed_text(text, eos) + after if closes and ends else text

    return write


def added_before(tokenizer: Tokenizer) -> str:
    """Return the special tokens that the tokenizer puts before any text."""
    return "".join(added_around(tokenizer)[0])


def added_around(tokenizer: Tokenizer) -> tuple[list[str], list[str]]:
    """Return the special tokens that the tokenizer adds before and behind any text."""
    encoding = tokenizer.encode("a", add_special_tokens=True)
    own = [i for i, special in enumerate(encoding.special_tokens_mask) if not special]
    first, last = (own[0], own[-1] + 1) if own else (0, 0)
    names = [tokenizer.backend.id_to_token(number) or "" for number in encoding.ids]
    return names[:first], names[last:]
