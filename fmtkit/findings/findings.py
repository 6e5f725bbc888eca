"""What is wrong, or looks wrong, with the rows of a table: counts, row numbers, and what to do.

Canonical tables are checked batch by batch, in columns and with bounded memory: of each finding the number of
rows is kept, and the numbers of the first ones; many fingerprints go to disk.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fmtkit.core.data_classes import dataclass
from fmtkit.core.image_columns import IMAGES
from fmtkit.core.message_keys import SPOKEN
from fmtkit.core.tables import CONVERSATION_COLUMNS, has_images
from fmtkit.findings import secret_texts
from fmtkit.findings.conversation_checks import (
    CONVERSATION_CHECKS,
    Conversations,
    matching,
    searched,
    with_reasoning,
)
from fmtkit.findings.directions import Directions
from fmtkit.findings.fingerprints import Fingerprints, Hashes, hash_column, hash_images, mixed

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

EXAMPLES = 20
"""Rows that a finding names."""

MANY = 50
"""Minimum number of rows for a finding about a share."""

COMPARED = CONVERSATION_COLUMNS | {
    "completions",
    "ground_truth",
    "input_ids",
    "replies",
    "tools",
    "label",
}
"""Columns in which copies of a row agree; kept columns may differ."""


@dataclass(frozen=True)
class Finding:
    """Rows with something wrong."""

    code: str
    count: int
    share: float
    """Of all rows that were looked at."""
    rows: tuple[int, ...]
    """The first of them, by number over all sources."""
    details: Mapping[str, float | str] = field(default_factory=dict)


@dataclass
class Findings:
    """Collect what is found in batch after batch."""

    control_tokens: tuple[str, ...] = ()
    named_rows: int = EXAMPLES
    """How many rows a finding names."""
    rows: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[int]] = field(default_factory=dict)
    labels: dict[bool, int] = field(default_factory=lambda: {True: 0, False: 0})
    longer: dict[str, float] = field(default_factory=dict)
    secrets: secret_texts.SecretCounts = field(default_factory=dict)
    tools: dict[bool, int] = field(default_factory=lambda: {True: 0, False: 0})
    first_without_tools: list[int] = field(default_factory=list)
    unthought: dict[str, float] = field(default_factory=lambda: {"replies": 0, "last replies": 0})
    """Replies whose reasoning the template leaves out, and how many of them are the last of their row."""
    thinking: dict[bool, int] = field(default_factory=lambda: {True: 0, False: 0})
    """Rows with reasoning in a reply, and rows without."""
    first_thinking: dict[bool, list[int]] = field(default_factory=lambda: {True: [], False: []})
    directions: Directions = field(default_factory=Directions)
    fingerprints: Fingerprints = field(default_factory=Fingerprints)

    def add(self, table: pa.Table, rows: Ints, split: str = "") -> None:
        """Check a batch of a canonical table in messages form; `rows` are its rows' numbers."""
        if table.num_rows == 0:
            return
        self.rows += table.num_rows
        hashes = {n: hash_column(table[n]) for n in table.column_names if n in COMPARED}
        if has_images(table.schema):
            _tell_images_apart(table, hashes)
        self._add_conversations(table, rows)
        self._add_pairs(table, rows, hashes)
        self._add_labels(table, rows)
        self._add_tools(table, rows)
        self._add_thinking(table, rows)
        self._add_secrets(*secret_texts.find(table), rows)
        self._add_copies(hashes, rows, split)

    def absorb(self, other: "Findings", first: int) -> None:
        """Add what was found in rows whose row 0 is row `first` here."""
        self.rows += other.rows
        for code, count in other.counts.items():
            self.counts[code] = self.counts.get(code, 0) + count
            known = self.examples.setdefault(code, [])
            known.extend(
                row + first for row in other.examples[code][: self.named_rows - len(known)]
            )
        for mine, its in (
            (self.labels, other.labels),
            (self.tools, other.tools),
            (self.thinking, other.thinking),
        ):
            for key, count in its.items():
                mine[key] += count
        for name, value in other.unthought.items():
            self.unthought[name] += value
        for name, value in other.longer.items():
            self.longer[name] = self.longer.get(name, 0) + value
        for place, count in other.secrets.items():
            self.secrets[place] = self.secrets.get(place, 0) + count
        room = self.named_rows - len(self.first_without_tools)
        self.first_without_tools.extend(row + first for row in other.first_without_tools[:room])
        for has, mine_first in self.first_thinking.items():
            its_first = other.first_thinking[has][: self.named_rows - len(mine_first)]
            mine_first.extend(row + first for row in its_first)
        self.fingerprints.absorb(other.fingerprints, first)

    def named(self) -> set[int]:
        """Return the rows that are examples of anything so far."""
        return {
            *self.first_without_tools,
            *(row for rows in self.first_thinking.values() for row in rows),
            *(row for rows in self.examples.values() for row in rows),
        }

    def note(self, code: str, rows: Ints) -> None:
        """Add rows of a finding that another check made."""
        self.counts[code] = self.counts.get(code, 0) + len(rows)
        known = self.examples.setdefault(code, [])
        known.extend(rows[: self.named_rows - len(known)].tolist())

    def _note_where(self, code: str, rows: Ints, where: Bools) -> None:
        if where.any():
            self.note(code, rows[where])

    def _add_conversations(self, table: pa.Table, rows: Ints) -> None:
        conversations, replies = conversation_columns(table), ranked_replies(table)
        for code, check in CONVERSATION_CHECKS.items():
            wrong = [check(conversation) for conversation in conversations]
            if replies is not None:
                wrong.append(replies.rows_with(check(replies.conversations)))
            if wrong:
                self._note_where(code, rows, np.logical_or.reduce(wrong))
        words = searched(self.control_tokens)
        if not words:
            return
        found = [
            d.rows_with(matching(d.field(key), words)) for d in conversations for key in SPOKEN
        ]
        if replies is not None:
            held = [matching(replies.conversations.field(key), words) for key in SPOKEN]
            found += [replies.rows_with(replies.conversations.rows_with(each)) for each in held]
        found += [matching(texts, words) for texts in _texts(table)]
        if found:
            self._note_where("control_tokens", rows, np.logical_or.reduce(found))

    def _add_pairs(self, table: pa.Table, rows: Ints, hashes: Mapping[str, Hashes]) -> None:
        if not {"chosen", "rejected"} <= set(table.column_names):
            return
        self._note_where("chosen_equals_rejected", rows, hashes["chosen"] == hashes["rejected"])
        contradicted, tied = self.directions.judge(table)
        self._note_where("direction_contradicted", rows, contradicted)
        self._note_where("direction_tied", rows, tied)

    def add_sides(self, chosen: Ints, rejected: Ints) -> None:
        """Add the lengths of the two replies of each pair, in tokens or characters."""
        for name, value in (
            ("pairs", len(chosen)),
            ("chosen", int((chosen > rejected).sum())),
            ("rejected", int((chosen < rejected).sum())),
            ("chosen_length", int(chosen.sum())),
            ("rejected_length", int(rejected.sum())),
        ):
            self.longer[name] = self.longer.get(name, 0) + value

    def _add_labels(self, table: pa.Table, rows: Ints) -> None:
        if "label" in table.column_names:
            desirable = pc.sum(table["label"]).as_py() or 0
            self.labels[True] += desirable
            self.labels[False] += table.num_rows - desirable
        if "completions" not in table.column_names:
            return
        labels = table["labels"].combine_chunks()
        values = pc.list_flatten(labels).cast(pa.float64())
        parents = pc.list_parent_indices(labels).to_numpy(zero_copy_only=False)
        missing = pc.is_null(values).to_numpy(zero_copy_only=False)
        known = values.fill_null(0.0).to_numpy(zero_copy_only=False)
        for code, wrong in {
            "missing_labels": missing,
            "soft_labels": (known != 0.0) & (known != 1.0),
        }.items():
            self._note_where(code, rows, np.bincount(parents[wrong], minlength=len(rows)) > 0)

    def _add_tools(self, table: pa.Table, rows: Ints) -> None:
        if "tools" not in table.column_names:
            return
        has = pc.is_valid(table["tools"].combine_chunks()).to_numpy(zero_copy_only=False)
        self.tools[True] += int(has.sum())
        self.tools[False] += int((~has).sum())
        room = self.named_rows - len(self.first_without_tools)
        self.first_without_tools.extend(rows[~has][:room].tolist())

    def add_unthought(self, replies: Sequence[tuple[int, bool]], rows: Ints) -> None:
        """Add replies whose reasoning is left out: the row of each, and whether it is the row's last."""
        self.note("reasoning_dropped", rows[list(dict.fromkeys(row for row, _ in replies))])
        self.unthought["replies"] += len(replies)
        self.unthought["last replies"] += sum(is_last for _, is_last in replies)

    def _add_thinking(self, table: pa.Table, rows: Ints) -> None:
        conversations = conversation_columns(table)
        if not conversations:
            return
        replying = np.logical_or.reduce(
            [d.rows_with(d.is_role("assistant")) for d in conversations]
        )
        thinks = np.logical_or.reduce([d.rows_with(with_reasoning(d)) for d in conversations])
        for has, found in ((True, thinks), (False, replying & ~thinks)):
            self.thinking[has] += int(found.sum())
            known = self.first_thinking[has]
            known.extend(rows[found][: self.named_rows - len(known)].tolist())

    def _add_secrets(self, found: Bools, counts: secret_texts.SecretCounts, rows: Ints) -> None:
        self._note_where("secrets", rows, found)
        for place, count in counts.items():
            self.secrets[place] = self.secrets.get(place, 0) + count

    def _add_copies(self, hashes: Mapping[str, Hashes], rows: Ints, split: str) -> None:
        if hashes:
            self.fingerprints.add(mixed([*hashes.values()]), hashes.get("prompt"), rows, split)

    def result(self) -> tuple[Finding, ...]:
        """Return what was found, most rows first."""
        copies, shared = self.fingerprints.copies(), self.fingerprints.shared()
        found = [
            self._finding(code, count, self.examples[code], self._details(code))
            for code, count in self.counts.items()
        ]
        for code, rows in (("duplicate_rows", copies), ("prompt_in_splits", shared)):
            if len(rows):
                found.append(self._finding(code, len(rows), rows[: self.named_rows].tolist()))
        if self.tools[True] and self.tools[False]:
            without = self.tools[False]
            found.append(self._finding("tools_not_uniform", without, self.first_without_tools))
        if self.thinking[True] and self.thinking[False]:
            # The fewer rows are the ones to look at.
            fewer = self.thinking[True] < self.thinking[False]
            counts = {"with reasoning": self.thinking[True], "without": self.thinking[False]}
            examples = self.first_thinking[fewer]
            found.append(self._finding("thinking_mixed", self.thinking[fewer], examples, counts))
        found += self._balances()
        return tuple(sorted(found, key=lambda finding: (-finding.count, finding.code)))

    def _details(self, code: str) -> Mapping[str, float | str]:
        if code == "reasoning_dropped":
            return dict(self.unthought)
        return secret_texts.details_of(self.secrets) if code == "secrets" else {}

    def _balances(self) -> list[Finding]:
        found = []
        bias = length_bias(self.longer)
        if bias:
            found.append(self._finding("length_bias", int(bias["rows"]), [], bias))
        desirable, undesirable = self.labels[True], self.labels[False]
        if bool(desirable) != bool(undesirable):
            count = desirable + undesirable
            found.append(self._finding("one_label", count, [], {"label": str(bool(desirable))}))
        if desirable and undesirable and (weights := kto_weights(desirable, undesirable)):
            found.append(self._finding("label_balance", abs(desirable - undesirable), [], weights))
        return found

    def _finding(
        self,
        code: str,
        count: int,
        rows: Sequence[int],
        details: Mapping[str, float | str] | None = None,
    ) -> Finding:
        share = count / self.rows if self.rows else 0.0
        return Finding(code, count, share, tuple(rows), details or {})


