"""The verdict of a survey: one sentence that says whether its rows can be converted and trained on."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from fmtkit.core.data_classes import dataclass
from fmtkit.core.escaping import counted
from fmtkit.findings.advice import SEVERITIES

FINE = "fine"
MISSING = {
    "quarantined": "bad",
    "no_pair": "without a pair",
    "filtered": "filtered",
    "joined": "joined to another row",
}
"""Term of the ledger -> what such rows are called."""


@dataclass(frozen=True)
class Verdict:
    """The conclusion of a survey."""

    severity: str
    """`fine`, or the worst severity of what was found: error, warning, note."""
    text: str


def judge(
    ledger: Mapping[str, Any],
    rows_read: int,
    severities: Sequence[str],
    *,
    type: str | None,
    certainty: str | None,
    unread: str = "",
) -> Verdict:
    """Return the verdict on rows that were read by a type, by none where `type` is None.

    `severities` are those of the findings; `certainty` is that of a type that was not named; `unread`
    says which columns are open.
    """
    if not rows_read:
        return Verdict("error", "there are no rows")
    if type is None:
        none = "the only row was not" if rows_read == 1 else f"none of the {rows_read:,} rows was"
        text = f"no type was chosen, so {none} converted"
        return Verdict("error", text)
    converted = ledger.get("converted", 0)
    missing = [f"{ledger[term]:,} {word}" for term, word in MISSING.items() if ledger.get(term)]
    is_guess = certainty == "unsure"
    # That nothing was found is not said of rows that may have been read wrongly, or not completely.
    found_in_words = _findings(severities, is_silent=bool(missing or is_guess or unread))
    parts = [unread, _rows(converted, rows_read, missing), found_in_words]
    found = [*severities]
    if ledger.get("quarantined") or not converted:
        found.append("error")
    if is_guess:
        parts.append("the type is a guess")
        found.append("warning")
    worst = next((severity for severity in SEVERITIES if severity in found), FINE)
    return Verdict(worst, "; ".join(filter(None, parts)))


def _rows(converted: int, read: int, missing: Sequence[str]) -> str:
    if not missing:
        return f"all {counted(read, 'row')} convert" if read > 1 else "the one row converts"
    verb = "convert" if converted != 1 else "converts"
    of = (
        f"{converted:,} of {counted(read, 'row')}"
        if converted
        else f"none of {counted(read, 'row')}"
    )
    return f"{of} {verb} ({', '.join(missing)})"


def _findings(severities: Sequence[str], *, is_silent: bool) -> str:
    if not severities:
        return "" if is_silent else "nothing was found"
    counts = Counter(severities)
    return ", ".join(counted(counts[name], name) for name in SEVERITIES if counts[name])
