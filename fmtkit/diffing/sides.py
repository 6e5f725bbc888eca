"""The two sides of a comparison: the rows of fmtkit, of another trainer, or of a file or folder of rows."""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

import yaml

from fmtkit.core.credentials import public
from fmtkit.core.data_classes import dataclass
from fmtkit.core.distributions import version_of
from fmtkit.core.errors import OptionError
from fmtkit.diffing import environments, own_rows, prepared, recording
from fmtkit.diffing.prepared import Form
from fmtkit.diffing.recorder import PACKAGES
from fmtkit.diffing.result import Side
from fmtkit.diffing.spool import Spool
from fmtkit.diffing.trainer import Asked, Trainer
from fmtkit.options.diff_options import DiffOptions
from fmtkit.tokenizers.tokens import Tokenizer
from fmtkit.training.config import yaml_file
from fmtkit.training.data.prerendered import settled
from fmtkit.training.planning.plan import plan
from fmtkit.training.planning.run_plan import Plan

ConfigLike = str | Path | Mapping[str, object]
_OURS = "fmtkit"
_LENGTHS = ("max_length", "sequence_len", "cutoff_len")
"""What trainers call the length of a row."""
_WHAT: Mapping[Form, str] = {
    "tokens": "tokens with labels (sft, process reward models)",
    "scores": "pairs of tokens (a reward model)",
    "pairs": "preference pairs (dpo and related methods)",
    "replies": "single replies with labels (kto)",
}


@dataclass(frozen=True)
class PreparedSide:
    """The rows of one side as they were written, and what is known of them."""

    side: Side
    spool: Spool
    facts: Mapping[str, Any]
    """Of its tokenizer; empty where they are not known."""
    refused: Mapping[int, str] = field(default_factory=dict)
    no_place: frozenset[int] = frozenset()
    """Rows that its format has no place for, of those that are refused."""
    notes: tuple[str, ...] = ()
    longest: int | None = None
    """The length to which its own arguments cut rows, if they name one."""
    reasons: Mapping[str, int] = field(default_factory=dict)
    """Rows that fmtkit has quarantined on this side, by code."""
    same_rows: bool = False
    """Whether it prepared the very rows of the first side, so that their numbers are the same."""


def is_folder(against: str) -> bool:
    """Return whether a folder of prepared rows is meant, whether it is there or not."""
    return Path(against).expanduser().is_dir() or (
        ("/" in against or "\\" in against) and not is_file(against)
    )


def is_file(against: str) -> bool:
    """Return whether a file of recorded rows is meant."""
    return Path(against).expanduser().is_file()


def planned(config: ConfigLike, options: DiffOptions) -> Plan:
    """Return the plan of a config whose rows are to be compared; raise OptionError where it has none."""
    limit = () if options.rows is None else (f"limit={options.rows}",)
    overrides = (*options.overrides, *limit)
    run_plan = settled(plan(config, overrides, partial=True), with_hub=True)
    if not run_plan.datasets:
        raise OptionError(f"{run_plan.source}: no datasets: to compare")
    if run_plan.model is None:
        raise OptionError(f"{run_plan.source}: base_model: needed, for its tokenizer")
    own_rows.form_of(run_plan)
    return run_plan


def check_form(dataset: prepared.Prepared, run_plan: Plan) -> None:
    """Raise OptionError if a prepared dataset holds rows of another kind than a config."""
    form = own_rows.form_of(run_plan)
    if form != dataset.form:
        raise OptionError(
            f"--against {dataset.folder}: holds {_WHAT[dataset.form]}, but {run_plan.source} trains "
            f"{run_plan.method}, which takes {_WHAT[form]}"
        )


def own_side(own: own_rows.OwnRows, file: Path, source: str) -> PreparedSide:
    """Write the rows of fmtkit."""
    versions = {one: found for one in (_OURS, *PACKAGES) if (found := version_of(one))}
    spool = Spool.write(file, own_rows.rows(own))
    side = Side(_OURS, _OURS, public(source), versions, spool.trained)
    facts = {"tokenizer": recording.facts_of(own.tokenizer)}
    return PreparedSide(side, spool, facts, longest=own.job.max_length, reasons=own.reasons)


def other_side(
    config: ConfigLike,
    other: ConfigLike | None,
    options: DiffOptions,
    dataset: prepared.Prepared | None,
    own: own_rows.OwnRows,
    place: Path,
) -> PreparedSide | None:
    """Let whatever is compared with prepare its rows; None where the rows of the config are only recorded."""
    file = place / "right.arrow"
    if dataset is not None:
        spool = Spool.write(file, prepared.rows(dataset, own.tokenizer))
        if not len(spool):
            raise OptionError(f"--against {dataset.folder}: holds no rows")
        _check_vocabulary(dataset, spool, own.tokenizer)
        side = Side("axolotl", "axolotl", str(dataset.folder), {}, spool.trained)
        return PreparedSide(side, spool, {})
    if options.against is not None and is_file(options.against):
        recorded = recording.read(
            Path(options.against).expanduser(), f"--against {options.against}"
        )
        return _of_record(recorded, "recorded", options.against, file, _WITH_NUMBERS)
    theirs = own if other is None else _other_own(other, options, own, place)
    if options.against in (None, _OURS):
        if options.python is not None:
            return _other_fmtkit(config if other is None else other, options, place)
        if other is None:
            return None
        return own_side(theirs, file, theirs.plan.source)
    assert options.against is not None
    trainer = environments.trainer_named(options.against)
    asked = other if other is not None else config
    theirs_made = _recorded_side(trainer, asked, options, theirs, place)
    return replace(theirs_made, same_rows=theirs_made.same_rows and other is None)


