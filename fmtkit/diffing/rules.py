"""The rules that name how two rows of ids and labels differ, and why a row is on one side only."""

from collections.abc import Mapping
from functools import cached_property

from fmtkit.core.data_classes import dataclass
from fmtkit.diffing.sequences import Sequences, Sides
from fmtkit.masks.masked import TokenRow, digest_of
from fmtkit.tokenizers.tokens import Tokenizer

RULES: Mapping[str, str] = {
    "bos": "the numbers of BOS tokens at the start differ: a template writes one, a tokenizer adds one",
    "eos": "the numbers of EOS tokens at the end differ: trainers add one to text that has none",
    "cut": "only one of the two is truncated, at its end: sequence_len, and when it is applied",
    "cut_start": "only one of the two is truncated, at its start: sequence_len, truncation_mode",
    "cut_side": "both are truncated, one at its start and one at its end: truncation_mode",
    "whitespace": "the text differs only in spaces and line ends",
    "tokenization": "same text, different tokens: strings are joined before or after tokenization",
    "tokenizer": "same text, different tokens, and the two tokenizers differ: merges, settings, versions",
    "turn_lost": "one side lacks turns: some formats of axolotl read only one question and one answer",
    "system": "the system prompts differ: default_system_message, or the template's default",
    "empty_think": "only one side has an empty think block: the template, or enable_thinking",
    "reasoning": "only one side has the reasoning of a turn: templates drop reasoning of earlier turns",
    "key_order": "the JSON of tools or of calls has its keys in a different order",
    "json_text": "the JSON of tools or of calls is written differently: escapes, spaces, numbers",
    "tools": "the descriptions of tools differ: in the row, or in how the template writes them",
    "prompt": "the text of a prompt differs: a changed row, or text that one side adds or strips",
    "template": "what the template writes around the texts of messages differs",
    "content": "the replies differ",
    "mask": "same tokens, different loss mask",
    "header_mask": "only one side trains on the header of a turn, which the template writes",
    "end_mask": "only one side trains on the end of a turn: train_on_eos, or the template's line end",
    "label": "the label of the reply or of a step differs",
}
"""Rule -> its meaning, for reports and for the documentation."""

ONLY: Mapping[str, str] = {
    "sequence_len": "it is longer than sequence_len",
    "short": "it is shorter than min_sample_len (default: 2), which axolotl drops",
    "no_trained_token": "it has no trained token, and trainers leave such rows out",
    "duplicate": "a duplicate of it is in both: dataset_exact_deduplication, weights or repeated sources",
    "refused": "one side refused one or more rows: see its messages",
    "no_place": "the other trainer's format has no place for something in it: see the reasons",
    "dropped": "the other side dropped it without a message: its preparation leaves out rows that do not fit",
    "absent": "the other side has no similar row: a different source, split, slice or val_set_size",
}
"""Why only one side has a row -> what it means."""


@dataclass(frozen=True)
class Difference:
    """The rules by which two aligned rows differ, and the first token that differs."""

    rules: tuple[str, ...]
    side: str
    """`chosen` or `rejected` in a pair; empty where a row is one sequence."""
    token: int
    """Index of the first token whose id or label differs."""
    detail: str
    trained: int = 0
    """Trained tokens of both rows that the other does not train on in its place."""


@dataclass(frozen=True)
class Judge:
    """Finds the rules by which two rows differ that have one vocabulary."""

    tokenizer: Tokenizer
    longest: int | None = None
    """Tokens to which rows are truncated."""
    names: tuple[str, str] = ("fmtkit", "axolotl")
    same_settings: bool = True
    """Whether both tokenizers tokenize the same texts alike."""
    begins: frozenset[int] = frozenset()
    """BOS of the other side, which may be another."""
    ends: frozenset[int] = frozenset()
    """EOS of the other side."""

    @cached_property
    def control(self) -> frozenset[int]:
        """The ids of control tokens."""
        return frozenset(self.tokenizer.control_tokens().values())

    def difference(self, left: TokenRow, right: TokenRow) -> Difference:
        """Return the rules, at least one, by which two aligned rows that are not equal differ."""
        rules: dict[str, None] = {}
        first: Difference | None = None
        trained = 0
        for one, other in zip(left.sequences, right.sequences, strict=True):
            if digest_of([one]) == digest_of([other]):
                continue
            pair = Sequences(one, other, self._sides())
            found = pair.rules()
            rules |= dict.fromkeys(self._named(rule) for rule in found)
            trained += pair.trained
            if first is None:
                side = one.side if len(left.sequences) > 1 else ""
                first = Difference((), side, pair.first, "; ".join(pair.details))
        if left.label is not right.label:
            rules["label"] = None
        if first is None:
            detail = f"{left.label} in {self.names[0]}, {right.label} in {self.names[1]}"
            return Difference(tuple(rules), "", 0, detail, left.trained + right.trained)
        return Difference(tuple(rules), first.side, first.token, first.detail, trained)

    def _sides(self) -> Sides:
        own = [
            frozenset(() if one is None else (one,))
            for one in (self.tokenizer.bos_id, self.tokenizer.eos_id)
        ]
        begins, ends = own[0] | self.begins, own[1] | self.ends
        return Sides(
            self.tokenizer,
            self.control,
            begins,
            ends,
            self.same_settings,
            self.longest,
            self.names,
        )

    def _named(self, rule: str) -> str:
        return "tokenizer" if rule == "tokenization" and not self.same_settings else rule
