"""How many bad rows a run may have, and which ends it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fmtkit.converting.ledger import Ledger
from fmtkit.core.codes import Reject

if TYPE_CHECKING:
    from fmtkit.converting.convert_options import RowOptions


@dataclass(frozen=True)
class ErrorLimit:
    """A number of bad rows, or a share of the rows read so far; None is no limit."""

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

    def is_passed(self, ledger: Ledger) -> bool:
        """Tell whether there are more bad rows than that."""
        if self.rows is not None:
            return ledger.bad > self.rows
        return self.share is not None and ledger.bad > self.share * ledger.rows_read


def why_ended(
    options: "RowOptions", ledger: Ledger, source: str, rejects: Sequence[Reject]
) -> str | None:
    """Return why a run ends after a block, by --on-error and --max-errors; None where it goes on.

    `ledger` counts the block's rows already; `rejects` are its bad rows, in order, of `source`.
    """
    if options.on_error == "fail" and rejects:
        first = rejects[0]
        place = first.line if first.line is not None else f"row {first.row}"
        return f"{source}:{place}: {first.code}: {first.message} (--on-error fail)"
    if ErrorLimit.parse(options.max_errors).is_passed(ledger):
        return (
            f"{ledger.bad:,} of {ledger.rows_read:,} rows are bad, more than --max-errors "
            f"{options.max_errors} allows"
        )
    return None
