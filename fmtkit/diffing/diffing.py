"""`fmtkit diff`: whether two trainers, configs or versions train on the same tokens, and why not."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OptionError, UnknownNameError
from fmtkit.core.escaping import counted, one_line
from fmtkit.diffing import own_rows, prepared, recording
from fmtkit.diffing.alignment import Aligned, align
from fmtkit.diffing.examples import example_of, marked, number_of
from fmtkit.diffing.result import Diff, Example
from fmtkit.diffing.rules import ONLY, RULES, Judge
from fmtkit.diffing.sides import (
    ConfigLike,
    PreparedSide,
    check_form,
    is_file,
    is_folder,
    other_side,
    own_side,
    planned,
)
from fmtkit.diffing.spool import Numbers
from fmtkit.masks.masked import TokenRow
from fmtkit.options.diff_options import DiffOptions
from fmtkit.tokenizers.tokens import Tokenizer
from fmtkit.training.planning.run_plan import Plan


def compare(
    config: ConfigLike, against: str | Path, *, rows: int = 3, overrides: Sequence[str] = ()
) -> Diff:
    """Compare the rows of a config with a dataset that axolotl prepared; see `fmtkit.compare`."""
    # A folder, whatever it is called: that of a trainer's name too.
    dataset = prepared.opened(against)
    options = DiffOptions(examples=rows, overrides=tuple(overrides))
    return _diffed(config, None, options, dataset)


def diff(config: ConfigLike, other: ConfigLike | None, options: DiffOptions) -> Diff:
    """Compare what a config trains on with another trainer, config or version; see `fmtkit.diff`."""
    _check_asked(other, options)
    dataset = None
    if options.against is not None and is_folder(options.against):
        if other is not None:
            raise OptionError("give a second config or a folder of prepared rows, not both")
        dataset = prepared.opened(options.against)
    return _diffed(config, other, options, dataset)


def _check_asked(other: ConfigLike | None, options: DiffOptions) -> None:
    if other is None and options.against is None and options.python is None and not options.record:
        raise OptionError(
            "--against is missing: name what to compare with: trl, axolotl, llama-factory, a folder that "
            "axolotl prepared, a file of --record, or a second config"
        )
    for rule in options.allow:
        if rule not in {**RULES, **ONLY}:
            raise UnknownNameError("rule", rule, [*RULES, *ONLY])
    named = options.against
    takes_python = named is None or not (is_folder(named) or is_file(named))
    if options.python is not None and not takes_python:
        raise OptionError("--python: is for a trainer; --against names rows that are there already")


def _diffed(
    config: ConfigLike,
    other: ConfigLike | None,
    options: DiffOptions,
    dataset: prepared.Prepared | None,
) -> Diff:
    run_plan = planned(config, options)
    if dataset is not None:
        check_form(dataset, run_plan)
    with TemporaryDirectory(prefix="fmtkit-diff-") as folder, _without_bars():
        place = Path(folder)
        own = own_rows.converted(run_plan, place / "left")
        left = own_side(own, place / "left.arrow", run_plan.source)
        right = other_side(config, other, options, dataset, own, place)
        left, right = _told_apart(left, right)
        if right is None or options.record is not None:
            recorded = right or left
            assert recorded is not None
            assert options.record is not None
            _record(options.record, recorded)
        if right is None:
            right = left
        return _compared(run_plan, own, left, right, options)


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


def _record(path: str, recorded: PreparedSide) -> None:
    rows = (recorded.spool[number] for number in range(len(recorded.spool)))
    facts = {**recorded.facts, "versions": dict(recorded.side.versions)}
    recording.write(Path(path).expanduser(), facts, rows)


def _told_apart(
    left: PreparedSide, right: PreparedSide | None
) -> tuple[PreparedSide, PreparedSide | None]:
    """Name two sides of one trainer by their configs, or by left and right."""
    if right is None or left.side.name != right.side.name:
        return left, right
    names = Path(left.side.config).name, Path(right.side.config).name
    if names[0] == names[1]:
        names = "left", "right"
    return (
        replace(left, side=replace(left.side, name=names[0])),
        replace(right, side=replace(right.side, name=names[1])),
    )


def _check_same_vocabulary(left: PreparedSide, right: PreparedSide) -> tuple[bool, tuple[str, ...]]:
    """Return whether both tokenizers tokenize alike, with a note where not; refuse another vocabulary."""
    if not left.facts or not right.facts:
        return True, ()
    one, other = left.facts["tokenizer"], right.facts["tokenizer"]
    if one["vocabulary"] != other["vocabulary"]:
        raise OptionError(
            f"the tokenizers differ: that of {left.side.name} has a vocabulary of {one['size']:,}, that of "
            f"{right.side.name} another of {other['size']:,}, so that their ids say nothing of each other; "
            "give both the same tokenizer (base_model, tokenizer_config)"
        )
    notes = []
    special = [
        f"{name} {one['special'][name]} and {other['special'][name]}"
        for name in ("bos", "eos", "pad")
        if one["special"][name] != other["special"][name]
    ]
    if special:
        notes.append(
            f"special tokens differ in {left.side.name} and {right.side.name}: {', '.join(special)}"
        )
    # Rows that an older fmtkit recorded do not say how the words of the vocabulary are tokenized.
    same = one["probes"] == other["probes"] and (
        one.get("merged", other.get("merged")) == other.get("merged", one.get("merged"))
    )
    if not same:
        notes.append(
            "the tokenizers have one vocabulary and tokenize texts differently: their merges or settings, or "
            "the versions of tokenizers and transformers"
        )
    return same, tuple(notes)


def _compared(
    run_plan: Plan,
    own: own_rows.OwnRows,
    left: PreparedSide,
    right: PreparedSide,
    options: DiffOptions,
) -> Diff:
    same, tokenizer_notes = _check_same_vocabulary(left, right)
    decode = _decoder(own.tokenizer)
    control = frozenset(own.tokenizer.control_tokens().values())
    aligned = align(left.spool, right.spool, decode, control, same_rows=right.same_rows)
    aligned_rows = len(aligned.equal) + len(aligned.different)
    if not aligned_rows and not right.refused:
        raise OptionError(
            f"{right.side.name} ({right.side.config}): none of its {len(right.spool):,} rows resembles one "
            f"of the config's {len(left.spool):,}: it holds other data, or was not tokenized by the "
            f"tokenizer of {run_plan.model}"
        )
    names = left.side.name, right.side.name
    lengths = [one for one in (own.job.max_length, right.longest) if one is not None]
    begins, ends = (_special(name, left, right) for name in ("bos", "eos"))
    judge = Judge(own.tokenizer, min(lengths, default=None), names, same, begins, ends)
    differing = _Differing(judge, options.examples, decode)
    for a, b in aligned.different.tolist():
        differing.add((a, b), (left.spool[a], right.spool[b]))
    one_sided = _one_sided(aligned, (left, right), own, options.examples, decode)
    trained = left.spool.trained + right.spool.trained
    counts = {
        "left": len(left.spool),
        "right": len(right.spool),
        "equal": len(aligned.equal),
        "different": len(aligned.different),
        "only_left": len(aligned.only_left),
        "only_right": len(aligned.only_right),
    }
    said = Counter(one_line(why, 200) for why in right.refused.values())
    return Diff(
        left.side,
        right.side,
        run_plan.method,
        counts,
        dict(differing.rules.most_common()),
        {rule: round(n / trained, 6) if trained else 0.0 for rule, n in differing.tokens.items()},
        dict(one_sided.only_left.most_common()),
        dict(one_sided.only_right.most_common()),
        {**own.ledger, "fully_masked": own.fully_masked},
        own.reasons,
        dict(said.most_common()),
        _moved(aligned),
        tuple(options.allow),
        (
            *_notes(aligned, run_plan, names),
            *_first_rows(options.rows),
            *_quarantined(right),
            *tokenizer_notes,
            *right.notes,
            *_versions(left, right),
        ),
        (*differing.examples, *one_sided.examples),
    )


def _special(name: str, *sides: PreparedSide) -> frozenset[int]:
    """Return what a special token is on either side."""
    known = (one.facts["tokenizer"]["special"][name] for one in sides if one.facts)
    return frozenset(number for number in known if number is not None)


class _Differing:
    """Counts the rules of aligned rows that differ, and keeps the first rows of each."""

    def __init__(self, judge: Judge, most: int, decode: Callable[[Sequence[int]], str]) -> None:
        self.judge, self.most, self.decode = judge, most, decode
        self.rules: Counter[str] = Counter()
        self.tokens: Counter[str] = Counter()
        self.shown: Counter[str] = Counter()
        self.examples: list[Example] = []

    def add(self, numbers: tuple[int, int], rows: tuple[TokenRow, TokenRow]) -> None:
        """Name the rules of two aligned rows."""
        found = self.judge.difference(*rows)
        self.rules.update(found.rules)
        self.tokens.update(dict.fromkeys(found.rules, found.trained))
        if any(self.shown[rule] < self.most for rule in found.rules):
            self.shown.update(found.rules)
            self.examples.append(example_of(found, numbers, rows, self.decode))


@dataclass
class _OneSided:
    """Why rows are on one side only, with the first rows of each reason."""

    only_left: Counter[str] = field(default_factory=Counter)
    only_right: Counter[str] = field(default_factory=Counter)
    examples: list[Example] = field(default_factory=list)


def _one_sided(
    aligned: Aligned,
    both: tuple[PreparedSide, PreparedSide],
    own: own_rows.OwnRows,
    most: int,
    decode: Callable[[Sequence[int]], str],
) -> _OneSided:
    left, right = both
    made = _OneSided()
    seen = {*right.spool.hashes["ids"][_column(aligned, 1)].tolist()}
    are_numbered = right.same_rows and right.spool.numbers is not None
    sides = (
        (left, aligned.only_left, made.only_left, True),
        (right, aligned.only_right, made.only_right, False),
    )
    for prepared_, numbers, counts, is_left in sides:
        for number in numbers.tolist():
            row = prepared_.spool[number]
            is_seen = not are_numbered and prepared_.spool.hashes["ids"][number].item() in seen
            why, detail = _why(row, own, right, is_seen=is_seen, is_left=is_left)
            if why == "absent" and are_numbered:
                why = "dropped"
            counts[why] += 1
            if counts[why] <= most:
                text = marked(row, 0, 0, decode)
                at = number_of(row, number)
                told = detail or counted(row.length, "token")
                made.examples.append(
                    Example((why,), at, None, "", None, told, "", text, "")
                    if is_left
                    else Example((why,), None, at, "", None, told, "", "", text)
                )
    return made


def _why(
    row: TokenRow, own: own_rows.OwnRows, right: PreparedSide, *, is_seen: bool, is_left: bool
) -> tuple[str, str]:
    """Return why a row is on one side only, and what the other trainer said of it."""
    said = right.refused.get(row.number) if is_left and row.number is not None else None
    if said is not None:
        return ("no_place" if row.number in right.no_place else "refused"), said
    shortest = own.plan.config.get("min_sample_len")
    longest = own.job.max_length
    if is_left and right.longest is not None and not right.same_rows:
        longest = right.longest
    if longest is not None and row.length > longest:
        return "sequence_len", ""
    if is_seen:
        return "duplicate", ""
    if is_left and row.length < (shortest if isinstance(shortest, int) else 2):
        return "short", ""
    if not row.trained:
        return "no_trained_token", ""
    return ("refused" if (right.reasons if is_left else own.reasons) else "absent"), ""


def _decoder(tokenizer: Tokenizer) -> Callable[[Sequence[int]], str]:
    return lambda ids: tokenizer.backend.decode(list(ids), skip_special_tokens=False)


def _column(aligned: Aligned, side: int) -> Numbers:
    return np.concatenate([aligned.equal[:, side], aligned.different[:, side]])


def _moved(aligned: Aligned) -> int:
    """Count the aligned rows whose position among the aligned rows differs between the sides."""
    ranks = [np.argsort(np.argsort(_column(aligned, side), kind="stable")) for side in (0, 1)]
    return int((ranks[0] != ranks[1]).sum())


def _notes(aligned: Aligned, run_plan: Plan, names: tuple[str, str]) -> tuple[str, ...]:
    notes = []
    moved, aligned_rows = _moved(aligned), len(aligned.equal) + len(aligned.different)
    if moved:
        notes.append(
            f"{moved:,} of {aligned_rows:,} aligned rows are in a different order: axolotl shuffles when it "
            "prepares, fmtkit when it trains"
        )
    if run_plan.config.held_out:
        notes.append(
            "the rows of val_set_size are compared too: trainers split them off after they are prepared"
        )
    if run_plan.test_datasets:
        notes.append("test_datasets are not compared")
    if run_plan.config.get("sample_packing"):
        notes.append(f"rows are compared as they are before {names[1]} packs them")
    return tuple(notes)


def _first_rows(limit: int | None) -> tuple[str, ...]:
    if limit is None:
        return ()
    return (f"only the first {counted(limit, 'row')} of each dataset were compared (--rows)",)


def _quarantined(right: PreparedSide) -> tuple[str, ...]:
    """Return a note on the rows that fmtkit refused for the second config; those of the first are counted."""
    if not right.reasons:
        return ()
    codes = ", ".join(f"{code} {count:,}" for code, count in right.reasons.items())
    return (f"rows that fmtkit refused for {right.side.name}: {codes}",)


def _versions(left: PreparedSide, right: PreparedSide) -> tuple[str, ...]:
    """Return a note on the packages that both sides have in different versions."""
    one, other = left.side.versions, right.side.versions
    differing = [
        f"{name} {one[name]} and {other[name]}"
        for name in sorted({*one} & {*other})
        if one[name] != other[name]
    ]
    return (f"versions differ: {', '.join(differing)}",) if differing else ()