_WITH_NUMBERS = True


def _other_own(
    other: ConfigLike, options: DiffOptions, own: own_rows.OwnRows, place: Path
) -> own_rows.OwnRows:
    run_plan = planned(other, options)
    forms = own_rows.form_of(own.plan), own_rows.form_of(run_plan)
    if forms[0] != forms[1]:
        raise OptionError(
            f"{own.plan.source} trains {own.plan.method}, which takes {_WHAT[forms[0]]}, and "
            f"{run_plan.source} {run_plan.method}, which takes {_WHAT[forms[1]]}"
        )
    return own_rows.converted(run_plan, place / "right")


def _recorded_side(
    trainer: Trainer, config: ConfigLike, options: DiffOptions, own: own_rows.OwnRows, place: Path
) -> PreparedSide:
    if options.as_is and not trainer.as_is:
        raise OptionError(f"--as-is: {trainer.name} does not read fmtkit's configs; axolotl does")
    python = recording.python_of(trainer, options.python)
    asked = Asked(_settings(options.settings), options.as_is, _raw(config), options.rows)
    folder = place / "given"
    folder.mkdir()
    request, given = trainer.request(own, asked, folder)
    special = own.job.setting("special_tokens")
    request |= {
        "tokenizer": _absolute(own.job.tokenizer),
        "template": own.job.template_text,
        "special_tokens": dict(special) if isinstance(special, Mapping) else {},
    }
    recorded = recording.record(trainer, python, request, folder)
    side = _of_record(
        recorded, trainer.name, own.plan.source, place / "right.arrow", given is not None
    )
    no_place = {} if given is None else dict(given.refused)
    notes = list(side.notes)
    if given is None:
        notes.append(f"{trainer.name} read the config and its datasets by itself")
    return replace(
        side,
        side=replace(side.side, trainer=trainer.name),
        refused={**no_place, **side.refused},
        no_place=frozenset(no_place),
        same_rows=given is not None,
        longest=next(
            (n for one in _LENGTHS if isinstance(n := asked.settings.get(one), int)), None
        ),
        notes=tuple(notes),
    )


def _of_record(
    recorded: recording.Recorded, name: str, config: str, file: Path, with_numbers: bool
) -> PreparedSide:
    spool = Spool.write(file, recorded.rows(with_numbers=with_numbers))
    side = Side(name, name, public(config), recorded.versions, spool.trained)
    return PreparedSide(side, spool, recorded.facts, recorded.refused, notes=recorded.notes)


def _other_fmtkit(config: ConfigLike, options: DiffOptions, place: Path) -> PreparedSide:
    """Let the fmtkit of another Python record its rows of a config."""
    if not isinstance(config, str | Path):
        raise OptionError("--python: fmtkit in another Python reads the config from a file")
    assert options.python is not None
    file = place / "other.rows"
    overrides = [word for one in options.overrides for word in ("--set", one)]
    limit = [] if options.rows is None else ["--rows", str(options.rows)]
    command = [options.python, "-m", _OURS, "diff", str(config), "--record", str(file)]
    recording.run_fmtkit([*command, *overrides, *limit], options.python)
    recorded = recording.read(file, f"--python {options.python}")
    return _of_record(recorded, "fmtkit there", str(config), place / "right.arrow", _WITH_NUMBERS)


def _settings(given: Sequence[str]) -> dict[str, object]:
    found: dict[str, object] = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not equals or not name:
            raise OptionError(f"--with {one}: give KEY=VALUE")
        try:
            found[name] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise OptionError(f"--with {one}: the value is no YAML") from error
    return found


def _raw(config: ConfigLike) -> Mapping[str, object]:
    if isinstance(config, Mapping):
        return config
    return yaml_file.read(Path(config).expanduser()).values


def _absolute(name: str) -> str:
    path = Path(name).expanduser()
    return str(path.absolute()) if path.exists() else name


def _check_vocabulary(dataset: prepared.Prepared, theirs: Spool, tokenizer: Tokenizer) -> None:
    """Raise OptionError if the first rows have ids outside the tokenizer's vocabulary."""
    if dataset.form not in ("tokens", "scores"):
        return
    size = tokenizer.backend.get_vocab_size(with_added_tokens=True)
    for number in range(min(len(theirs), 1000)):
        top = max((int(one.ids.max(initial=0)) for one in theirs[number].sequences), default=0)
        if top >= size:
            raise OptionError(
                f"--against {dataset.folder}: row {number} has the token id {top:,}, and the tokenizer "
                f"{tokenizer.name} has {size:,}: it was prepared with a different tokenizer"
            )
