"""How many bad rows a run may have."""

from dataclasses import dataclass

from fmtkit.converting.ledger import Ledger
from fmtkit.errors import OptionError


@dataclass(frozen=True)
class ErrorLimit:
    """A number of bad rows, or a share of the rows read so far; None is no limit."""

    rows: int | None = None
    share: float | None = None

    @classmethod
    def parse(cls, text: str | None) -> "ErrorLimit":
        """Read --max-errors: N, or P%."""
        if text is None:
            return cls()
        try:
            if text.endswith("%"):
                return cls(share=float(text[:-1]) / 100)
            return cls(rows=int(text))
        except ValueError as error:
            raise OptionError(
                f"--max-errors {text}: give a number of rows or a percentage such as 1%"
            ) from error

    def is_passed(self, ledger: Ledger) -> bool:
        """Tell whether there are more bad rows than that."""
        if self.rows is not None:
            return ledger.bad > self.rows
        return self.share is not None and ledger.bad > self.share * ledger.rows_read
