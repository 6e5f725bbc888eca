"""The rules by which a row of axolotl (ids and labels as prepared) and one of fmtkit can differ."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from fmtkit.tokenizers.tokens import Tokenizer
from fmtkit.training.comparing.spool import Row

RULES = {
    "bos": "one begins with another number of BOS tokens: a template writes one, a tokenizer adds one",
    "eos": "one ends with another number of EOS tokens: trainers add one to text that has none",
    "cut": "one is truncated, and the other is not: sequence_len, and when it is applied",
    "whitespace": "the text differs only in spaces and line ends",
    "tokenization": "same text, different tokens: texts are joined before or after tokenization",
    "turn_lost": "turns are missing on one side: formats of axolotl that read a question and an answer alone",
    "system": "a system prompt is on one side only: default_system_message, or a template's own",
    "template": "the replies are the same, the text around them is not: the chat template or prompt text",
    "content": "the replies themselves differ",
    "mask": "same tokens, different loss mask",
    "end_mask": "the end of a turn is trained on one side only: train_on_eos, or the template's line end",
    "label": "the label of the reply or of a step differs",
}
"""Rule -> what it means, as the report and the page of axolotl's users say it."""

ONLY = {
    "sequence_len": "it is longer than sequence_len",
    "short": "it is shorter than min_sample_len (default: 2), which axolotl drops",
    "no_trained_token": "no token of it is trained on, and axolotl or fmtkit leaves such rows out",
    "duplicate": "a duplicate of it is in both: dataset_exact_deduplication, weights or repeated sources",
    "refused": "fmtkit has refused a row, or several: see the codes of its quarantine",
    "absent": "no similar row is on the other side: another source, split, slice or val_set_size",
}
"""Why a row is on one side only -> what it means."""

