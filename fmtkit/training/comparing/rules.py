"""The rules that name how a row prepared by axolotl (ids and labels) differs from fmtkit's."""

import re
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from fmtkit.core.data_classes import dataclass
from fmtkit.tokenizers.tokens import Tokenizer
from fmtkit.training.comparing.spool import Row

RULES = {
    "bos": "the numbers of BOS tokens at the start differ: a template writes one, a tokenizer adds one",
    "eos": "the numbers of EOS tokens at the end differ: trainers add one to text that has none",
    "cut": "only one of the two is truncated: sequence_len, and when it is applied",
    "whitespace": "the text differs only in spaces and line ends",
    "tokenization": "same text, different tokens: strings are joined before or after tokenization",
    "turn_lost": "one side lacks turns: some formats of axolotl read only one question and one answer",
    "system": "only one side has a system prompt: default_system_message, or the template's default",
    "template": "the text outside the replies differs: the chat template or prompt text",
    "content": "the replies differ",
    "mask": "same tokens, different loss mask",
    "end_mask": "only one side trains on the end of a turn: train_on_eos, or the template's line end",
    "label": "the label of the reply or of a step differs",
}
"""Rule -> its meaning, for the report and for the documentation page for axolotl users."""

ONLY = {
    "sequence_len": "it is longer than sequence_len",
    "short": "it is shorter than min_sample_len (default: 2), which axolotl drops",
    "no_trained_token": "no token of it is trained on, and axolotl or fmtkit leaves such rows out",
    "duplicate": "a duplicate of it is in both: dataset_exact_deduplication, weights or repeated sources",
    "refused": "fmtkit has quarantined one or more rows: see the codes of its quarantine",
    "absent": "the other side has no similar row: a different source, split, slice or val_set_size",
}
"""Why only one side has a row -> what it means."""

