"""Two sequences of ids and labels, and the rules by which they differ."""

from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import pairwise

from fmtkit.core.data_classes import dataclass
from fmtkit.diffing.texts import (
    ROLES,
    Turn,
    absent,
    bare,
    json_rule,
    short,
    squeezed,
    thinking_rule,
)
from fmtkit.tokenizers.tokens import Tokenizer

_MATCHED = 2_000
"""Tokens between the first and the last difference that are matched in their order; more are counted."""


@dataclass(frozen=True)
class Sides:
    """What the two sequences have in common, and what their sides are called."""

    tokenizer: Tokenizer
    control: frozenset[int]
    longest: int | None
    names: tuple[str, str]


class Sequences:
    """Two sequences; each difference that has been named is removed from both before the next."""

    def __init__(
        self,
        left_ids: Sequence[int],
        left_labels: Sequence[int],
        right_ids: Sequence[int],
        right_labels: Sequence[int],
        sides: Sides,
    ) -> None:
        self.a, self.la = list(left_ids), list(left_labels)
        self.b, self.lb = list(right_ids), list(right_labels)
        self.tokenizer, self.control = sides.tokenizer, sides.control
        self.left, self.right = sides.names
        self.is_full = min(len(self.a), len(self.b)) == sides.longest
        self.found: list[str] = []
        self.details: list[str] = []
        self.first = _first_difference((self.a, self.la), (self.b, self.lb))
        self.trained = differing_tokens((self.a, self.la), (self.b, self.lb))

    def rules(self) -> tuple[str, ...]:
        """Name the differences: at the start, at the end, in the ids between, in the labels."""
        self._compare_starts()
        if not self._drop_truncated():
            self._compare_ends()
            if self.a != self.b:
                self._ids()
        if self.a == self.b:
            self._masks()
        if not self.found:
            self._record("tokenization", "trailing white space is tokenized differently")
        return tuple(dict.fromkeys(self.found))

    def _record(self, rule: str, detail: str) -> None:
        self.found.append(rule)
        self.details.append(detail)

    def _compare_starts(self) -> None:
        counts = [_leading(ids, self.tokenizer.bos_id) for ids in (self.a, self.b)]
        if counts[0] != counts[1]:
            self._record(
                "bos", f"BOS {counts[0]} times in {self.left}, {counts[1]} in {self.right}"
            )
            self._drop(counts[0], counts[1], 0, 0)

    def _drop_truncated(self) -> bool:
        """Drop what only one sequence has because the other was truncated there."""
        return self._drop_truncated_tail() or self._are_cut_on_two_sides()

    def _drop_truncated_tail(self) -> bool:
        """Drop the tail that only one sequence has because the other was truncated.

        Returns False if nothing was truncated: a tail that is the end of a turn, or complete turns,
        is compared by other rules.
        """
        shorter = min(len(self.a), len(self.b))
        tail = max(self.a, self.b, key=len)[shorter:]
        if not tail or self.a[:shorter] != self.b[:shorter]:
            return False
        has_text = any(map(self._is_text, tail))
        if not self.is_full and (not has_text or any(t in self.control for t in tail[:2])):
            return False
        first, then = (
            (self.left, self.right) if len(self.a) < len(self.b) else (self.right, self.left)
        )
        self._record("cut", f"{first} ends {len(tail)} tokens before {then}")
        self._drop(0, 0, len(self.a) - shorter, len(self.b) - shorter)
        return True

    def _are_cut_on_two_sides(self) -> bool:
        """Return whether one is the start and the other the end of a longer sequence."""
        if not self.is_full or len(self.a) != len(self.b) or self.a == self.b:
            return False
        overlap = max(_overlap(self.a, self.b), _overlap(self.b, self.a))
        starts = [self._begins(ids) for ids in (self.a, self.b)]
        if overlap < min(8, len(self.a) // 2) and starts[0] == starts[1]:
            return False
        if starts[0] == starts[1]:
            keeps_start = _overlap(self.a, self.b) >= _overlap(self.b, self.a)
        else:
            keeps_start = starts[0]
        first, then = (self.left, self.right) if keeps_start else (self.right, self.left)
        self._record("cut_side", f"{first} keeps the start, {then} the end")
        return True

    def _begins(self, ids: Sequence[int]) -> bool:
        return bool(ids) and ids[0] in self.control

    def _is_text(self, token: int) -> bool:
        return token not in self.control and not self._is_space(token)

    def _compare_ends(self) -> None:
        """Compare and drop the line end after the last turn, and the EOS."""
        spaces = [self._trailing_space(ids) for ids in (self.a, self.b)]
        tails = [
            self._text(ids[len(ids) - n :]) for ids, n in zip((self.a, self.b), spaces, strict=True)
        ]
        trained = [
            any(label != -100 for label in labels[len(labels) - n :])
            for labels, n in zip((self.la, self.lb), spaces, strict=True)
        ]
        if tails[0] != tails[1]:
            self._record(
                "whitespace",
                f"it ends with {tails[0]!r} in {self.left}, {tails[1]!r} in {self.right}",
            )
        elif trained[0] != trained[1]:
            self._record(
                "end_mask", f"the newline after the last turn is trained on {self._by(trained[0])}"
            )
        self._drop(0, 0, spaces[0], spaces[1])
        counts = [_leading(ids[::-1], self.tokenizer.eos_id) for ids in (self.a, self.b)]
        if counts[0] != counts[1]:
            self._record(
                "eos", f"EOS {counts[0]} times in {self.left}, {counts[1]} in {self.right}"
            )
            self._drop(0, 0, counts[0], counts[1])

    def _trailing_space(self, ids: Sequence[int]) -> int:
        count = 0
        while count < len(ids) and self._is_space(ids[-1 - count]):
            count += 1
        return count

    def _drop(self, a: int, b: int, end_a: int, end_b: int) -> None:
        stop_a, stop_b = len(self.a) - end_a, len(self.b) - end_b
        self.a, self.la = self.a[a:stop_a], self.la[a:stop_a]
        self.b, self.lb = self.b[b:stop_b], self.lb[b:stop_b]

    def _is_space(self, token: int) -> bool:
        return token not in self.control and not self._text([token]).strip()

    def _masks(self) -> None:
        """Name the rules by which labels differ at equal ids."""
        differing = [i for i, (x, y) in enumerate(zip(self.la, self.lb, strict=True)) if x != y]
        if not differing:
            return
        if any(self.la[i] != -100 and self.lb[i] != -100 for i in differing):
            self._record("label", f"{len(differing)} labels differ")
            return
        headers = self._header_places()
        ends = {i for i in differing if i not in headers and self._is_end(i)}
        in_headers = headers.intersection(differing)
        if in_headers and all(not self._is_text(self.a[i]) for i in in_headers):
            # A header's control tokens alone, without the name of a role, are ends of turns.
            ends, in_headers = ends | in_headers, set()
        inside = {*differing} - ends - in_headers
        for places, rule, what in (
            (inside, "mask", "tokens"),
            (in_headers, "header_mask", "tokens of headers"),
            (ends, "end_mask", "ends of turns"),
        ):
            if not places:
                continue
            only_left = sum(self.la[i] != -100 for i in places)
            counts = [
                f"{n} {what} are trained on {self._by(is_left)}"
                for n, is_left in ((only_left, True), (len(places) - only_left, False))
                if n
            ]
            self._record(rule, ", ".join(counts))

    def _header_places(self) -> set[int]:
        """Return the tokens of headers: from a control token to the line end behind the name of a role."""
        found: set[int] = set()
        for place, token in enumerate(self.a):
            if token not in self.control:
                continue
            end = place + 1
            while end < len(self.a) and end - place <= 6 and self.a[end] not in self.control:
                text = self._text(self.a[place + 1 : end + 1])
                if not (text.strip() == "" or ROLES.match(text) or _begins_role(text)):
                    break
                end += 1
                if "\n" in text and text.strip():
                    break
            named = self._text(self.a[place + 1 : end]).strip()
            if named and ROLES.fullmatch(named):
                found.update(range(place, end))
                # Llama 3 closes its headers with a control token and line ends.
                while end < len(self.a) and self.a[end] in self.control and end - place < 8:
                    found.add(end)
                    end += 1
                    while end < len(self.a) and self._is_space(self.a[end]):
                        found.add(end)
                        end += 1
                    break
        return found

    def _is_end(self, place: int) -> bool:
        return self.a[place] in self.control or self._is_space(self.a[place])

    def _ids(self) -> None:
        """Name the rule by which the ids differ, once their ends are the same."""
        one, other = self._text(self.a), self._text(self.b)
        if one == other:
            self._record(
                "tokenization",
                f"{len(self.a)} tokens in {self.left}, {len(self.b)} in {self.right}",
            )
        elif squeezed(one) == squeezed(other):
            self._record("whitespace", "spaces and line ends differ")
        elif rule := thinking_rule(one, other):
            more = self.left if len(one) > len(other) else self.right
            self._record(rule, f"only {more} has it" if len(one) != len(other) else "it differs")
        elif rule := json_rule(one, other):
            self._record(rule, "the JSON that it holds is the same, and written differently")
        else:
            self._contents()
        self._trained_texts()

    def _contents(self) -> None:
        """Name the rule by which the text differs, apart from white space."""
        left, right = self._turns(self.a), self._turns(self.b)
        fewer, more, where = (
            (left, right, self.left) if len(left) < len(right) else (right, left, self.right)
        )
        missing = absent(fewer, more)
        if missing is not None and len(missing) == len(more) - len(fewer) > 0:
            rule = "system" if [one.role for one in missing] == ["system"] else "turn_lost"
            named = ", ".join(repr(short(one.text)) for one in missing[:2])
            self._record(rule, f"{where} lacks {len(missing)}: {named}")
            return
        if self._turn_contents(left, right):
            return
        trained = [
            self._trained(ids, labels) for ids, labels in ((self.a, self.la), (self.b, self.lb))
        ]
        if not any(trained):
            self._record("template", "the text differs; no token is trained on")
        elif not all(trained):
            self._record("template", "the text differs")
            self._record("mask", f"tokens are trained on {self._by(bool(trained[0]))}")
        elif trained[0] in trained[1] or trained[1] in trained[0]:
            self._record("template", "the text outside the replies differs")
        else:
            self._record("content", "the replies differ")

    def _turn_contents(self, left: list[Turn], right: list[Turn]) -> bool:
        """Name the rules of turns whose texts differ; return whether these explain the whole difference."""
        if [one.role for one in left] != [one.role for one in right] or not left:
            return False
        differing = [
            (one, other)
            for one, other in zip(left, right, strict=True)
            if bare(one.text) != bare(other.text)
        ]
        found: dict[str, str] = {}
        for one, other in differing:
            texts = f"{short(one.text)!r} in {self.left}, {short(other.text)!r} in {self.right}"
            if one.role in ("system", "developer"):
                found.setdefault("system", texts)
            elif one.role in ("assistant", "gpt", "model"):
                found.setdefault("content", "the replies differ")
            elif not one.role or _wraps(one.text, other.text):
                # Text around a prompt that is the same, or turns that cannot be told apart.
                return False
            else:
                found.setdefault("prompt", texts)
        for rule, detail in found.items():
            self._record(rule, detail)
        return bool(found)

    def _turns(self, ids: Sequence[int]) -> list[Turn]:
        """Return the text between control tokens, without segments that hold only a role's name."""
        places = [-1, *(i for i, one in enumerate(ids) if one in self.control), len(ids)]
        turns: list[Turn] = []
        heading = ""
        for a, b in pairwise(places):
            text = self._text(ids[a + 1 : b]).strip()
            heading += self._text(ids[max(a, 0) : a + 1])
            if not bare(text):
                heading += text
                continue
            role = ROLES.search(heading) or ROLES.match(text)
            turns.append(Turn(role[1].lower().removesuffix("_prompt") if role else "", text))
            heading = ""
        return turns

    def _trained_texts(self) -> None:
        """Name the rule `mask` if different text is trained on, for ids that differ."""
        left, right = (
            self._trained(ids, labels) for ids, labels in ((self.a, self.la), (self.b, self.lb))
        )
        named = {"content", "turn_lost", "template", "empty_think", "reasoning"}
        named |= {"key_order", "json_text"}
        if left and right:
            # The text that differs may be trained on itself.
            named |= {"prompt", "system"}
        if left != right and not named & {*self.found}:
            detail = f"trained on in {self.left} {short(left)!r}, in {self.right} {short(right)!r}"
            self._record("mask", detail)

    def _trained(self, ids: Sequence[int], labels: Sequence[int]) -> str:
        kept = [i for i, label in zip(ids, labels, strict=True) if label != -100]
        return squeezed(self._text([i for i in kept if i not in self.control]))

    def _text(self, ids: Sequence[int]) -> str:
        return self.tokenizer.backend.decode(list(ids), skip_special_tokens=False)

    def _by(self, is_left: bool) -> str:
        return f"only by {self.left if is_left else self.right}"


def differing_tokens(
    left: tuple[Sequence[int], Sequence[int]], right: tuple[Sequence[int], Sequence[int]]
) -> int:
    """Return how many trained tokens of both sequences the other does not train on in their place."""
    a, b = (list(zip(*side, strict=True)) for side in (left, right))
    start = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)
    start = min(len(a), len(b)) if start is None else start
    a, b = a[start:], b[start:]
    while a and b and a[-1] == b[-1]:
        a.pop()
        b.pop()
    trained = sum(label != -100 for _, label in a) + sum(label != -100 for _, label in b)
    if not trained:
        return 0
    if max(len(a), len(b)) > _MATCHED:
        common = Counter(a) & Counter(b)
        shared = sum(count for (_, label), count in common.items() if label != -100)
        return trained - 2 * shared
    blocks = SequenceMatcher(None, a, b, autojunk=False).get_matching_blocks()
    shared = sum(label != -100 for one in blocks for _, label in a[one.a : one.a + one.size])
    return trained - 2 * shared


def _wraps(one: str, other: str) -> bool:
    """Return whether one text holds the other: something is written around it."""
    fewer, more = sorted((bare(one), bare(other)), key=len)
    return fewer in more


def _begins_role(text: str) -> bool:
    word = text.strip().lower()
    return any(
        role.startswith(word) for role in ("system", "user", "assistant", "developer", "model")
    )


def _overlap(first: Sequence[int], then: Sequence[int]) -> int:
    """Return how many tokens at the end of one sequence are the beginning of another."""
    if not then:
        return 0
    for start in range(1, len(first)):
        if first[start] == then[0] and list(first[start:]) == list(then[: len(first) - start]):
            return len(first) - start
    return 0


def _leading(ids: Sequence[int], token: int | None) -> int:
    count = 0
    while token is not None and count < len(ids) and ids[count] == token:
        count += 1
    return count


def _first_difference(
    left: tuple[Sequence[int], Sequence[int]], right: tuple[Sequence[int], Sequence[int]]
) -> int:
    pairs = zip(zip(*left, strict=True), zip(*right, strict=True), strict=False)
    shorter = min(len(left[0]), len(right[0]))
    return next((i for i, (a, b) in enumerate(pairs) if a != b), shorter)