def _tell_images_apart(table: pa.Table, hashes: dict[str, Hashes]) -> None:
    """Let rows and their prompts be equal only if their images are: many ask the same of every image."""
    images = hash_images(table[IMAGES].combine_chunks())
    name = "prompt" if "prompt" in hashes else "messages"
    if name in hashes:
        hashes[name] = mixed([hashes[name], images])


def _texts(table: pa.Table) -> list[pa.Array]:
    """Return the columns of plain text that reach a model."""
    names = [n for n in ("prompt", "ground_truth") if n in table.column_names]
    return [table[n].combine_chunks() for n in names if pa.types.is_string(table[n].type)]


def length_bias(longer: Mapping[str, float]) -> dict[str, float | str] | None:
    """Return the figures where one side is longer far more often than by chance (3 sigma, 60 %)."""
    pairs = longer.get("chosen", 0) + longer.get("rejected", 0)
    if pairs < MANY:
        return None
    share = longer["chosen"] / pairs
    if abs(share - 0.5) < max(0.1, 1.5 / np.sqrt(pairs)):
        return None
    return {
        "longer": "chosen" if share > 0.5 else "rejected",
        "rows": longer["chosen" if share > 0.5 else "rejected"],
        "share": max(share, 1 - share),
        "mean_chosen": longer["chosen_length"] / longer["pairs"],
        "mean_rejected": longer["rejected_length"] / longer["pairs"],
    }


