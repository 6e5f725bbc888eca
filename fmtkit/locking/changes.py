"""What changed between the state in a lock and the state of today: in a line each, with its cause."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from fmtkit.core.data_classes import dataclass
from fmtkit.inspection.shown_rows import Place
from fmtkit.locking.contract import Contract
from fmtkit.locking.lock_file import Lock, digests_of, limit_of
from fmtkit.locking.moved_rows import Moved, moved, moved_exactly
from fmtkit.locking.places import HERE
from fmtkit.locking.row_files import RowFile, Shorts

CHANGE, OVER, NOTE = "change", "over_budget", "note"
PACKAGES = "library"


@dataclass(frozen=True)
class Change:
    """One thing that is not as it was."""

    what: str
    """data, rows, texts, tokens, ids_and_labels, template, tokenizer, option, masks, type, count, finding,
    budget, source, library or config."""
    severity: str
    """change, over_budget or note; only a note leaves the exit code 0."""
    message: str
    causes: tuple[str, ...] = ()
    """What else changed that explains it."""
    dataset: str | None = None
    row: int | None = None
    """The first row that changed, 0-based over all sources, as `inspect --row` takes it."""
    last_row: int | None = None
    """The last row that may be the first one, where only a stretch is known; else the same."""
    source: str | None = None
    line: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return plain values that schemas/check.schema.json describes."""
        return asdict(self) | {"causes": list(self.causes)}


def changes_of(
    lock: Lock,
    contracts: Sequence[Contract],
    versions: Mapping[str, str],
    beside: Sequence[RowFile],
) -> list[Change]:
    """Return everything that differs, changes first; `beside` are the files of digests of every row."""
    found: list[Change] = []
    if len(lock.datasets) != len(contracts):
        counts = f"{len(lock.datasets)} datasets → {len(contracts)}, which the config names now"
        found.append(Change("config", CHANGE, counts))
    libraries = _libraries(lock.versions, versions)
    several = len(contracts) > 1
    for old, contract, digests in zip(lock.datasets, contracts, beside, strict=False):
        name = contract.state["given"][0].removeprefix(HERE) if several else None
        own = _of_dataset(old, contract, lock.budgets, libraries, digests)
        found += (replace(one, dataset=name) for one in own)
    if libraries:
        rows_same = not any(one.what in DIGESTS for one in found)
        end = ": the rows are the same" if rows_same else ""
        found.append(Change(PACKAGES, NOTE, ", ".join(libraries) + end))
    order = (CHANGE, OVER, NOTE)
    return sorted(found, key=lambda one: order.index(one.severity))


def _libraries(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    return [
        f"{name} {old.get(name, 'absent')} → {new.get(name, 'absent')}"
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name)
    ]


DIGESTS = {
    "rows": ("data", "the rows that the type makes"),
    "texts": ("texts", "the texts that the template writes"),
    "tokens": ("tokens", "the tokens"),
}
"""Digest of all rows -> what a change of it is called, and what it is of; one explains those after it."""


def _of_dataset(
    old: Mapping[str, Any],
    contract: Contract,
    budgets: Mapping[str, Any],
    libraries: Sequence[str],
    beside: RowFile,
) -> Iterator[Change]:
    new = contract.state
    settings = [*_settings(old, new)]
    sources = [*_sources(old, new)]
    found = _rows(old, contract, beside.digests)
    rows_same = found is None
    yield from settings
    if rows_same:
        yield from (replace(one, severity=NOTE, message=_same(one)) for one in sources)
    else:
        assert found is not None
        causes = [one.message for one in (*sources, *settings)] or [
            f"library: {', '.join(libraries)}"
            if libraries
            else "nothing that a lock knows of: no source, file, option or version changed"
        ]
        yield from (one for one in sources if one.what == "source")
        yield replace(found, causes=tuple(causes))
        if beside.problem:
            yield Change(
                "data", NOTE, f"{beside.problem}: only the stretch of the first change is known"
            )
    yield from _counts(old, new, libraries, rows_same=rows_same)
    yield from _findings(old, new, budgets, rows_same=rows_same)
    yield from _budgets(new, budgets)


def _same(one: Change) -> str:
    return f"{one.message}: its rows are the same"


