"""Two sequences of ids and labels, and the rules by which they differ."""

from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher

from fmtkit.core.data_classes import dataclass
from fmtkit.diffing.contents import differences, spacing
from fmtkit.diffing.parts import Part, Spelling, parts_by_turns, parts_like, parts_of
from fmtkit.diffing.texts import ROLES, json_rule, short, squeezed, thinking_rule
from fmtkit.masks.masked import Masked
from fmtkit.tokenizers.tokens import Tokenizer

_MATCHED = 2_000
"""Tokens between the first and the last difference that are matched in their order; more are counted."""


@dataclass(frozen=True)
class Sides:
    """What the two sequences have in common, and what their sides are called."""

    tokenizer: Tokenizer
    control: frozenset[int]
    begins: frozenset[int]
    """BOS of either side."""
    ends: frozenset[int]
    """EOS of either side."""
    same_settings: bool
    """Whether both tokenizers tokenize the same texts alike."""
    longest: int | None
    names: tuple[str, str]


class Sequences:
    """Two sequences; each difference that has been named is removed from both before the next."""

    def __init__(self, one: Masked, other: Masked, sides: Sides) -> None:
        self.one, self.other = one, other
        self.a, self.la = one.ids.tolist(), one.labels.tolist()
        self.b, self.lb = other.ids.tolist(), other.labels.tolist()
        self.sides, self.control = sides, sides.control
        self.tokenizer = sides.tokenizer
        self.spelling = Spelling(self._text, sides.control)
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
        counts = [_leading(ids, self.sides.begins) for ids in (self.a, self.b)]
        if counts[0] == counts[1]:
            # A control token that only one side begins with is one too, whatever the tokenizer calls it.
            counts = [_more(self.a, self.b, self.control), _more(self.b, self.a, self.control)]
        if counts[0] != counts[1]:
            self._record(
                "bos", f"BOS {counts[0]} times in {self.left}, {counts[1]} in {self.right}"
            )
            self._drop(counts[0], counts[1], 0, 0)

    def _drop_truncated(self) -> bool:
        """Drop what only one sequence has because the other was truncated there."""
        return (
            self._drop_truncated_tail()
            or self._drop_truncated_head()
            or self._are_cut_on_two_sides()
        )

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
        # What follows the end of a turn was not cut off.
        ended = self.a[shorter - 1 : shorter] + tail[:2]
        if not self.is_full and (not has_text or not self.control.isdisjoint(ended)):
            return False
        first, then = self._by_length()
        self._record("cut", f"{first} ends {len(tail)} tokens before {then}")
        self._drop(0, 0, len(self.a) - shorter, len(self.b) - shorter)
        return True

    def _drop_truncated_head(self) -> bool:
        """Drop the head that only one sequence has because the other keeps the end, within a turn."""
        shorter = min(len(self.a), len(self.b))
        more = len(self.a) - shorter, len(self.b) - shorter
        if not shorter or not any(more) or self.a[more[0] :] != self.b[more[1] :]:
            return False
        if not self.is_full and self._begins(min(self.a, self.b, key=len)):
            return False
        first, then = self._by_length()
        self._record("cut_start", f"{first} begins {max(more)} tokens after {then}")
        self._drop(*more, 0, 0)
        return True

    def _by_length(self) -> tuple[str, str]:
        """Return the name of the side that is shorter, and that of the other."""
        is_left = len(self.a) < len(self.b)
        return (self.left, self.right) if is_left else (self.right, self.left)

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
        counts = [_leading(ids[::-1], self.sides.ends) for ids in (self.a, self.b)]
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
        self.one, self.other = self.one.cut(slice(a, stop_a)), self.other.cut(slice(b, stop_b))
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
            self._spaces(one, other)
        elif rule := thinking_rule(one, other):
            more = self.left if len(one) > len(other) else self.right
            self._record(rule, f"only {more} has it" if len(one) != len(other) else "it differs")
        elif rule := json_rule(one, other):
            self._record(rule, "the JSON that it holds is the same, and written differently")
        else:
            self._contents()
        self._trained_texts()

    def _spaces(self, one: str, other: str) -> None:
        if not self.sides.same_settings and one.replace(" ", "") == other.replace(" ", ""):
            self._record("tokenization", "spaces differ, as the tokenizers write them")
            return
        for rule in spacing(*self._parts()):
            of_json = rule == "json_text"
            self._record(
                rule, "the JSON has other spaces" if of_json else "spaces and line ends differ"
            )

    def _parts(self) -> tuple[list[Part], list[Part]]:
        """Return the parts of both sequences: where one has no origins, by those of the other."""
        known = [parts_of(one, self.spelling) for one in (self.one, self.other)]
        left, right = known
        if left is None and right is None:
            left = parts_by_turns(self.a, self.spelling)
            return left, parts_by_turns(self.b, self.spelling)
        if left is None:
            assert right is not None
            left = parts_like(right, self.a, self.spelling)
        if right is None:
            right = parts_like(left, self.b, self.spelling)
        return left, right

    def _contents(self) -> None:
        """Name the rules by which the text differs, apart from white space."""
        for rule, detail in differences(*self._parts(), (self.left, self.right)).items():
            self._record(rule, detail)
        trained = [
            self._trained(ids, labels) for ids, labels in ((self.a, self.la), (self.b, self.lb))
        ]
        if bool(trained[0]) != bool(trained[1]):
            self._record("mask", f"tokens are trained on {self._by(bool(trained[0]))}")

    def _trained_texts(self) -> None:
        """Name the rule `mask` if different text is trained on, for ids that differ."""
        left, right = (
            self._trained(ids, labels) for ids, labels in ((self.a, self.la), (self.b, self.lb))
        )
        named = {"content", "turn_lost", "template", "empty_think", "reasoning"}
        named |= {"key_order", "json_text", "tools"}
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


def _leading(ids: Sequence[int], tokens: frozenset[int]) -> int:
    return next((place for place, one in enumerate(ids) if one not in tokens), len(ids))


def _more(ids: Sequence[int], others: Sequence[int], control: frozenset[int]) -> int:
    """Return how many control tokens are before what the other side begins with, if that is there."""
    for count in (1, 2):
        begun = ids[count : count + 4]
        if not control.issuperset(ids[:count]):
            break
        if len(begun) > 1 and begun == others[: len(begun)]:
            return count
    return 0


def _first_difference(
    left: tuple[Sequence[int], Sequence[int]], right: tuple[Sequence[int], Sequence[int]]
) -> int:
    pairs = zip(zip(*left, strict=True), zip(*right, strict=True), strict=False)
    shorter = min(len(left[0]), len(right[0]))
    return next((i for i, (a, b) in enumerate(pairs) if a != b), shorter)
