"""The dialogs that rows of a table have: columns of messages, and replies that are ranked."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fmtkit.core.tables import DIALOG_COLUMNS
from fmtkit.inspection.dialog_checks import Dialogs

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


def dialogs(table: pa.Table) -> list[Dialogs]:
    """Return the columns of messages."""
    found = []
    for name in table.column_names:
        kind = table.schema.field(name).type
        if (
            name in DIALOG_COLUMNS
            and pa.types.is_list(kind)
            and pa.types.is_struct(kind.value_type)
        ):
            found.append(Dialogs.of(name, table[name]))
    return found


@dataclass(frozen=True, eq=False)
class Replies:
    """The replies of a ranking, each a dialog of its own, and the row of each."""

    dialogs: Dialogs
    rows: Ints
    size: int

    def rows_with(self, wrong: Bools) -> Bools:
        """Tell which rows have a reply for which `wrong` is true."""
        found = np.zeros(self.size, dtype=np.bool_)
        found[self.rows[wrong]] = True
        return found


def replies(table: pa.Table) -> Replies | None:
    """Return the replies of rankings, where the table has any."""
    if "replies" not in table.column_names:
        return None
    lists = table["replies"].combine_chunks()
    rows = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False).astype(np.int64)
    return Replies(Dialogs.of("replies", pc.list_flatten(lists)), rows, len(lists))
