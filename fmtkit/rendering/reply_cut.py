"""Cut a rendered conversation into prompt and reply by its structure, never by looking for the
reply.

The texts may be real or symbolic (see symbols.py): a symbol is one character, so that a prefix of
symbolic texts is a prefix of the texts of every row that they stand for.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from fmtkit.rendering.tracing import Fault


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
    reply that begins like the generation prompt goes on would be shared as well. None where the
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
