"""Cut a rendered conversation into prompt and reply by its structure, never by searching for the reply.

Texts may be real or symbolic (see symbols.py): a symbol is one character, so that a prefix of symbolic
texts is a prefix of the texts of every row that they stand for.

Some rows can be cut only by their real texts. If a generation prompt ends with `<think>`, the rendered
conversation begins with it only where the content of the reply does, which no symbol can show. Those
rows are found by comparing the column of contents.
"""

import re
from collections.abc import Sequence
from itertools import takewhile

import numpy as np

from fmtkit.core.buffers import Bools, Int64s
from fmtkit.core.data_classes import dataclass
from fmtkit.rendering.batch_answers import BatchContents, Unknowns, trimmed_slot
from fmtkit.rendering.tracing import Leaf, Refusal
from fmtkit.rendering.unknowns import symbolic


@dataclass(frozen=True, slots=True)
class Cut:
    """A prompt and its replies; `shortened` if the end of the generation prompt was removed."""

    prompt: str
    replies: tuple[str, ...]
    shortened: bool = False


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a row cannot be rendered: a code of `core.codes` and a message."""

    code: str
    message: str


_OPEN_TAG = re.compile(r"<[^<>\s]*$")


def cut(prompt: str | Refusal, rendered: Sequence[str | Refusal]) -> Cut | Problem | None:
    """Cut rendered conversations after the prompt and its generation prompt.

    None if a conversation does not begin with them.
    """
    if isinstance(prompt, Refusal):
        return Problem("template_error", prompt.message)
    texts: list[str] = []
    for text in rendered:
        if isinstance(text, Refusal):
            return Problem("template_error", text.message)
        texts.append(text)
    if not all(text.startswith(prompt) for text in texts):
        return None
    return Cut(prompt, tuple(text[len(prompt) :] for text in texts))


def common_length(one: str, two: str) -> int:
    """Return the length of the common prefix of two texts."""
    same = takewhile(lambda pair: pair[0] == pair[1], zip(one, two, strict=False))
    return sum(1 for _ in same)


def cut_at_header(prompt: str, bare: str | Refusal, rendered: Sequence[str]) -> Cut | None:
    """Cut after the common prefix of the generation prompt and the header of the replies.

    `bare` is the prompt without the generation prompt. The texts must be symbolic: in real texts, the
    beginning of a reply could be part of the common prefix. None if the template renders the turns
    of the prompt differently when a reply follows.
    """
    if isinstance(bare, Refusal) or not all(text.startswith(bare) for text in rendered):
        return None
    common = prompt[: min(common_length(prompt, text) for text in rendered)]
    header = common[len(bare) :]
    if len(common) < len(prompt):
        header = _OPEN_TAG.sub("", header)
    size = len(bare) + len(header)
    return Cut(prompt[:size], tuple(text[size:] for text in rendered), shortened=True)


def cut_by_text(leaf: Leaf, rows: BatchContents, chosen: Int64s) -> dict[int, Cut]:
    """Cut the rows of a leaf whose real texts begin with their prompts, although the symbolic ones do not."""
    prompt, _, *rendered = leaf.outputs
    texts = [text for text in (prompt, *rendered) if not isinstance(text, Refusal)]
    possible = np.ones(len(chosen), np.bool_)
    for text in texts[1:]:
        possible &= _possible(texts[0], text, leaf.unknowns, rows, chosen)
    found = {}
    for row in chosen[possible].tolist():
        real = _expanded(texts, leaf.unknowns, rows, row)
        made = cut(real[0], real[1:])
        if isinstance(made, Cut):
            found[row] = made
    return found


def _expanded(texts: Sequence[str], unknowns: Unknowns, rows: BatchContents, row: int) -> list[str]:
    return [rows.expand(text, unknowns, row) for text in texts]


def _possible(
    prompt: str, conversation: str, unknowns: Unknowns, rows: BatchContents, chosen: Int64s
) -> Bools:
    """Return for which rows the real conversation may begin with the real prompt.

    Only what follows the common prefix of the symbolic texts has to be compared.
    """
    size = common_length(prompt, conversation)
    rest, following = prompt[size:], conversation[size:]
    anything = np.ones(len(chosen), np.bool_)
    if not rest or symbolic(rest[0]):
        return anything
    if not symbolic(following[:1]):
        return ~anything
    trimmed = None if symbolic(rest) else trimmed_slot(following[0], unknowns)
    if trimmed is None:
        return anything
    slot, trims = trimmed
    column, places = rows.column(slot), rows.places(slot, chosen)
    short = column.trimmed(trims).sizes < len(rest.encode())
    possible: Bools = (column.startswith(trims, rest) | short)[places]
    return possible
