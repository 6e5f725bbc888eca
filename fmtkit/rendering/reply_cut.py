"""Cut a rendered conversation into prompt and reply by its structure, never by looking for the reply.

The texts may be real or symbolic (see symbols.py): a symbol is one character, so that a prefix of
symbolic texts is a prefix of the texts of every row that they stand for.

Few rows have real texts that are cut where the symbolic ones are not. A generation prompt that ends with
`<think>` is the beginning of a reply only if that reply's content begins so: a matter of the content, not
of the template. A column says which contents begin in the right way.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np

from fmtkit.core.buffers import Bools, Int64s
from fmtkit.rendering.batch_answers import Rows, Unknowns, trimmed_slot
from fmtkit.rendering.tracing import Fault, Leaf
from fmtkit.rendering.unknowns import symbolic


@dataclass(frozen=True, slots=True)
class Cut:
    """A prompt and its replies; `shortened`: without the end of the generation prompt."""

    prompt: str
    replies: tuple[str, ...]
    shortened: bool = False


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a row has no text: a code of codes.REASONS and what happened."""

    code: str
    message: str


_OPEN_TAG = re.compile(r"<[^<>\s]*$")


def cut(prompt: str | Fault, wholes: Sequence[str | Fault]) -> Cut | Problem | None:
    """Cut where the prompt with its generation prompt ends; None: replies begin otherwise."""
    if isinstance(prompt, Fault):
        return Problem("template_error", prompt.message)
    texts: list[str] = []
    for whole in wholes:
        if isinstance(whole, Fault):
            return Problem("template_error", whole.message)
        texts.append(whole)
    if not all(text.startswith(prompt) for text in texts):
        return None
    return Cut(prompt, tuple(text[len(prompt) :] for text in texts))


def shared(one: str, two: str) -> int:
    """Count the characters with which both texts begin."""
    same = takewhile(lambda pair: pair[0] == pair[1], zip(one, two, strict=False))
    return sum(1 for _ in same)


def cut_at_header(prompt: str, bare: str | Fault, wholes: Sequence[str]) -> Cut | None:
    """Cut after what the generation prompt and the replies' header share.

    `bare` is the prompt without the generation prompt. The texts must be symbolic: of real ones a
    reply that begins like the generation prompt continues would be shared as well. None where the
    template writes the turns before the reply differently once there is one.
    """
    if isinstance(bare, Fault) or not all(text.startswith(bare) for text in wholes):
        return None
    common = prompt[: min(shared(prompt, text) for text in wholes)]
    header = common[len(bare) :]
    if len(common) < len(prompt):
        header = _OPEN_TAG.sub("", header)
    size = len(bare) + len(header)
    return Cut(prompt[:size], tuple(text[size:] for text in wholes), shortened=True)


def cut_by_text(leaf: Leaf, rows: Rows, chosen: Int64s) -> dict[int, Cut]:
    """Cut the rows of a leaf whose whole texts begin with their prompts though no symbol says so."""
    prompt, _, *wholes = leaf.outputs
    texts = [text for text in (prompt, *wholes) if not isinstance(text, Fault)]
    possible = np.ones(len(chosen), np.bool_)
    for whole in texts[1:]:
        possible &= _possible(texts[0], whole, leaf.unknowns, rows, chosen)
    found = {}
    for row in chosen[possible].tolist():
        real = _expanded(texts, leaf.unknowns, rows, row)
        made = cut(real[0], real[1:])
        if isinstance(made, Cut):
            found[row] = made
    return found


def _expanded(texts: Sequence[str], unknowns: Unknowns, rows: Rows, row: int) -> list[str]:
    return [rows.expand(text, unknowns, row) for text in texts]


def _possible(prompt: str, whole: str, unknowns: Unknowns, rows: Rows, chosen: Int64s) -> Bools:
    """Return which rows' whole text may begin with the prompt, from where the symbolic ones part."""
    size = shared(prompt, whole)
    rest, following = prompt[size:], whole[size:]
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
