"""What looks at the rows of an inspection beside the survey, in the same pass, such as `fmtkit lock`."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fmtkit.core.data_classes import dataclass
from fmtkit.counting.id_hashes import Hashes
from fmtkit.findings.written_rows import Written
from fmtkit.masks.masked import Masked

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Counted:
    """What was counted of the rows of a batch, by column."""

    lengths: Mapping[str, Ints]
    ids: Mapping[str, Hashes]
    """Hashes of the ids of each row's text, or of its texts in their order; empty without a tokenizer."""


class Observed(Protocol):
    """What an observer keeps of rows; that of two blocks adds up, in the order of the input."""

    def absorb(self, other: Any, first: int) -> None:
        """Add what was kept of other rows, whose row 0 is row `first` here."""
        ...

    def add_masks(self, row: int, masked: Sequence[Masked]) -> None:
        """Add the sequences of one row whose masks are examined."""
        ...


class RowObserver(Protocol):
    """Looks at every row; it can be pickled, and works in several threads and processes."""

    def empty(self) -> Observed:
        """Return what is kept of no row."""
        ...

    def view(self, table: pa.Table, written: Written, counted: Counted, records: Ints) -> Observed:
        """Look at a batch of a canonical table.

        `written` are its texts, `counted` what was counted of those rows, and `records` the rows of the block
        that the rows of the table were made of.
        """
        ...
