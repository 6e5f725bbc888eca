"""The ledger: every row that was read is in exactly one term, and a limited number may be bad."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from fmtkit.core.codes import Reject
from fmtkit.core.errors import FmtkitError

if TYPE_CHECKING:
    from fmtkit.converting.convert_options import RowOptions

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
"""What is counted in addition, and is not a term of the sum."""


class Counted(Protocol):
    """The counts of a block, for the ledger."""

    @property
    def rejects(self) -> tuple[Reject, ...]:
        """Return the bad rows."""
        ...

    @property
    def rows_read(self) -> int:
        """Count all rows."""
        ...

    @property
    def converted(self) -> int:
        """Count the rows that made at least one."""
        ...

    @property
    def rows_written(self) -> int:
        """Count the rows made."""
        ...

    @property
    def no_pair(self) -> int:
        """Count the rankings without a pair."""
        ...

    @property
    def unpaired(self) -> int:
        """Count the pairs that made two rows each."""
        ...

    @property
    def overlong_dropped(self) -> int:
        """Count the rows dropped for their length."""
        ...

    @property
    def filtered(self) -> int:
        """Count the rows a user's function returned nothing for."""
        ...

    @property
    def joined(self) -> int:
        """Count the rows that were joined into the row of a different one."""
        ...

    @property
    def blank_lines(self) -> int:
        """Count the blank lines."""
        ...

    @property
    def unread(self) -> Counter[str]:
        """Count, by column, the rows in which it carries turns that the type does not read."""
        ...

    @property
    def losses(self) -> Counter[str]:
        """Count, by field, the rows that were written without it since the target cannot hold it."""
        ...

    @property
    def warnings(self) -> Counter[str]:
        """Count the warnings, by code, of rows that were kept."""
        ...


@dataclass
class Ledger:
    """Counts of rows, and of the codes they were given; blank lines are not rows.

    `unpaired` counts no rows of the source but pairs that were taken apart, two rows written of each.
    """

    rows_read: int = 0
    converted: int = 0
    quarantined: int = 0
    skipped: int = 0
    filtered: int = 0
    overlong_dropped: int = 0
    no_pair: int = 0
    joined: int = 0
    unpaired: int = 0
    rows_written: int = 0
    blank_lines: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    warnings: Counter[str] = field(default_factory=Counter)
    unread: Counter[str] = field(default_factory=Counter)
    losses: Counter[str] = field(default_factory=Counter)
    no_place: Counter[str] = field(default_factory=Counter)
    """Field that a target does not hold -> rows that were rejected for it."""

    @property
    def bad(self) -> int:
        """Return how many rows were bad, quarantined or skipped."""
        return self.quarantined + self.skipped

    def add(self, piece: "Counted", *, skipped: bool) -> None:
        """Enter the results of a block's rows; bad rows are skipped or quarantined."""
        self.rows_read += piece.rows_read
        self.converted += piece.converted
        self.no_pair += piece.no_pair
        self.unpaired += piece.unpaired
        self.overlong_dropped += piece.overlong_dropped
        self.filtered += piece.filtered
        self.joined += piece.joined
        self.rows_written += piece.rows_written
        self.blank_lines += piece.blank_lines
        if skipped:
            self.skipped += len(piece.rejects)
        else:
            self.quarantined += len(piece.rejects)
        self.reasons.update(reject.code for reject in piece.rejects)
        self.warnings.update(piece.warnings)
        self.unread.update(piece.unread)
        self.losses.update(piece.losses)
        self.no_place.update(r.column or "" for r in piece.rejects if r.code == "no_place")

    def merge(self, other: "Ledger") -> None:
        """Add the counts of another ledger."""
        for name in ("rows_read", *TERMS, *_ADDITIONAL):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("reasons", "warnings", "unread", "losses", "no_place"):
            getattr(self, name).update(getattr(other, name))

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
        out["reasons"] = dict(sorted(self.reasons.items()))
        out["warnings"] = dict(sorted(self.warnings.items()))
        out["unread_columns"] = dict(sorted(self.unread.items()))
        out["losses"] = dict(sorted(self.losses.items()))
        out["no_place"] = dict(sorted(self.no_place.items()))
        return out

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Ledger":
        """Read what `as_dict` wrote."""
        counts = {name: data[name] for name in ("rows_read", *TERMS, *_ADDITIONAL)}
        ledger = cls(**counts)
        ledger.reasons.update(data["reasons"])
        ledger.warnings.update(data["warnings"])
        ledger.unread.update(data["unread_columns"])
        ledger.losses.update(data["losses"])
        ledger.no_place.update(data["no_place"])
        return ledger


@dataclass(frozen=True)
class ErrorLimit:
    """A number of bad rows, or a share of the rows read so far; None means no limit."""

    rows: int | None = None
    share: float | None = None

    @classmethod
    def parse(cls, text: str | None) -> "ErrorLimit":
        """Return the limit of --max-errors: N, or P%, as the options have checked it."""
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
