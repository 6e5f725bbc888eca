"""Rows whose real texts are cut where the symbolic ones are not.

A generation prompt that ends with `<think>` is the beginning of a reply only if that reply's content
begins so: a matter of the content, not of the template. Few rows are looked at: a column says which
contents begin in the right way.
"""

from collections.abc import Sequence

import numpy as np

from fmtkit.core.buffers import Bools, Int64s
from fmtkit.rendering.batch_answers import Rows, Unknowns, trimmed_slot
from fmtkit.rendering.reply_cut import Cut, cut, shared
from fmtkit.rendering.tracing import Fault, Leaf
from fmtkit.rendering.unknowns import symbolic


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
    """Say which rows' whole text may begin with the prompt, from where the symbolic ones part."""
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
