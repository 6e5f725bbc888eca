"""The parts of a row: what each message wrote, and what the template wrote between them.

They follow from the origins of the tokens. Of a sequence that another trainer made, they follow from those of
the other side, word by word where both have the same words in the same order; what is between two words of
one text of a message is of that text, a turn that begins with a role is one of its own, and all else is of
the template.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from difflib import SequenceMatcher
from itertools import accumulate, groupby, pairwise
from typing import NamedTuple

import numpy as np

from fmtkit.core.data_classes import dataclass
from fmtkit.diffing.texts import (
    ROLES,
    bare,
    has_words,
    is_only_marks,
    squeezed,
    without_marks,
)
from fmtkit.masks.masked import Masked
from fmtkit.masks.origins import (
    CONTENT,
    KINDS,
    PAD_IMAGE,
    REASONING,
    TOOL_CALL,
    TOOLS,
    Origins,
)

_SAID = (CONTENT, REASONING, TOOL_CALL, TOOLS, PAD_IMAGE)
"""Kinds of what messages and descriptions of tools wrote."""
_KIND = {PAD_IMAGE: CONTENT}
_WORDS = re.compile(r"\w+|[^\w\s]")
_LONG = 4_000
"""Words from which on frequent ones are not matched by themselves."""
_ADDED = 1_000_000
"""From this number on turns are of one side alone."""
TEMPLATE = "template"


class Part(NamedTuple):
    """A stretch of a row."""

    turn: int
    """The number of the message; -1 for what is of none."""
    role: str
    """Empty where it is not known."""
    kind: str
    """content, reasoning, tool_call, tools, or template."""
    text: str

    @property
    def is_template(self) -> bool:
        """Return whether the template wrote it."""
        return self.kind == TEMPLATE


@dataclass(frozen=True)
class Spelling:
    """How ids become text."""

    decode: Callable[[Sequence[int]], str]
    control: frozenset[int]

    def spelled(self, ids: Sequence[int]) -> tuple[str, list[tuple[int, int]]]:
        """Return the text of some tokens, and where its words are; a control token is one."""
        text, places = "", []
        for is_control, run in groupby(ids, self.control.__contains__):
            for tokens in [[one] for one in run] if is_control else [[*run]]:
                more = self.decode(tokens)
                found = (
                    [(0, len(more))] if is_control else (m.span() for m in _WORDS.finditer(more))
                )
                places += [(len(text) + start, len(text) + end) for start, end in found]
                text += more
        return text, places

    @property
    def marks(self) -> frozenset[str]:
        """Return the texts of the control tokens."""
        return frozenset(self.decode([one]) for one in self.control)


def parts_of(one: Masked, spelling: Spelling) -> list[Part] | None:
    """Return the parts of a sequence with origins; None for one without."""
    if one.origins is None or one.origins.by == "spans":
        return None
    return [
        Part(*key, spelling.decode(one.ids[stretch].tolist()))
        for key, stretch in _stretches(one.origins)
    ]


def _stretches(origins: Origins) -> Iterator[tuple[tuple[int, str, str], slice]]:
    # What the template writes around a content is its own, around calls and reasoning it is of them.
    said = np.isin(origins.kinds, _SAID) & ~(origins.by_template & (origins.kinds == CONTENT))
    codes = np.where(said, origins.messages.astype(np.int64) * len(KINDS) + origins.kinds, -99)
    borders = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)]
    for start, end in pairwise(borders):
        if start == end:
            continue
        number = int(origins.messages[start])
        if not said[start]:
            yield (-1, "", TEMPLATE), slice(start, end)
            continue
        kind = int(origins.kinds[start])
        role = origins.roles[number] if number >= 0 else ""
        yield (number, role, KINDS[_KIND.get(kind, kind)]), slice(start, end)


def parts_by_turns(ids: Sequence[int], spelling: Spelling) -> list[Part]:
    """Return the parts of a sequence of which no origin is known: what is between two control tokens."""
    found: list[Part] = []
    heading, turn = "", 0
    for is_control, run in groupby(ids, spelling.control.__contains__):
        text = spelling.decode(list(run))
        if is_control or not bare(text):
            heading += text
            continue
        # The role is in the heading, or it begins the text.
        role = ROLES.search(heading) or ROLES.match(text.strip())
        named = role[1].lower().removesuffix("_prompt") if role else ""
        found += [Part(-1, "", TEMPLATE, heading)] if heading else []
        inside = ROLES.match(text.strip())
        said = text.strip()[inside.end() :] if inside else text
        found += [Part(-1, "", TEMPLATE, inside[0])] if inside else []
        found.append(Part(turn, named, "content", said))
        heading, turn = "", turn + 1
    return [*found, Part(-1, "", TEMPLATE, heading)] if heading else found


def parts_like(known: list[Part], ids: Sequence[int], spelling: Spelling) -> list[Part]:
    """Return the parts of a sequence without origins, by those of the other side."""
    words = [(number, w) for number, part in enumerate(known) for w in _words_in(part, spelling)]
    owners, left = [number for number, _ in words], [word for _, word in words]
    text, places = spelling.spelled(ids)
    right = [text[start:end] for start, end in places]
    matcher = SequenceMatcher(None, left, right, autojunk=max(len(left), len(right)) > _LONG)
    found: list[Part | None] = []
    for what, i1, i2, j1, j2 in matcher.get_opcodes():
        if what == "equal":
            found += (known[number] for number in owners[i1:i2])
        elif j2 > j1:
            # Of places where the same words could be added, that where a turn begins.
            back = 0 if i2 > i1 else _back(right, j1, j2, spelling.marks)
            moved = found[len(found) - back :]
            del found[len(found) - back :]
            before = owners[i1 - back - 1] if i1 > back else None
            after = owners[i2 - back] if i2 - back < len(owners) else None
            words_there = right[j1 - back : j2 - back]
            found += _inserted(known, owners[i1:i2], (before, after), words_there, spelling.marks)
            found += moved
    keys = [None if part is None or part.is_template else part for part in found]
    runs = [(key, len(list(run))) for key, run in groupby(keys)]
    firsts = [0, *accumulate(count for _, count in runs)][:-1]
    borders = [0, *(places[first][0] for first in firsts[1:]), len(text)]
    return [
        Part(-1, "", TEMPLATE, text[start:end])
        if key is None
        else key._replace(text=text[start:end])
        for (key, _), (start, end) in zip(runs, pairwise(borders), strict=True)
    ]


def _back(words: list[str], first: int, end: int, marks: frozenset[str]) -> int:
    """Return how many words before its place added words may have been added, so that they begin a turn."""
    back = 0
    while not _begins_turn(words, first - back, marks):
        if back == first or words[first - back - 1] != words[end - back - 1]:
            return 0
        back += 1
    return back


def _begins_turn(words: list[str], place: int, marks: frozenset[str]) -> bool:
    return (
        words[place] in marks
        and place + 1 < len(words)
        and ROLES.fullmatch(words[place + 1]) is not None
    )


def _words_in(part: Part, spelling: Spelling) -> list[str]:
    marks = spelling.marks
    pattern = "|".join(map(re.escape, sorted(marks, key=len, reverse=True)))
    return re.findall(rf"{pattern}|{_WORDS.pattern}" if pattern else _WORDS.pattern, part.text)


def _inserted(
    known: list[Part],
    replaced: list[int],
    between: tuple[int | None, int | None],
    words: list[str],
    marks: frozenset[str],
) -> list[Part | None]:
    """Return whose the words are that only one side has: of a part, of another turn, or of the template."""
    said = [n for n in dict.fromkeys(replaced) if not known[n].is_template]
    sides = [n for n in between if n is not None and not known[n].is_template]
    if not marks.isdisjoint(words):
        return _added_turns(words, marks, known[said[0]] if len(said) == 1 else None)
    owner: int | None = None
    if said:
        owner = said[0]
    elif between[0] == between[1] and sides:
        owner = sides[0]
    elif not replaced and sides and not is_only_marks("".join(words)):
        # A text that is put before or behind a message's.
        owner = sides[-1]
    return [None if owner is None else known[owner]] * len(words)


def _added_turns(
    words: list[str], marks: frozenset[str], replaced: Part | None
) -> list[Part | None]:
    """Return whose words with control tokens are: of turns that begin with a role, or of what is replaced."""
    borders = [-1, *(place for place, word in enumerate(words) if word in marks), len(words)]
    runs = list(pairwise(borders))
    longest = max(runs, key=lambda run: run[1] - run[0])
    found: list[Part | None] = [None] * len(words)
    for number, (start, end) in enumerate(runs):
        first = start + 1
        role = ROLES.fullmatch(words[first]) if first < end else None
        owner = replaced if (start, end) == longest else None
        if role and owner is None and start >= 0:
            first += 1
            owner = Part(_ADDED + number, role[1].lower(), "content", "")
        if owner is not None and has_words(without_marks("".join(words[first:end]))):
            found[first:end] = [owner] * (end - first)
    return found


def gaps(parts: list[Part]) -> list[tuple[str, str, str]]:
    """Return what the template writes between the texts of messages, with the roles before and behind it."""
    found: list[tuple[str, str, str]] = []
    before, text = "", ""
    for part in parts:
        if part.is_template:
            text += part.text
            continue
        if not squeezed(part.text):
            continue
        found.append((before, part.role or part.kind, text))
        before, text = part.role or part.kind, ""
    return [*found, (before, "", text)]
