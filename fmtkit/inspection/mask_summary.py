"""How much of the rows is trained: by row, by role, and what is odd about the masks."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field
from itertools import groupby
from typing import Any

import numpy as np

from fmtkit.core.data_classes import dataclass
from fmtkit.core.message_keys import SPOKEN
from fmtkit.inspection.findings import EXAMPLES, Finding
from fmtkit.inspection.masked import Masked

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
class MaskSummary:
    """The masks of the rows looked at."""

    rows: int
    sequences: int
    tokens: int
    trained: int
    roles: tuple[RoleShare, ...]
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
_EMPTY_BLOCK = re.compile(r"<([\w|]+)>\s*</\1>\s*")


@dataclass
class MaskTally:
    """Collect masks row by row."""

    control: frozenset[int] = frozenset()
    """The tokenizer's control tokens, of which the one after a reply ends it."""
    rows: int = 0
    of_template: list[int] = field(default_factory=list)
    """Rows with trained tokens that only the template writes."""
    template_tokens: int = 0
    shares: list[float] = field(default_factory=list)
    tokens: Counter[str] = field(default_factory=Counter)
    trained: Counter[str] = field(default_factory=Counter)
    untrained: list[int] = field(default_factory=list)
    why: dict[str, None] = field(default_factory=dict)
    notes: Counter[str] = field(default_factory=Counter)

    def add(self, row: Mapping[str, Any], masked: Sequence[Masked], number: int) -> None:
        """Add the sequences of a row."""
        if not masked:
            return
        self.rows += 1
        if not any(one.trained.any() for one in masked):
            self.untrained.append(number)
        before = self.template_tokens
        for one in masked:
            roles = _roles(row, one)
            self.template_tokens += _of_template(
                one, roles, self.control, has_calls=_has_calls(row)
            )
            self.shares.append(float(one.trained.mean()) if len(one.ids) else 0.0)
            self.tokens.update(roles)
            self.trained.update(np.array(roles, dtype=object)[one.trained].tolist())
            self.why[one.why] = None
            self.notes.update(one.notes)
        if self.template_tokens > before:
            self.of_template.append(number)

    def findings(self) -> list[Finding]:
        """Return the finding on tokens of the template that are trained, of the rows that were added."""
        if not self.of_template:
            return []
        count, tokens = len(self.of_template), self.template_tokens
        details = {"tokens": float(tokens), "of trained tokens": tokens / self.trained.total()}
        rows = tuple(self.of_template[:EXAMPLES])
        return [
            Finding(
                "template_tokens_trained",
                count,
                count / self.rows,
                rows,
                {**details, "of rows looked at": float(self.rows)},
            )
        ]

    def summary(self) -> MaskSummary | None:
        """Return the summary; None where no row was added."""
        if not self.rows:
            return None
        low, middle, high = np.percentile(self.shares, (5, 50, 95)).tolist()
        roles = tuple(
            RoleShare(role, count, self.trained[role]) for role, count in self.tokens.most_common()
        )
        return MaskSummary(
            self.rows,
            len(self.shares),
            self.tokens.total(),
            self.trained.total(),
            roles,
            low,
            middle,
            high,
            tuple(self.untrained[:20]),
            tuple(self.why),
            dict(self.notes.most_common()),
        )


def _of_template(
    one: Masked, roles: Sequence[str], control: frozenset[int], *, has_calls: bool
) -> int:
    """Count the trained tokens that the template writes where the model, when it answers, writes none.

    These are empty blocks for reasoning, and all that follows the end of a turn. Other tokens around a text
    (the marks of reasoning, of calls, of channels) are those that a model has to learn to write.
    """
    if one.rule not in _MASKED or one.trained.all():
        return 0
    count, at = 0, 0
    for is_template, stretch in groupby(range(len(roles)), lambda i: roles[i] == TEMPLATE):
        first, last = at, at + len(list(stretch))
        at = last
        if is_template and one.trained[first:last].any():
            never = _never_written(one, roles, (first, last), control, has_calls=has_calls)
            count += int(one.trained[sorted(never)].sum()) if never else 0
    return count


def _never_written(
    one: Masked,
    roles: Sequence[str],
    stretch: tuple[int, int],
    control: frozenset[int],
    *,
    has_calls: bool,
) -> set[int]:
    """Return the tokens of a stretch between two texts that no model writes."""
    first, last = stretch
    begin = one.offsets[first][0]
    text = one.text[begin : one.offsets[last - 1][1]]
    blocks = [match.span() for match in _EMPTY_BLOCK.finditer(text)]
    found = {
        i
        for i in range(first, last)
        for start, stop in blocks
        if begin + start <= one.offsets[i][0] and one.offsets[i][1] <= begin + stop
    }
    is_inside = first > 0 and last < len(roles) and roles[first - 1] == roles[last]
    if first and one.trained[first - 1] and not is_inside:
        ends = [i for i in range(first, last) if one.trained[i] and int(one.ids[i]) in control]
        # Calls before the end of a turn may begin with a control token of their own.
        end = ends[-1 if has_calls else 0] if ends else last
        found |= set(range(end + 1, last))
    return found


def _has_calls(row: Mapping[str, Any]) -> bool:
    dialogs = (value for value in row.values() if isinstance(value, list))
    return any(
        isinstance(message, dict) and message.get("tool_calls")
        for dialog in dialogs
        for message in dialog
    )


def _roles(row: Mapping[str, Any], one: Masked) -> list[str]:
    if "input_ids" not in row:
        return roles_of(one, messages_of(row, one.side))
    return [WINDOW if is_generated else "document" for is_generated in one.generated]


def messages_of(row: Mapping[str, Any], side: str) -> list[tuple[str, str]]:
    """Return the role and text of what a side of a row says, in order."""
    if "completions" in row:
        return [("prompt", row["prompt"]), *(("step", step) for step in row["completions"])]
    names = ("messages",) if "messages" in row else ("prompt", side or "completion")
    found = []
    for name in names:
        dialog = row.get(name)
        if isinstance(dialog, str):
            found.append((name, dialog))
            continue
        for message in dialog or ():
            found += [(message["role"], message[key]) for key in SPOKEN if message.get(key)]
    return found


def roles_of(one: Masked, messages: Sequence[tuple[str, str]]) -> list[str]:
    """Name the role of each token: that of the message in which it begins."""
    starts, ends = np.array(one.offsets, dtype=np.int64).reshape(-1, 2).T
    roles = np.full(len(starts), TEMPLATE, dtype=object)
    found: list[tuple[int, int, str]] = []
    at = 0
    for role, said in messages:
        text = said.strip()
        place = one.text.find(text, at) if text else -1
        if place >= 0:
            at = place + len(text)
            found.append((place, at, role))
    if found:
        begins, stops, speakers = (np.array(column) for column in zip(*found, strict=True))
        # For each token, the last message that begins before it.
        own = np.searchsorted(begins, starts, side="right") - 1
        inside = (own >= 0) & (starts < stops[own]) & (ends > starts)
        roles[inside] = speakers[own[inside]]
    named: list[str] = roles.tolist()
    return named