def _settings(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    for key in ("type", "table"):
        if old[key] != new[key]:
            yield Change("type", CHANGE, f"{key}: {old[key]} → {new[key]}")
    yield from _mapping("option", "option", old["options"], new["options"])
    yield from _mapping("masks", "mask rule", old["masks"], new["masks"])
    yield from _mapping("option", "file", old.get("files", {}), new.get("files", {}), is_hash=True)
    yield from _template(old["template"], new["template"])
    yield from _tokenizer(old["tokenizer"], new["tokenizer"])


def _mapping(
    what: str, word: str, old: Mapping[str, Any], new: Mapping[str, Any], *, is_hash: bool = False
) -> Iterator[Change]:
    for name in sorted({*old, *new}):
        before, after = old.get(name), new.get(name)
        if before == after:
            continue
        if is_hash and before and after:
            yield Change(what, CHANGE, f"{word} {name}: its contents were changed")
            continue
        yield Change(what, CHANGE, f"{word} {name}: {_told(before)} → {_told(after)}")


def _told(value: Any) -> str:
    return "not set" if value is None else str(value)


def _template(old: Any, new: Any) -> Iterator[Change]:
    if old == new:
        return
    if old and new and old["name"] == new["name"]:
        yield Change("template", CHANGE, f"template {new['name']}: was edited")
        return
    names = (one["name"] if one else "none" for one in (old, new))
    yield Change("template", CHANGE, f"template: {' → '.join(names)}")


def _tokenizer(old: Any, new: Any) -> Iterator[Change]:
    if old is None or new is None:
        if old != new:
            paths = (one["path"] if one else "none" for one in (old, new))
            yield Change("tokenizer", CHANGE, f"tokenizer: {' → '.join(paths)}")
        return
    files = sorted({*old["files"], *new["files"]})
    differ = [name for name in files if old["files"].get(name) != new["files"].get(name)]
    for name in differ:
        yield Change(
            "tokenizer", CHANGE, f"tokenizer {new['path'].removeprefix(HERE)}: {name} was changed"
        )
    if not differ and old["path"] != new["path"]:
        words = f"tokenizer {old['path']} is {new['path']} now: its files are the same"
        yield Change("tokenizer", NOTE, words)


def _sources(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    before, after = (
        [{**one, "path": one["path"].removeprefix(HERE)} for one in state["sources"]]
        for state in (old, new)
    )
    for one, other in zip(before, after, strict=False):
        if one["sha256"] == other["sha256"]:
            if one["path"] != other["path"]:
                yield Change("source", NOTE, f"source {one['path']} is {other['path']} now")
            continue
        renamed = "" if one["path"] == other["path"] else f" is {other['path']} now, and"
        rows = "" if one["rows"] == other["rows"] else f", {one['rows']:,} → {other['rows']:,} rows"
        yield Change("data", CHANGE, f"source {one['path']}{renamed} has other bytes{rows}")
    for one in before[len(after) :]:
        yield Change("data", CHANGE, f"source {one['path']} is gone")
    for one in after[len(before) :]:
        yield Change("data", CHANGE, f"source {one['path']} is new")


def _rows(old: Mapping[str, Any], contract: Contract, beside: Shorts | None) -> Change | None:
    """Return the first row that changed, and in what; None where none did."""
    was, now = old["digests"], contract.state["digests"]
    for name, (what, of) in DIGESTS.items():
        if was.get(name) != now.get(name) and {name} <= was.keys() & now.keys():
            within = old["within"]
            kind = "rows" if name == "rows" else "texts"
            hashes = contract.digests.rows if name == "rows" else contract.digests.written
            # Texts are in the order of their rows, which are the same.
            total = was["sum"] if name == "rows" else ""
            groups = [*digests_of(within[kind])]
            if name == "rows" and beside is not None:
                return _placed(what, moved_exactly(beside, hashes), "", contract)
            found = moved(groups, within["every"], was["table_rows"], total, hashes)
            return _placed(what, found, of if name != "rows" else "", contract)
    return _of_masks(old["within"], contract.state["within"], contract)


def _placed(what: str, found: Moved, of: str, contract: Contract) -> Change:
    words = f"{of} differ: {found.words}" if of else found.words
    if found.first is None:
        return Change(what, CHANGE, f"{words}, after the last row of today")
    records = contract.digests.records
    first, last = int(records[found.first]), int(records[found.last])
    place = place_of(contract, first)
    where = f"{place.source}:{place.line}" if place.line is not None else place.source
    if first == last:
        begin = "the first is" if found.kind != "removed" else "it stood before"
        words = f"{words}; {begin} row {first} ({where})"
    else:
        words = f"{words}; the first is between row {first} ({where}) and row {last}"
    return Change(
        what, CHANGE, words, row=first, last_row=last, source=place.source, line=place.line
    )


def place_of(contract: Contract, row: int) -> Place:
    """Return where a row is, with its line."""
    fetch = contract.inspection.fetch
    assert fetch is not None
    found = next(iter(fetch.fetch([row])), None)
    return fetch.place(row) if found is None else found.place


def _of_masks(was: Mapping[str, Any], now: Mapping[str, Any], contract: Contract) -> Change | None:
    """Return the first of the sampled rows whose ids or labels differ, though its text is the same."""
    if "ids_and_labels" not in was or "ids_and_labels" not in now:
        return None
    before, after = (
        dict(one.split(":") for one in digests_of(state["ids_and_labels"])) for state in (was, now)
    )
    shared = [row for row in before if row in after]
    differ = [int(row) for row in shared if before[row] != after[row]]
    if not differ:
        return None
    place = place_of(contract, differ[0])
    where = f"{place.source}:{place.line}" if place.line is not None else place.source
    words = (
        f"ids or labels differ, of the same texts, in {len(differ)} of the {len(shared)} rows that are "
        f"compared token by token; the first is row {differ[0]} ({where})"
    )
    return Change(
        "ids_and_labels", CHANGE, words, row=differ[0], last_row=differ[0],
        source=place.source, line=place.line,
    )  # fmt: skip


def _counts(
    old: Mapping[str, Any], new: Mapping[str, Any], libraries: Sequence[str], *, rows_same: bool
) -> Iterator[Change]:
    """Yield the counts of the ledger that differ."""
    before, after = _flat(old["counts"]), _flat(new["counts"])
    for name in sorted({*before, *after}):
        if before.get(name, 0) != after.get(name, 0):
            # Of the same rows a library may count something else, or something more.
            is_note = rows_same and (name == "blank_lines" or (libraries and "." in name))
            severity = NOTE if is_note else CHANGE
            yield Change(
                "count", severity, f"{name}: {before.get(name, 0):,} → {after.get(name, 0):,} rows"
            )


def _flat(counts: Mapping[str, Any]) -> dict[str, int]:
    """Return counters of counters as one, with dotted names."""
    found: dict[str, int] = {}
    for name, value in counts.items():
        if isinstance(value, Mapping):
            found |= {f"{name}.{key}": count for key, count in value.items()}
        else:
            found[name] = value
    return found


def _findings(
    old: Mapping[str, Any], new: Mapping[str, Any], budgets: Mapping[str, Any], *, rows_same: bool
) -> Iterator[Change]:
    """Yield the findings that differ; of a code with a budget the budget decides."""
    before, after = old["findings"], new["findings"]
    for code in sorted({*before, *after}):
        if before.get(code, 0) != after.get(code, 0):
            severity = NOTE if code in budgets or rows_same else CHANGE
            words = f"{code}: {before.get(code, 0):,} → {after.get(code, 0):,} rows"
            yield Change("finding", severity, words)


def _budgets(new: Mapping[str, Any], budgets: Mapping[str, Any]) -> Iterator[Change]:
    rows = new["counts"].get("rows_read", 0)
    for code, limit in sorted(budgets.items()):
        count = count_of(new, code)
        if count > limit_of(limit, rows, f"budgets.{code}"):
            share = f", {count / rows:.2%}" if rows else ""
            words = f"{code}: {count:,} of {rows:,} rows{share}; the budget is {limit}"
            yield Change("budget", OVER, words)


def count_of(state: Mapping[str, Any], code: str) -> int:
    """Return how many rows have a code: a finding, a bad row, a warning or a term of the ledger."""
    counts = state["counts"]
    places = (state["findings"], counts.get("reasons", {}), counts.get("warnings", {}), counts)
    return max((int(place[code]) for place in places if code in place), default=0)
