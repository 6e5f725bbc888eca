"""The rules by which the texts of two rows differ, part by part: turns, reasoning, tools, the template."""

from collections.abc import Mapping
from difflib import SequenceMatcher
from typing import NamedTuple

from fmtkit.diffing.parts import Part, gaps
from fmtkit.diffing.texts import (
    ROLES,
    has_words,
    json_in,
    json_rule,
    same_but_for_json,
    short,
    squeezed,
    thinking_rule,
    without_empty_think,
    without_marks,
)
from fmtkit.masks.origins import REPLYING

_SYSTEM = frozenset({"system", "developer"})
_REPLIES = REPLYING | {"gpt", "model"}


class _Turn(NamedTuple):
    role: str
    kinds: Mapping[str, str]
    """Kind -> text."""

    @property
    def text(self) -> str:
        return " ".join(self.kinds.values())

    @property
    def key(self) -> tuple[str, str]:
        return self.role, squeezed(self.text)


def differences(left: list[Part], right: list[Part], names: tuple[str, str]) -> dict[str, str]:
    """Return the rules by which two rows differ, each with what it is about."""
    found: dict[str, str] = {}
    turns, others = _turns(left), _turns(right)
    pairs, missing = _matched(turns, others)
    for one, other in pairs:
        _compare_turns(one, other, names, found)
    _compare_tools(left, right, names, found)
    for name, lacking in zip(names, missing, strict=True):
        if lacking:
            rule = "system" if all(one.role in _SYSTEM for one in lacking) else "turn_lost"
            told = ", ".join(repr(short(one.text.strip())) for one in lacking[:2])
            found.setdefault(rule, f"{name} lacks {len(lacking)}: {told}")
    is_whole = all(one.role in _SYSTEM for one in (*missing[0], *missing[1]))
    _compare_template(left, right, names, found, is_whole=is_whole)
    return found


def _turns(parts: list[Part]) -> list[_Turn]:
    made: dict[int, _Turn] = {}
    for part in parts:
        if part.is_template or part.kind == "tools" or not squeezed(part.text):
            continue
        turn = made.get(part.turn, _Turn(part.role, {}))
        kinds = {**turn.kinds, part.kind: turn.kinds.get(part.kind, "") + part.text}
        made[part.turn] = _Turn(part.role, kinds)
    return list(made.values())


def _matched(
    left: list[_Turn], right: list[_Turn]
) -> tuple[list[tuple[_Turn, _Turn]], tuple[list[_Turn], list[_Turn]]]:
    """Pair the turns that differ, and return those that the left and the right side lack."""
    keys = [turn.key for turn in left], [turn.key for turn in right]
    pairs: list[tuple[_Turn, _Turn]] = []
    lacking: tuple[list[_Turn], list[_Turn]] = [], []
    for what, i1, i2, j1, j2 in SequenceMatcher(None, *keys, autojunk=False).get_opcodes():
        if what == "equal":
            continue
        rest = right[j1:j2]
        for turn in left[i1:i2]:
            # A turn whose role is not known may be any.
            roles = {turn.role, ""} if turn.role else {other.role for other in rest}
            places = [place for place, other in enumerate(rest) if other.role in roles]
            if not places:
                lacking[1].append(turn)
                continue
            lacking[0].extend(rest[: places[0]])
            pairs.append((turn, rest[places[0]]))
            rest = rest[places[0] + 1 :]
        lacking[0].extend(rest)
    return pairs, lacking


