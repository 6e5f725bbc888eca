"""A leaf as JSON, on its way out of the worker process, and whether it may be followed."""

from collections import Counter
from typing import Any

from fmtkit.rendering.tracing import Fault, Leaf
from fmtkit.rendering.unknowns import Derived, Question, Slot, Unknown, symbolic

GROWING = frozenset({"replace", "expandtabs", "rewritten", "printed"})
"""Operations that can make a long text of a short one: JSON grows by its indents and escapes."""


def encode_leaf(leaf: Leaf) -> list[Any]:
    """Write a leaf as JSON values."""
    return [
        [_encode_unknown(unknown) for unknown in leaf.unknowns],
        [[q.predicate, q.text, q.arguments, answer] for q, answer in leaf.path],
        [[o.message, o.raised] if isinstance(o, Fault) else o for o in leaf.outputs],
    ]


def _encode_unknown(unknown: Unknown) -> list[Any]:
    if isinstance(unknown, Slot):
        return [unknown.dialog, unknown.message, unknown.key]
    return [unknown.operation, unknown.text, unknown.arguments, None]


def decode_leaf(encoded: list[Any]) -> Leaf:
    """Read what encode_leaf wrote."""
    unknowns, path, outputs = encoded
    return Leaf(
        tuple(_decode_unknown(unknown) for unknown in unknowns),
        tuple((Question(q, text, tuples(given)), answer) for q, text, given, answer in path),
        tuple(Fault(*output) if isinstance(output, list) else output for output in outputs),
    )


def _decode_unknown(encoded: list[Any]) -> Unknown:
    if len(encoded) == 3:
        return Slot(*encoded)
    operation, text, given, _ = encoded
    return Derived(operation, text, tuples(given))


def tuples(values: list[Any]) -> tuple[Any, ...]:
    """Make tuples of lists, at any depth."""
    return tuple(tuples(value) if isinstance(value, list) else value for value in values)


def harmless(leaf: Leaf, growth: int, spare: int) -> bool:
    """Say whether no row's texts can grow by it more than rendering allows."""
    if any(isinstance(u, Derived) and u.operation in GROWING for u in leaf.unknowns):
        return False
    texts = [output for output in leaf.outputs if isinstance(output, str)]
    texts += [unknown.text for unknown in leaf.unknowns if isinstance(unknown, Derived)]
    return all(_moderate(text, growth, spare) for text in texts)


def _moderate(text: str, growth: int, spare: int) -> bool:
    if len(text) > spare:
        return False
    return all(count <= growth for c, count in Counter(text).items() if symbolic(c))