_ROLES = re.compile(r"\b(system(?:_prompt)?|user|assistant|human|gpt|model|tool)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Difference:
    """The rules by which two aligned rows differ, and the first token that differs."""

    rules: tuple[str, ...]
    side: str
    """`chosen` or `rejected` in a pair; empty where a row is one sequence."""
    token: int
    """Index of the first token whose id or label differs."""
    detail: str


@dataclass(frozen=True)
class Judge:
    """Finds the rules by which rows differ that the same tokenizer tokenized."""

    tokenizer: Tokenizer
    longest: int | None = None
    """Tokens to which rows are truncated."""

    @cached_property
    def control(self) -> frozenset[int]:
        """The ids of control tokens."""
        return frozenset(self.tokenizer.control_tokens().values())

    def difference(self, theirs: Row, ours: Row) -> Difference:
        """Return the rules, at least one, by which two aligned rows that are not equal differ."""
        differences: list[Difference] = []
        names = ("chosen", "rejected") if len(ours.ids) > 1 else ("",)
        sides = zip(names, theirs.ids, theirs.labels, ours.ids, ours.labels, strict=True)
        for name, their_ids, their_labels, our_ids, our_labels in sides:
            if (their_ids, their_labels) != (our_ids, our_labels):
                pair = _Sequences(their_ids, their_labels, our_ids, our_labels, self)
                differences.append(pair.difference(name))
        rules = dict.fromkeys(rule for one in differences for rule in one.rules)
        if theirs.label is not ours.label:
            rules["label"] = None
        if not differences:
            detail = f"{theirs.label} in axolotl, {ours.label} in fmtkit"
            return Difference(tuple(rules), "", 0, detail)
        first = differences[0]
        return Difference(tuple(rules), first.side, first.token, first.detail)


class _Turn(NamedTuple):
    """The text between two control tokens, and the role that the template names before it."""

    role: str
    """Empty if the template names none."""
    text: str


class _Sequences:
    """Two sequences; each difference that has been named is removed from both before the next."""

    def __init__(
        self,
        their_ids: Sequence[int],
        their_labels: Sequence[int],
        our_ids: Sequence[int],
        our_labels: Sequence[int],
        judge: Judge,
    ) -> None:
        self.a, self.la = list(their_ids), list(their_labels)
        self.b, self.lb = list(our_ids), list(our_labels)
        self.tokenizer, self.control = judge.tokenizer, judge.control
        self.is_full = min(len(self.a), len(self.b)) == judge.longest
        self.rules: list[str] = []
        self.details: list[str] = []
        self.first = _first_difference((self.a, self.la), (self.b, self.lb))

    def difference(self, side: str) -> Difference:
        """Name the differences: at the start, at the end, in the ids between, in the labels."""
        self._compare_starts()
        if not self._drop_truncated_tail():
            self._compare_ends()
            if self.a != self.b:
                self._ids()
        if self.a == self.b:
            self._masks()
        if not self.rules:
            self._record("tokenization", "trailing white space is tokenized differently")
        details = "; ".join(self.details)
        return Difference(tuple(dict.fromkeys(self.rules)), side, self.first, details)

    def _record(self, rule: str, detail: str) -> None:
        self.rules.append(rule)
        self.details.append(detail)

    def _compare_starts(self) -> None:
        counts = [_leading(ids, self.tokenizer.bos_id) for ids in (self.a, self.b)]
        if counts[0] != counts[1]:
            self._record("bos", f"BOS {counts[0]} times in axolotl, {counts[1]} in fmtkit")
            self._drop(counts[0], counts[1], 0, 0)

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
        is_theirs = len(self.a) < len(self.b)
        who = (
            "axolotl ends {} tokens before fmtkit"
            if is_theirs
            else "fmtkit ends {} tokens before axolotl"
        )
        self._record("cut", who.format(len(tail)))
        self._drop(0, 0, len(self.a) - shorter, len(self.b) - shorter)
        return True

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
                "whitespace", f"it ends with {tails[0]!r} in axolotl, {tails[1]!r} in fmtkit"
            )
        elif trained[0] != trained[1]:
            self._record(
                "end_mask", f"the newline after the last turn is trained on {_by(trained[0])}"
            )
        self._drop(0, 0, spaces[0], spaces[1])
        counts = [_leading(ids[::-1], self.tokenizer.eos_id) for ids in (self.a, self.b)]
        if counts[0] != counts[1]:
            self._record("eos", f"EOS {counts[0]} times in axolotl, {counts[1]} in fmtkit")
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
        ends = [i for i in differing if self._is_end(i)]
        inside = len(differing) - len(ends)
        for count, rule, what in (
            (inside, "mask", "tokens"),
            (len(ends), "end_mask", "ends of turns"),
        ):
            if not count:
                continue
            chosen = [i for i in differing if (i in ends) == (rule == "end_mask")]
            theirs = sum(self.la[i] != -100 for i in chosen)
            counts = [
                f"{n} {what} are trained on {_by(is_theirs)}"
                for n, is_theirs in ((theirs, True), (count - theirs, False))
                if n
            ]
            self._record(rule, ", ".join(counts))

    def _is_end(self, place: int) -> bool:
        return self.a[place] in self.control or self._is_space(self.a[place])

    def _ids(self) -> None:
        """Name the rule by which the ids differ, once their ends are the same."""
        texts = [self._text(ids) for ids in (self.a, self.b)]
        if texts[0] == texts[1]:
            self._record(
                "tokenization", f"{len(self.a)} tokens in axolotl, {len(self.b)} in fmtkit"
            )
        elif _squeezed(texts[0]) == _squeezed(texts[1]):
            self._record("whitespace", "spaces and line ends differ")
        else:
            self._contents()
        self._trained_texts()

    def _contents(self) -> None:
        """Name the rule by which the text differs, apart from white space."""
        theirs, ours = (self._turns(ids) for ids in (self.a, self.b))
        fewer, more, where = (
            (theirs, ours, "axolotl") if len(theirs) < len(ours) else (ours, theirs, "fmtkit")
        )
        absent = _absent(fewer, more)
        if absent is not None and len(absent) == len(more) - len(fewer) > 0:
            rule = "system" if [one.role for one in absent] == ["system"] else "turn_lost"
            named = ", ".join(repr(_short(one.text)) for one in absent[:2])
            self._record(rule, f"{where} lacks {len(absent)}: {named}")
            return
        trained = [
            self._trained(ids, labels) for ids, labels in ((self.a, self.la), (self.b, self.lb))
        ]
        if not any(trained):
            self._record("template", "the text differs; no token is trained on")
        elif not all(trained):
            self._record("template", "the text differs")
            self._record("mask", f"tokens are trained on {_by(bool(trained[0]))}")
        elif trained[0] in trained[1] or trained[1] in trained[0]:
            self._record("template", "the text outside the replies differs")
        else:
            self._record("content", "the replies differ")

    def _turns(self, ids: Sequence[int]) -> list[_Turn]:
        """Return the text between control tokens, without segments that hold only a role's name."""
        places = [-1, *(i for i, one in enumerate(ids) if one in self.control), len(ids)]
        turns: list[_Turn] = []
        heading = ""
        for a, b in pairwise(places):
            text = self._text(ids[a + 1 : b]).strip()
            heading += self._text(ids[max(a, 0) : a + 1])
            if not _bare(text):
                heading += text
                continue
            role = _ROLES.search(heading) or _ROLES.match(text)
            turns.append(_Turn(role[1].lower().removesuffix("_prompt") if role else "", text))
            heading = ""
        return turns

    def _trained_texts(self) -> None:
        """Name the rule `mask` if different text is trained on, for ids that differ."""
        theirs, ours = (
            self._trained(ids, labels) for ids, labels in ((self.a, self.la), (self.b, self.lb))
        )
        if theirs != ours and not {"content", "turn_lost", "template"} & {*self.rules}:
            detail = f"trained on in axolotl {_short(theirs)!r}, in fmtkit {_short(ours)!r}"
            self._record("mask", detail)

    def _trained(self, ids: Sequence[int], labels: Sequence[int]) -> str:
        kept = [i for i, label in zip(ids, labels, strict=True) if label != -100]
        return _squeezed(self._text([i for i in kept if i not in self.control]))

    def _text(self, ids: Sequence[int]) -> str:
        return self.tokenizer.backend.decode(list(ids), skip_special_tokens=False)


def _by(is_theirs: bool) -> str:
    return "only by axolotl" if is_theirs else "only by fmtkit"


def _leading(ids: Sequence[int], token: int | None) -> int:
    count = 0
    while token is not None and count < len(ids) and ids[count] == token:
        count += 1
    return count


def _first_difference(
    theirs: tuple[Sequence[int], Sequence[int]], ours: tuple[Sequence[int], Sequence[int]]
) -> int:
    pairs = zip(zip(*theirs, strict=True), zip(*ours, strict=True), strict=False)
    shorter = min(len(theirs[0]), len(ours[0]))
    return next((i for i, (a, b) in enumerate(pairs) if a != b), shorter)


def _absent(fewer: Sequence[_Turn], more: Sequence[_Turn]) -> list[_Turn] | None:
    """Return the turns of `more` that `fewer` lacks; None if `fewer` has others, or a different order."""
    rest, missing = list(fewer), []
    for turn in more:
        if rest and _bare(rest[0].text) == _bare(turn.text):
            rest.pop(0)
        else:
            missing.append(turn)
    return missing if not rest else None


def _bare(text: str) -> str:
    return _squeezed(_ROLES.sub("", text, count=1))


def _squeezed(text: str) -> str:
    return re.sub(r"\s+", "", text)


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:39] + "…"
