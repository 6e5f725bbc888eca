"""`fmtkit compare`: where fmtkit's rows differ from a dataset that axolotl prepared, and by which rule."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OptionError
from fmtkit.tokenizers.tokens import Tokenizer
from fmtkit.training.comparing import own_rows, prepared
from fmtkit.training.comparing.alignment import Aligned, Numbers, align
from fmtkit.training.comparing.prepared import Form, Prepared
from fmtkit.training.comparing.rules import ONLY, RULES, Difference, Judge
from fmtkit.training.comparing.spool import Row, Spool
from fmtkit.training.data.prerendered import settled
from fmtkit.training.planning.plan import plan
from fmtkit.training.planning.run_plan import Plan

_AROUND = 12
"""Tokens shown before the first that differs, and from it on."""
_WHAT: Mapping[Form, str] = {
    "tokens": "tokens with labels (sft, process reward models)",
    "scores": "pairs of tokens (a reward model)",
    "pairs": "preference pairs (dpo and related methods)",
    "replies": "single replies with labels (kto)",
}


@dataclass(frozen=True)
class Example:
    """A row that differs, or that is on one side only."""

    rules: tuple[str, ...]
    axolotl_row: int | None
    """Index of the row in the prepared dataset."""
    fmtkit_row: int | None
    """Index of the row among the converted rows, in the order of the sources."""
    side: str
    token: int | None
    detail: str
    before: str
    """Text before the first token that differs."""
    axolotl: str
    """Text from that token on, with [brackets] around trained tokens."""
    fmtkit: str


@dataclass(frozen=True)
class Comparison:
    """The result of `fmtkit.compare`: how many rows are equal, and by which rules the others differ."""

    config: str
    against: str
    method: str
    rows: dict[str, int]
    """`axolotl` = equal + different + only_axolotl, `fmtkit` = equal + different + only_fmtkit."""
    rules: dict[str, int]
    """Rule -> rows that differ by it; a row may differ by several."""
    only_axolotl: dict[str, int]
    """Why rows are only in axolotl's dataset -> how many."""
    only_fmtkit: dict[str, int]
    ledger: dict[str, int]
    """The ledger of fmtkit's conversion: rows of the sources by outcome."""
    reasons: dict[str, int]
    """Rows that fmtkit has quarantined, by code."""
    moved: int
    """Aligned rows whose position differs, since datasets are shuffled."""
    notes: tuple[str, ...] = ()
    examples: tuple[Example, ...] = field(default=())

    @property
    def is_equal(self) -> bool:
        """Return whether both hold the same rows, in any order."""
        rows = self.rows
        return not (rows["different"] or rows["only_axolotl"] or rows["only_fmtkit"])

    @staticmethod
    def meaning(code: str) -> str:
        """Return what a rule means, or why a row is on one side only."""
        return {**RULES, **ONLY}[code]

    @property
    def exit_code(self) -> int:
        """Return 0 if both are equal, else 1."""
        return 0 if self.is_equal else 1

    def as_dict(self) -> dict[str, Any]:
        """Return plain values that schemas/comparison.schema.json describes."""
        return asdict(self) | {
            "equal": self.is_equal,
            "notes": list(self.notes),
            "examples": [asdict(e) | {"rules": list(e.rules)} for e in self.examples],
        }


def compare(
    config: str | Path | Mapping[str, object],
    against: str | Path,
    *,
    rows: int = 3,
    overrides: Sequence[str] = (),
) -> Comparison:
    """Compare the rows of a config with a dataset that axolotl prepared; see `fmtkit.compare`."""
    dataset = prepared.opened(against)
    run_plan = settled(plan(config, overrides, partial=True), with_hub=True)
    _check(dataset, run_plan)
    with TemporaryDirectory(prefix="fmtkit-compare-") as folder, _without_bars():
        place = Path(folder)
        own = own_rows.converted(run_plan, place)
        theirs = Spool.write(place / "axolotl.arrow", prepared.rows(dataset, own.tokenizer))
        ours = Spool.write(place / "fmtkit.arrow", own_rows.rows(own))
        return _compared(run_plan, dataset, own, theirs, ours, rows)