def _compare_turns(one: _Turn, other: _Turn, names: tuple[str, str], found: dict[str, str]) -> None:
    for kind in dict.fromkeys((*one.kinds, *other.kinds)):
        text, theirs = one.kinds.get(kind, ""), other.kinds.get(kind, "")
        if squeezed(text) == squeezed(theirs):
            continue
        if kind == "reasoning" and not (squeezed(text) and squeezed(theirs)):
            found.setdefault("reasoning", f"only {names[not squeezed(text)]} has it")
            continue
        told = f"{short(text.strip())!r} in {names[0]}, {short(theirs.strip())!r} in {names[1]}"
        rule = thinking_rule(text, theirs)
        if rule is None and (kind == "tool_call" or one.role == "tool"):
            rule = json_rule(text, theirs)
        if rule is None and not (one.role and other.role):
            rule, told = "template", "the texts differ, and whose they are is not known"
        if rule is None and one.role in _REPLIES:
            rule, told = "content", "the replies differ"
        found.setdefault(rule or ("system" if one.role in _SYSTEM else "prompt"), told)


def _compare_tools(
    left: list[Part], right: list[Part], names: tuple[str, str], found: dict[str, str]
) -> None:
    texts = ["".join(p.text for p in parts if p.kind == "tools") for parts in (left, right)]
    one, other = map(squeezed, texts)
    if one == other:
        return
    rule = json_rule(*texts) or "tools"
    if not one or not other:
        found.setdefault(rule, f"only {names[not one]} has them")
    else:
        told = "the JSON that it holds is the same, and written differently"
        found.setdefault(rule, told if rule != "tools" else "they are described differently")


def _compare_template(
    left: list[Part],
    right: list[Part],
    names: tuple[str, str],
    found: dict[str, str],
    *,
    is_whole: bool,
) -> None:
    """Name what the template writes: a system prompt of its own, an empty think block, the rest."""
    own = [_own_system(parts) for parts in (left, right)]
    has_tools = any(part.kind == "tools" for part in (*left, *right))
    rule = "tools" if has_tools else "system"
    if squeezed(own[0]) != squeezed(own[1]) and rule not in found:
        told = " and ".join(f"{short(t)!r} in {n}" for t, n in zip(own, names, strict=True) if t)
        found[rule] = f"the template's own: {told}"
    kinds: tuple[dict[tuple[str, str], set[str]], ...] = ({}, {})
    blocks = []
    for parts, by_place in zip((left, right), kinds, strict=True):
        written = gaps(parts)
        bares = [squeezed(without_empty_think(text)) for _, _, text in written]
        blocks.append(sum(squeezed(w[2]) != bare for w, bare in zip(written, bares, strict=True)))
        for number, ((before, after, _), bare) in enumerate(zip(written, bares, strict=True)):
            # Its own system prompt has been named: what follows it is the header of the first turn.
            is_first = number == 0 and any(own)
            by_place.setdefault((before, after), set()).add("" if is_first else bare)
    if blocks[0] != blocks[1] and is_whole:
        found.setdefault("empty_think", f"{blocks[0]} in {names[0]}, {blocks[1]} in {names[1]}")
    places = kinds[0].keys() & kinds[1].keys()
    if any(kinds[0][place] != kinds[1][place] for place in places) or (
        is_whole and kinds[0].keys() != kinds[1].keys() and not found
    ):
        found.setdefault("template", "what the template writes around the texts differs")


def _own_system(parts: list[Part]) -> str:
    """Return the system prompt that the template writes before the first message by itself."""
    first = gaps(parts)[0][2]
    role = ROLES.search(first)
    if role is None or not role[1].lower().startswith("system"):
        return ""
    rest = ROLES.search(first, role.end())
    text = without_marks(first[role.end() : rest.start() if rest else len(first)])
    return text.strip() if has_words(text) else ""


def spacing(left: list[Part], right: list[Part]) -> list[str]:
    """Return the rules by which two rows differ that have the same text but for white space."""
    found = []
    texts = [json_in("".join(p.text for p in parts if _holds_json(p))) for parts in (left, right)]
    if texts[0] != texts[1]:
        found.append("json_text")
    whole = ["".join(part.text for part in parts) for parts in (left, right)]
    if not found or not same_but_for_json(*whole):
        found.append("whitespace")
    return found


def _holds_json(part: Part) -> bool:
    """Return whether the JSON in a part is that of tools or of calls, and no text of a message."""
    return part.kind != "content" or part.role == "tool"
