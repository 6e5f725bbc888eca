"""The ledger: every row that was read is in exactly one term, and a limited number may be bad."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field, fields
from typing import TYPE_CHECKING, Any, Protocol

from fmtkit.core.codes import Reject
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import FmtkitError

if TYPE_CHECKING:
    from fmtkit.options.convert_options import RowOptions

TERMS = (
    "converted",
    "quarantined",
    "skipped",
    "filtered",
    "overlong_dropped",
    "no_pair",
    "joined",
)
_ADDITIONAL = ("unpaired", "rows_written", "blank_lines")
"""Counters that are no terms of the sum."""


TIERS = ("fast_rows", "traced_rows", "plain_rows")
"""Counters of how rows were read and rendered, which reports and journals keep outside the ledger."""
_COUNTERS = {
    "reasons": "reasons",
    "warnings": "warnings",
    "unread": "unread_columns",
    "losses": "losses",
    "no_place": "no_place",
}
"""Counters of a ledger, and what they are called in reports and journals."""


@dataclass
class RowCounts:
    """Counts of what became of rows: in part of a block, a block, or a run."""

    rows_read: int = 0
    converted: int = 0
    """Source rows from which at least one row was made."""
    filtered: int = 0
    """Rows that --where leaves out, or for which a user's function returned nothing."""
    overlong_dropped: int = 0
    """Rows that were dropped for their length."""
    no_pair: int = 0
    """Rankings without a pair."""
    joined: int = 0
    """Rows that were joined into the row of a different one."""
    unpaired: int = 0
    """Pairs that were split into two written rows each; not source rows."""
    rows_written: int = 0
    blank_lines: int = 0
    """Lines that are no rows."""
    warnings: Counter[str] = field(default_factory=Counter)
    """Code -> rows that were kept."""
    unread: Counter[str] = field(default_factory=Counter)
    """Column -> rows in which it carries turns that the type does not read."""
    losses: Counter[str] = field(default_factory=Counter)
    """Field that a target does not hold -> rows that were written without it."""
    tiers: Counter[str] = field(default_factory=Counter)
    """Tier -> rows."""

    def merge(self, other: "RowCounts") -> None:
        """Add the counts of other rows."""
        for entry in fields(other):
            # A sum of counters has no zeros.
            total = getattr(self, entry.name) + getattr(other, entry.name)
            setattr(self, entry.name, total)


class Counted(Protocol):
    """A block, for the ledger."""

    @property
    def counts(self) -> RowCounts:
        """Return what became of its rows."""
        ...

    @property
    def rejects(self) -> tuple[Reject, ...]:
        """Return the bad rows."""
        ...


@dataclass
class Ledger(RowCounts):
    """Counts of all rows, also bad ones, and of their codes."""

    quarantined: int = 0
    skipped: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    no_place: Counter[str] = field(default_factory=Counter)
    """Field that a target does not hold -> rows that were rejected for it."""

    @property
    def bad(self) -> int:
        """Return how many rows were bad, quarantined or skipped."""
        return self.quarantined + self.skipped

    def add(self, piece: "Counted", *, skipped: bool) -> None:
        """Enter the results of a block's rows; bad rows are skipped or quarantined."""
        self.merge(piece.counts)
        if skipped:
            self.skipped += len(piece.rejects)
        else:
            self.quarantined += len(piece.rejects)
        self.reasons.update(reject.code for reject in piece.rejects)
        self.no_place.update(r.column or "" for r in piece.rejects if r.code == "no_place")

    def check(self) -> None:
        """Raise if a row is in no term or in two: always a bug of fmtkit, not a fault of the data."""
        total = sum(getattr(self, term) for term in TERMS)
        if total != self.rows_read:
            terms = ", ".join(f"{term} {getattr(self, term)}" for term in TERMS)
            raise FmtkitError(
                f"the ledger does not balance: {self.rows_read} rows read, but {terms}; "
                "please report this with the input"
            )

    def as_dict(self) -> dict[str, object]:
        """Return the ledger with its counters sorted, as it is in reports and journals."""
        out: dict[str, object] = {"rows_read": self.rows_read}
        out |= {term: getattr(self, term) for term in TERMS}
        out |= {name: getattr(self, name) for name in _ADDITIONAL}
        for name, written in _COUNTERS.items():
            out[written] = dict(sorted(getattr(self, name).items()))
        return out

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], tiers: Mapping[str, int] = {}) -> "Ledger":
        """Read what `as_dict` wrote, and the tiers that were written beside it."""
        held: dict[str, Any] = {n: data[n] for n in ("rows_read", *TERMS, *_ADDITIONAL)}
        held |= {name: Counter(data[written]) for name, written in _COUNTERS.items()}
        return cls(**held, tiers=Counter(tiers))

    def by_tier(self) -> dict[str, int]:
        """Return how many rows were read and rendered in each way."""
        return {tier: self.tiers[tier] for tier in TIERS}


@dataclass(frozen=True)
class ErrorLimit:
    """A number of bad rows, or a share of the rows read so far; None means no limit."""

    rows: int | None = None
    share: float | None = None

    @classmethod
    def parse(cls, text: str | None) -> "ErrorLimit":
        """Return the limit of --max-errors: N or P%, already checked by the options."""
        if text is None:
            return cls()
        if text.endswith("%"):
            return cls(share=float(text[:-1]) / 100)
        return cls(rows=int(text))

    def is_exceeded(self, ledger: Ledger) -> bool:
        """Return whether there are more bad rows than allowed."""
        if self.rows is not None:
            return ledger.bad > self.rows
        return self.share is not None and ledger.bad > self.share * ledger.rows_read


def why_ended(
    options: "RowOptions", ledger: Ledger, source: str, rejects: Sequence[Reject]
) -> str | None:
    """Return why a run ends after a block, by --on-error and --max-errors; None where it continues.

    `ledger` counts the block's rows already; `rejects` are its bad rows, in order, of `source`.
    """
    if options.on_error == "fail" and rejects:
        first = rejects[0]
        place = first.line if first.line is not None else f"row {first.row}"
        return f"{source}:{place}: {first.code}: {first.message} (--on-error fail)"
    if options.max_errors is not None and ErrorLimit.parse(options.max_errors).is_exceeded(ledger):
        return (
            f"{ledger.bad:,} of {ledger.rows_read:,} rows are bad, more than --max-errors "
            f"{options.max_errors} allows"
        )
    return None