@contextmanager
def _without_bars() -> Iterator[None]:
    """Disable the progress bars of `datasets`."""
    import datasets

    was_disabled = datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        if not was_disabled:
            datasets.enable_progress_bars()


def _check(dataset: Prepared, run_plan: Plan) -> None:
    if not run_plan.datasets:
        raise OptionError(f"{run_plan.source}: no datasets: to compare")
    if run_plan.model is None:
        raise OptionError(f"{run_plan.source}: base_model: needed, for its tokenizer")
    form = own_rows.form_of(run_plan)
    if form != dataset.form:
        raise OptionError(
            f"--against {dataset.folder}: holds {_WHAT[dataset.form]}, but {run_plan.source} trains "
            f"{run_plan.method}, which takes {_WHAT[form]}"
        )


def _compared(
    run_plan: Plan, dataset: Prepared, own: own_rows.OwnRows, theirs: Spool, ours: Spool, most: int
) -> Comparison:
    tokenizer = own.tokenizer
    if not len(theirs):
        raise OptionError(f"--against {dataset.folder}: holds no rows")
    _check_vocabulary(dataset, theirs, tokenizer)
    decode = _decoder(tokenizer)
    control = frozenset(tokenizer.control_tokens().values())
    aligned = align(theirs, ours, decode, control)
    aligned_rows = len(aligned.equal) + len(aligned.different)
    if not aligned_rows:
        raise OptionError(
            f"--against {dataset.folder}: none of its {len(theirs):,} rows resembles one of the config's "
            f"{len(ours):,}: it holds other data, or was not tokenized by the tokenizer of {run_plan.model}"
        )
    judge = Judge(tokenizer, own.job.max_length)
    rules: Counter[str] = Counter()
    shown: Counter[str] = Counter()
    examples: list[Example] = []
    for a, b in aligned.different.tolist():
        one, other = theirs[a], ours[b]
        differs = judge.difference(one, other)
        rules.update(differs.rules)
        if any(shown[rule] < most for rule in differs.rules):
            shown.update(differs.rules)
            examples.append(_example(differs, (a, b), (one, other), decode))
    seen = {*theirs.hashes["ids"][_column(aligned, 0)].tolist()}
    only: dict[str, Counter[str]] = {"axolotl": Counter(), "fmtkit": Counter()}
    sides = (("axolotl", theirs, aligned.only_theirs), ("fmtkit", ours, aligned.only_ours))
    for name, spool, numbers in sides:
        for number in numbers.tolist():
            row = spool[number]
            is_seen = spool.hashes["ids"][number].item() in seen
            why = _why(row, own, own.job.max_length, is_seen=is_seen, is_theirs=name == "axolotl")
            only[name][why] += 1
            if only[name][why] <= most:
                examples.append(_one_sided(why, number, row, decode, is_theirs=name == "axolotl"))
    counts = {
        "axolotl": len(theirs),
        "fmtkit": len(ours),
        "equal": len(aligned.equal),
        "different": len(aligned.different),
        "only_axolotl": len(aligned.only_theirs),
        "only_fmtkit": len(aligned.only_ours),
    }
    return Comparison(
        run_plan.source,
        str(dataset.folder),
        run_plan.method,
        counts,
        dict(rules.most_common()),
        dict(only["axolotl"].most_common()),
        dict(only["fmtkit"].most_common()),
        {**own.ledger, "fully_masked": own.fully_masked},
        own.reasons,
        _moved(aligned),
        _notes(aligned, run_plan),
        tuple(examples),
    )