_ROLES = re.compile(r"\b(system|user|assistant|human|gpt|model|tool)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Difference:
    """What differs between two aligned rows, and where it begins."""

    rules: tuple[str, ...]
    side: str
    """`chosen` or `rejected` in a pair; empty where a row is one sequence."""
    token: int
    """The first token at which ids or labels part, counted from 0."""
    detail: str


@dataclass(frozen=True)
class Judge:
    """Decides by which rules rows differ that were tokenized by one tokenizer."""

    tokenizer: Tokenizer
    longest: int | None = None
    """The length at which rows are cut."""

    @cached_property
    def control(self) -> frozenset[int]:
        """The ids of control tokens."""
        return frozenset(self.tokenizer.control_tokens().values())

    def difference(self, theirs: Row, ours: Row) -> Difference:
        """Return by which rules two aligned rows differ, at least one, and where they part."""
        found: list[Difference] = []
        names = ("chosen", "rejected") if len(ours.ids) > 1 else ("",)
        sides = zip(names, theirs.ids, theirs.labels, ours.ids, ours.labels, strict=True)
        for name, their_ids, their_labels, our_ids, our_labels in sides:
            if (their_ids, their_labels) != (our_ids, our_labels):
                pair = _Sequences(their_ids, their_labels, our_ids, our_labels, self)
                found.append(pair.difference(name))
        rules = dict.fromkeys(rule for one in found for rule in one.rules)
        if theirs.liked is not ours.liked:
            rules["label"] = None
        if not found:
            detail = f"{theirs.liked} in axolotl, {ours.liked} in fmtkit"
            return Difference(tuple(rules), "", 0, detail)
        return Difference(tuple(rules), found[0].side, found[0].token, found[0].detail)


class _Sequences:
    """Two sequences, of which what is known to differ is taken off step by step."""

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
        """Name what differs from the outside to the inside."""
        self._begin()
        if not self._is_cut():
            self._end()
            if self.a != self.b:
                self._ids()
        if self.a == self.b:
            self._masks()
        if not self.rules:
            self._say("tokenization", "white space at the end is cut into other tokens")
        details = "; ".join(self.details)
        return Difference(tuple(dict.fromkeys(self.rules)), side, self.first, details)

    def _say(self, rule: str, detail: str) -> None:
        self.rules.append(rule)
        self.details.append(detail)

    def _begin(self) -> None:
        counts = [_leading(ids, self.tokenizer.bos_id) for ids in (self.a, self.b)]
        if counts[0] != counts[1]:
            self._say("bos", f"BOS {counts[0]} times in axolotl, {counts[1]} in fmtkit")
            self._drop(counts[0], counts[1], 0, 0)

    def _is_cut(self) -> bool:
        """Take off what is after the end of a row that was cut, more than the end of a turn."""
        shorter = min(len(self.a), len(self.b))
        behind = max(self.a, self.b, key=len)[shorter:]
        if not behind or self.a[:shorter] != self.b[:shorter]:
            return False
        says = any(map(self._says, behind))
        if not self.is_full and (not says or any(t in self.control for t in behind[:2])):
            return False  # Whole turns follow: they are lost, or were never there.
        is_theirs = len(self.a) < len(self.b)
        who = (
            "axolotl ends {} tokens before fmtkit"
            if is_theirs
            else "fmtkit ends {} tokens before axolotl"
        )
        self._say("cut", who.format(len(behind)))
        self._drop(0, 0, len(self.a) - shorter, len(self.b) - shorter)
        return True

    def _says(self, token: int) -> bool:
        return token not in self.control and not self._is_space(token)

    def _end(self) -> None:
        """Take off the line end after the last turn, and the EOS."""
        spaces = [self._trailing_space(ids) for ids in (self.a, self.b)]
        tails = [
            self._text(ids[len(ids) - n :]) for ids, n in zip((self.a, self.b), spaces, strict=True)
        ]
        trained = [
            any(label != -100 for label in labels[len(labels) - n :])
            for labels, n in zip((self.la, self.lb), spaces, strict=True)
        ]
        if tails[0] != tails[1]:
            self._say("whitespace", f"it ends with {tails[0]!r} in axolotl, {tails[1]!r} in fmtkit")
        elif trained[0] != trained[1]:
            self._say(
                "end_mask", f"the line end behind the last turn is trained on {_by(trained[0])}"
            )
        self._drop(0, 0, spaces[0], spaces[1])
        counts = [_leading(ids[::-1], self.tokenizer.eos_id) for ids in (self.a, self.b)]
        if counts[0] != counts[1]:
            self._say("eos", f"EOS {counts[0]} times in axolotl, {counts[1]} in fmtkit")
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
        """Record the rules for labels that differ where the ids are equal."""
        differing = [i for i, (x, y) in enumerate(zip(self.la, self.lb, strict=True)) if x != y]
        if not differing:
            return
        if any(self.la[i] != -100 and self.lb[i] != -100 for i in differing):
            self._say("label", f"{len(differing)} labels differ")
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
            mine = sum(self.la[i] != -100 for i in chosen)
            counts = [
                f"{n} {what} are trained on {_by(is_theirs)}"
                for n, is_theirs in ((mine, True), (count - mine, False))
                if n
            ]
            self._say(rule, ", ".join(counts))

    def _is_end(self, place: int) -> bool:
        return self.a[place] in self.control or self._is_space(self.a[place])

    def _ids(self) -> None:
        """Name the rule by which the ids differ, once their ends are the same."""
        texts = [self._text(ids) for ids in (self.a, self.b)]
        if texts[0] == texts[1]:
            self._say("tokenization", f"{len(self.a)} tokens in axolotl, {len(self.b)} in fmtkit")
        elif _squeezed(texts[0]) == _squeezed(texts[1]):
            self._say("whitespace", "spaces and line ends differ")
        else:
            self._contents()
        self._trained_texts()

    def _contents(self) -> None:
        theirs, ours = (self._turns(ids) for ids in (self.a, self.b))
        fewer, more, where = (
            (theirs, ours, "axolotl") if len(theirs) < len(ours) else (ours, theirs, "fmtkit")
        )
        absent = _absent(fewer, more)
        if absent is not None and len(absent) == len(more) - len(fewer) > 0:
            rule = "system" if len(absent) == 1 and more[0] is absent[0] else "turn_lost"
            named = ", ".join(repr(_short(text)) for text in absent[:2])
            self._say(rule, f"{where} lacks {len(absent)}: {named}")
            return
        trained = [
            self._trained(ids, labels) for ids, labels in ((self.a, self.la), (self.b, self.lb))
        ]
        same = trained[0] and (trained[0] in trained[1] or trained[1] in trained[0])
        rule = "template" if same else "content"
        detail = "another text around the replies" if same else "other replies"
        self._say(rule, detail)

    def _turns(self, ids: Sequence[int]) -> list[str]:
        """Return the texts between the control tokens, without the names of roles."""
        places = [-1, *(i for i, one in enumerate(ids) if one in self.control), len(ids)]
        texts = (self._text(ids[a + 1 : b]) for a, b in pairwise(places))
        return [text.strip() for text in texts if _bare(text)]

    def _trained_texts(self) -> None:
        """Report that other text is trained on, where token ids differ and masks cannot be compared."""
        mine, own = (
            self._trained(ids, labels) for ids, labels in ((self.a, self.la), (self.b, self.lb))
        )
        if mine != own and not {"content", "turn_lost", "template"} & {*self.rules}:
            detail = f"trained on in axolotl {_short(mine)!r}, in fmtkit {_short(own)!r}"
            self._say("mask", detail)

    def _trained(self, ids: Sequence[int], labels: Sequence[int]) -> str:
        kept = [i for i, label in zip(ids, labels, strict=True) if label != -100]
        return _squeezed(self._text([i for i in kept if i not in self.control]))

    def _text(self, ids: Sequence[int]) -> str:
        return self.tokenizer.backend.decode(list(ids), skip_special_tokens=False)


def _by(is_theirs: bool) -> str:
    return "by axolotl alone" if is_theirs else "by fmtkit alone"


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


def _absent(fewer: Sequence[str], more: Sequence[str]) -> list[str] | None:
    """Return what of `more` is missing in `fewer`; None where `fewer` is not a part of it in its order."""
    rest, missing = list(fewer), []
    for text in more:
        if rest and _bare(rest[0]) == _bare(text):
            rest.pop(0)
        else:
            missing.append(text)
    return missing if not rest else None


def _bare(text: str) -> str:
    return _squeezed(_ROLES.sub("", text, count=1))


def _squeezed(text: str) -> str:
    return re.sub(r"\s+", "", text)


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:39] + "…"
