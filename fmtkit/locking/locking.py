"""`fmtkit lock` and `fmtkit check`: write the state of a dataset, and compare it with the state of today."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fmtkit.core.credentials import public
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OptionError
from fmtkit.inspection.inspection import run
from fmtkit.locking import lock_file, row_files
from fmtkit.locking.changes import CHANGE, NOTE, OVER, Change, changes_of
from fmtkit.locking.contract import (
    Contract,
    contract_of,
    options_as_read,
    options_of,
    versions_of,
)
from fmtkit.locking.lock_file import Lock
from fmtkit.locking.places import Places
from fmtkit.locking.row_digests import RowDigester
from fmtkit.options.inspect_options import InspectOptions
from fmtkit.running.progress_bar import Watch


@dataclass(frozen=True)
class Check:
    """The result of `fmtkit.check`: what is not as it was."""

    lock: str
    rows: int
    changes: tuple[Change, ...]
    updated: bool = False
    """Whether the lock has the new state now."""

    @property
    def is_same(self) -> bool:
        """Return whether there is nothing but notes."""
        return all(one.severity == NOTE for one in self.changes)

    @property
    def exit_code(self) -> int:
        """Return 0 if all is as it was, or was updated and is within its budgets; else 1."""
        left = (OVER,) if self.updated else (CHANGE, OVER)
        return int(any(one.severity in left for one in self.changes))

    def as_dict(self) -> dict[str, Any]:
        """Return plain values that schemas/check.schema.json describes."""
        return {
            "lock": self.lock,
            "same": self.is_same,
            "exit_code": self.exit_code,
            "updated": self.updated,
            "rows": self.rows,
            "changes": [one.as_dict() for one in self.changes],
        }


def lock(
    sources: Sequence[object] | object,
    out: str | Path,
    options: InspectOptions,
    *,
    overwrite: bool = False,
    row_digests: bool = False,
    watch: Watch | None = None,
) -> Lock:
    """Write the state of sources, or of a config's datasets, to `out`.

    With `row_digests` the digest of every row is written beside it, as OUT.rows.

    Raises:
        OutputExistsError: if `out` exists, and is no lock or `overwrite` is not set.
        OptionError: if sources are not files, no type fits them, or the template writes the date.
        UnknownNameError, ColumnMismatchError, TemplateError, TokenizerError, SourceError: as `inspect`.
    """
    path = Path(out)
    (lock_file.refuse_foreign if overwrite else lock_file.refuse_existing)(path)
    if len(options.max_length) > 1:
        raise OptionError("--max-length: a lock counts the rows over one length; give it once")
    budgets = lock_file.budgets_of(path) if overwrite and path.exists() else {}
    places = Places(path.parent)
    if options.config is not None:
        made = _of_config(options.config, options, places, sources, watch)
    else:
        made = [_of_sources(_named(sources), options, places, watch)]
    if row_digests:
        _write_beside(path, made)
    found = _lock_of(made, budgets, options.config, places)
    lock_file.write(path, found)
    return found


def _write_beside(path: Path, made: Sequence[Contract]) -> None:
    for number, one in enumerate(made):
        row_files.write(path, number, one.state, one.digests.rows)


def check(
    path: str | Path,
    *,
    data: Sequence[str] = (),
    update: bool = False,
    options: InspectOptions | None = None,
    watch: Watch | None = None,
) -> Check:
    """Compare a lock with the state of today, and write that state if `update` is set.

    `data` are read instead of the lock's sources; of `options` those that were chosen replace the lock's.

    Raises:
        OptionError, UnknownNameError: if the lock is none, of another version or edited by hand.
        SourceError, TokenizerError, TemplateError: if what it names cannot be read.
    """
    lock_path = Path(path)
    old = lock_file.read(lock_path)
    places = Places(lock_path.parent)
    config = None if old.config is None else places.found(old.config["path"])
    chosen = {} if options is None else options.chosen()
    if config is not None:
        if data:
            raise OptionError(f"--data: {lock_path} is of a config, which names its sources")
        given = InspectOptions(**{**chosen, "config": config})
        made = _of_config(config, given, places, (), watch)
    else:
        state = old.datasets[0]
        given = replace(options_of(state, places), **chosen)
        named = [*data] if data else [places.found(one) for one in state["given"]]
        made = [_of_sources(named, given, places, watch)]
    beside = [row_files.read(lock_path, one) for one in old.datasets]
    changes = changes_of(old, made, versions_of(made), beside)
    if any("beside" in one["within"] for one in old.datasets) and update:
        _write_beside(lock_path, made)
    new = _lock_of(made, old.budgets, config, places)
    if update and new.dumps(lock_path.name) != lock_path.read_text(encoding="utf-8"):
        lock_file.write(lock_path, new)
    rows = sum(one.state["digests"]["table_rows"] for one in made)
    return Check(public(str(path)), rows, tuple(changes), updated=update)


def _lock_of(made: Sequence[Contract], budgets: Any, config: str | None, places: Places) -> Lock:
    states = [one.state for one in made]
    named = None
    if config is not None:
        named = {"path": places.told(config)}
    return Lock(states, versions_of(made), budgets, named)


def _named(sources: Sequence[object] | object) -> list[str]:
    """Return sources as they were named; OptionError for one that is not there tomorrow."""
    given = (
        [sources]
        if isinstance(sources, str | Path) or not isinstance(sources, Sequence)
        else sources
    )
    for one in given:
        if not isinstance(one, str | Path) or str(one) == "-":
            raise OptionError(
                "lock: give files, folders, globs or addresses: rows in memory and stdin cannot be read again"
            )
    if not given:
        raise OptionError("SOURCE is missing: give files, folders, globs, hf://datasets/ORG/NAME")
    return [str(one) for one in given]


def _of_sources(
    named: Sequence[str], options: InspectOptions, places: Places, watch: Watch | None
) -> Contract:
    inspection = run([*named], options, watch=watch, observer=RowDigester())
    return contract_of(inspection, named, options_as_read(inspection, options), places)


def _of_config(
    config: str,
    options: InspectOptions,
    places: Places,
    sources: Sequence[object] | object,
    watch: Watch | None,
) -> list[Contract]:
    from fmtkit.training.data.inspect_config import inspect_config

    given = sources if isinstance(sources, list | tuple) else [sources]
    found = inspect_config(config, [*filter(None, given)], options, watch, RowDigester())
    made = []
    for name, inspection in found:
        if inspection.fetch is None:
            raise OptionError(inspection.survey.notes[-1])
        made.append(contract_of(inspection, [name], inspection.fetch.job.options, places))
    return made
