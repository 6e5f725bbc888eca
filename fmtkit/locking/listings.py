"""What the commands print of a lock and of a check: a line for each thing."""

from collections.abc import Iterator

from fmtkit.core.credentials import public
from fmtkit.core.escaping import one_line
from fmtkit.locking.changes import NOTE, OVER, Change
from fmtkit.locking.lock_file import Lock
from fmtkit.locking.locking import Check
from fmtkit.locking.places import HERE

MARKS = {NOTE: "note   ", OVER: "✖ over "}


def of_lock(lock: Lock, path: str) -> Iterator[str]:
    """Yield what was locked, of each dataset."""
    for state in lock.datasets:
        digests = state["digests"]
        names = ", ".join(one.removeprefix(HERE) for one in state["given"])
        yield f"{names}: {digests['table_rows']:,} rows of type {state['type']}; digests of {digests['of']}"
    yield f"wrote {public(path)}; compare with: fmtkit check {public(path)}"


def of_check(found: Check) -> Iterator[str]:
    """Yield the verdict, and a line for each change with its causes."""
    if not found.changes:
        yield f"✔ {found.lock}: {found.rows:,} rows, all as it was"
        return
    if found.is_same:
        yield f"✔ {found.lock}: {found.rows:,} rows, as they were"
    else:
        count = sum(one.severity != NOTE for one in found.changes)
        yield f"✖ {found.lock}: {count} {'thing is' if count == 1 else 'things are'} not as locked"
    for one in found.changes:
        yield from map(one_line, _lines(one))
    if found.updated:
        yield f"updated {found.lock}"
    elif not found.is_same:
        yield f"after a look at it: fmtkit check {found.lock} --update"


def _lines(one: Change) -> Iterator[str]:
    mark = MARKS.get(one.severity, "✖ changed")
    dataset = f"{one.dataset}: " if one.dataset else ""
    yield f"{mark} {one.what}: {dataset}{one.message}"
    for cause in one.causes:
        yield f"          why: {cause}"