def kto_weights(desirable: int, undesirable: int) -> dict[str, float | str] | None:
    """Return the weights that bring desirable to undesirable rows to 1:1 up to 4:3.

    None where they are about in that range already. KTO's paper, equation 8
    (https://arxiv.org/abs/2402.01306): set one of the two, not both.
    """
    if 0.95 <= desirable / undesirable <= 4 / 3:
        return None
    return {
        "desirable": desirable,
        "undesirable": undesirable,
        "desirable_weight_from": round(undesirable / desirable, 4),
        "desirable_weight_to": round(undesirable / desirable * 4 / 3, 4),
        "undesirable_weight_from": round(desirable / undesirable * 3 / 4, 4),
        "undesirable_weight_to": round(desirable / undesirable, 4),
    }


def conversation_columns(table: pa.Table) -> list[Conversations]:
    """Return the columns of messages."""
    found = []
    for name in table.column_names:
        kind = table.schema.field(name).type
        if (
            name in CONVERSATION_COLUMNS
            and pa.types.is_list(kind)
            and pa.types.is_struct(kind.value_type)
        ):
            found.append(Conversations.of(name, table[name]))
    return found


@dataclass(frozen=True, eq=False)
class Replies:
    """The replies of a ranking, each a conversation of its own, and the row of each."""

    conversations: Conversations
    rows: Ints
    size: int

    def rows_with(self, wrong: Bools) -> Bools:
        """Return which rows have a reply for which `wrong` is true."""
        found = np.zeros(self.size, dtype=np.bool_)
        found[self.rows[wrong]] = True
        return found


def ranked_replies(table: pa.Table) -> Replies | None:
    """Return the replies of rankings, where the table has any."""
    if "replies" not in table.column_names:
        return None
    lists = table["replies"].combine_chunks()
    rows = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False).astype(np.int64)
    return Replies(Conversations.of("replies", pc.list_flatten(lists)), rows, len(lists))
