"""How much of the rows is trained: by row, by role, by kind of token, and what is odd about the masks."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field

import numpy as np

from fmtkit.core.data_classes import dataclass
from fmtkit.findings.findings import EXAMPLES, Finding
from fmtkit.masks.masked import Masked
from fmtkit.masks.origins import END, KINDS
from fmtkit.masks.token_origins import never_sampled
from fmtkit.tokenizers.turn_rule import Ends

TEMPLATE = "template"
"""The role of tokens that no message wrote: headers, ends of turns, white space."""


WINDOW = "generated window"
"""The role of tokens that strided EBFT regenerates; a row of tokens has no messages."""


@dataclass(frozen=True)
class RoleShare:
    """The tokens of one role."""

    role: str
    tokens: int
    trained: int


@dataclass(frozen=True)
class KindShare:
    """The tokens of one kind."""

    kind: str
    """One of `fmtkit.masks.origins.KINDS`."""
    tokens: int
    trained: int


@dataclass(frozen=True)
class MaskSummary:
    """The masks of the rows looked at."""

    rows: int
    sequences: int
    tokens: int
    trained: int
    roles: tuple[RoleShare, ...]
    kinds: tuple[KindShare, ...]
    share_p5: float
    """Trained share of the tokens of a sequence: 5 % have less."""
    share_p50: float
    share_p95: float
    untrained_rows: tuple[int, ...]
    """Rows without a trained token."""
    why: tuple[str, ...]
    notes: Mapping[str, int]
    """What is odd -> sequences."""


_MASKED = frozenset(
    {"assistant", "completion", "preference", "replies", "teacher", "turns", "unpaired"}
)
"""Rules by which some tokens that a template writes are trained, and others are not."""


@dataclass
class MaskTally:
    """Collect masks row by row."""

    ends: Ends = "turn"
    """The ends of turns that are to be trained on."""
    rows: int = 0
    of_template: list[int] = field(default_factory=list)
    """Rows with trained tokens that only the template writes."""
    template_tokens: int = 0
    endless: list[int] = field(default_factory=list)
    """Rows with a trained reply whose end is not trained on."""
    shares: list[float] = field(default_factory=list)
    tokens: Counter[str] = field(default_factory=Counter)
    trained: Counter[str] = field(default_factory=Counter)
    kinds: dict[str, list[int]] = field(default_factory=dict)
    untrained: list[int] = field(default_factory=list)
    why: dict[str, None] = field(default_factory=dict)
    notes: Counter[str] = field(default_factory=Counter)

    def add(self, masked: Sequence[Masked], number: int) -> None:
        """Add the sequences of a row, with their origins."""
        if not masked:
            return
        self.rows += 1
        if not any(one.trained.any() for one in masked):
            self.untrained.append(number)
        before, is_endless = self.template_tokens, False
        for one in masked:
            self._count(one)
            if _is_told_apart(one):
                self.template_tokens += int(never_sampled(one).sum())
                is_endless |= self.ends in ("turn", "all") and _lacks_end(one)
            self.shares.append(float(one.trained.mean()) if len(one.ids) else 0.0)
            self.why[one.why] = None
            self.notes.update(one.notes)
        if self.template_tokens > before:
            self.of_template.append(number)
        if is_endless:
            self.endless.append(number)

    def _count(self, one: Masked) -> None:
        """Count the tokens of a sequence by role and by kind."""
        for names, numbers in (_roles(one), (KINDS, _kinds(one))):
            every = np.bincount(numbers, minlength=len(names)).tolist()
            trained = np.bincount(numbers[one.trained], minlength=len(names)).tolist()
            for name, count, learned in zip(names, every, trained, strict=True):
                if count and names is KINDS:
                    known = self.kinds.setdefault(name, [0, 0])
                    known[0] += count
                    known[1] += learned
                elif count:
                    self.tokens[name] += count
                    self.trained[name] += learned

    def findings(self) -> list[Finding]:
        """Return what is odd about the masks of the rows that were added."""
        found = []
        if self.of_template:
            tokens = self.template_tokens
            details = {"tokens": float(tokens), "of trained tokens": tokens / self.trained.total()}
            found.append(self._finding("template_tokens_trained", self.of_template, details))
        if self.endless:
            found.append(self._finding("end_not_trained", self.endless, {}))
        return found

    def _finding(self, code: str, rows: Sequence[int], details: Mapping[str, float]) -> Finding:
        count = len(rows)
        examined = {**details, "of rows looked at": float(self.rows)}
        return Finding(code, count, count / self.rows, tuple(rows[:EXAMPLES]), examined)

    def summary(self) -> MaskSummary | None:
        """Return the summary; None where no row was added."""
        if not self.rows:
            return None
        low, middle, high = np.percentile(self.shares, (5, 50, 95)).tolist()
        roles = tuple(
            RoleShare(role, count, self.trained[role]) for role, count in self.tokens.most_common()
        )
        kinds = tuple(KindShare(kind, *self.kinds[kind]) for kind in KINDS if kind in self.kinds)
        return MaskSummary(
            self.rows,
            len(self.shares),
            self.tokens.total(),
            self.trained.total(),
            roles,
            kinds,
            low,
            middle,
            high,
            tuple(self.untrained[:20]),
            tuple(self.why),
            dict(self.notes.most_common()),
        )


def _is_told_apart(one: Masked) -> bool:
    """Return whether a mask tells replies from the rest, and what the template wrote is known."""
    return (
        one.rule in _MASKED
        and not one.trained.all()
        and one.origins is not None
        and one.origins.by != "spans"
    )


def _lacks_end(one: Masked) -> bool:
    """Return whether the last trained token of a reply is none that ends a turn, in any of its turns."""
    origins = one.origins
    assert origins is not None
    learned = one.trained & origins.sampled
    turns = np.unique(origins.messages[learned])
    ended = origins.messages[learned & (origins.kinds == END)]
    return bool(len(np.setdiff1d(turns, ended)))


def _kinds(one: Masked) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    assert one.origins is not None
    return one.origins.kinds.astype(np.int64)


def _roles(one: Masked) -> tuple[tuple[str, ...], "np.ndarray[tuple[int], np.dtype[np.int64]]"]:
    """Return names of roles, and the index of each token's: of what a message wrote that of the message."""
    origins = one.origins
    assert origins is not None
    if one.rule == "blocks":
        # A row of tokens has no messages.
        return ("document", WINDOW), one.generated.astype(np.int64)
    names = tuple(dict.fromkeys((*origins.roles, TEMPLATE)))
    of_message = np.array([names.index(role) for role in (*origins.roles, TEMPLATE)], np.int64)
    template = names.index(TEMPLATE)
    return names, np.where(origins.by_template, template, of_message[origins.messages])