def _check_vocabulary(dataset: Prepared, theirs: Spool, tokenizer: Tokenizer) -> None:
    """Raise OptionError if the first rows have ids outside the tokenizer's vocabulary."""
    if dataset.form not in ("tokens", "scores"):
        return
    size = tokenizer.backend.get_vocab_size(with_added_tokens=True)
    for number in range(min(len(theirs), 1000)):
        top = max((max(ids, default=0) for ids in theirs[number].ids), default=0)
        if top >= size:
            raise OptionError(
                f"--against {dataset.folder}: row {number} has the token id {top:,}, and the tokenizer "
                f"{tokenizer.name} has {size:,}: it was prepared with a different tokenizer"
            )


def _decoder(tokenizer: Tokenizer) -> Callable[[Sequence[int]], str]:
    return lambda ids: tokenizer.backend.decode(list(ids), skip_special_tokens=False)


def _column(aligned: Aligned, side: int) -> Numbers:
    return np.concatenate([aligned.equal[:, side], aligned.different[:, side]])


def _moved(aligned: Aligned) -> int:
    """Count the aligned rows whose position among the aligned rows differs between the sides."""
    ranks = [np.argsort(np.argsort(_column(aligned, side), kind="stable")) for side in (0, 1)]
    return int((ranks[0] != ranks[1]).sum())


def _notes(aligned: Aligned, run_plan: Plan) -> tuple[str, ...]:
    notes = []
    moved, aligned_rows = _moved(aligned), len(aligned.equal) + len(aligned.different)
    if moved:
        notes.append(
            f"{moved:,} of {aligned_rows:,} aligned rows are in a different order: axolotl shuffles when it "
            "prepares, fmtkit when it trains"
        )
    if run_plan.config.get("val_set_size"):
        notes.append(
            "the rows of val_set_size are compared too: axolotl splits them off after it has saved"
        )
    if run_plan.test_datasets:
        notes.append("test_datasets are not compared: axolotl saves them in a separate folder")
    return tuple(notes)


def _why(
    row: Row, own: own_rows.OwnRows, longest: int | None, *, is_seen: bool, is_theirs: bool
) -> str:
    shortest = own.plan.config.get("min_sample_len")
    if longest is not None and row.length > longest:
        return "sequence_len"
    if is_seen:
        return "duplicate"
    if not is_theirs and row.length < (shortest if isinstance(shortest, int) else 2):
        return "short"
    if not row.has_loss:
        return "no_trained_token"
    return "refused" if is_theirs and own.reasons else "absent"


def _example(
    differs: Difference,
    numbers: tuple[int, int],
    rows: tuple[Row, Row],
    decode: Callable[[Sequence[int]], str],
) -> Example:
    side = 1 if differs.side == "rejected" else 0
    at = differs.token
    theirs, ours = (_marked(row, side, at, decode) for row in rows)
    before = decode(rows[0].ids[side][max(at - _AROUND, 0) : at])
    return Example(differs.rules, *numbers, differs.side, at, differs.detail, before, theirs, ours)


def _marked(row: Row, side: int, at: int, decode: Callable[[Sequence[int]], str]) -> str:
    """Return the text from a token on, with [brackets] around each run of trained tokens."""
    parts: list[tuple[bool, list[int]]] = []
    run: list[int] = []
    was = False
    tokens = zip(row.ids[side][at : at + _AROUND], row.labels[side][at : at + _AROUND], strict=True)
    for token, label in tokens:
        if run and (label != -100) != was:
            parts.append((was, run))
            run = []
        was = label != -100
        run.append(token)
    if run:
        parts.append((was, run))
    text = "".join(f"[{decode(r)}]" if trained else decode(r) for trained, r in parts)
    return text + ("…" if len(row.ids[side]) > at + _AROUND else "")


def _one_sided(
    why: str,
    number: int,
    row: Row,
    decode: Callable[[Sequence[int]], str],
    *,
    is_theirs: bool,
) -> Example:
    text = _marked(row, 0, 0, decode)
    row_of, text_of = ((number, None), (text, "")) if is_theirs else ((None, number), ("", text))
    length = f"{row.length} tokens"
    return Example((why,), row_of[0], row_of[1], "", None, length, "", text_of[0], text_of[1])
