"""The turns of rows: how many there are, and of which roles."""

from collections import Counter
from dataclasses import field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fmtkit.core.data_classes import dataclass
from fmtkit.core.tables import CONVERSATION_COLUMNS
from fmtkit.counting.lengths import Tally
from fmtkit.findings.conversation_checks import Conversations


@dataclass
class ConversationShapes:
    """Roles and turns of the rows so far."""

    roles: Counter[str] = field(default_factory=Counter)
    """Role -> messages."""
    turns: Tally = field(default_factory=Tally)
    """Messages in the longest sequence of a row: of a pair the prompt and the longer reply."""

    def add(self, table: pa.Table) -> None:
        """Look at a batch of a canonical table in messages form."""
        sizes = {}
        for name in conversation_names(table):
            conversations = Conversations.of(name, table[name])
            counts = pc.value_counts(conversations.field("role"))
            self.roles.update({entry["values"]: entry["counts"] for entry in counts.to_pylist()})
            sizes[name] = conversations.sizes
        if sizes:
            context = sizes.pop("prompt", np.zeros(table.num_rows, dtype=np.int64))
            replies = np.max([*sizes.values()], axis=0) if sizes else 0
            self.turns.add((context + replies).astype(np.int64))

    def absorb(self, other: "ConversationShapes") -> None:
        """Add the rows of others."""
        self.roles.update(other.roles)
        self.turns.absorb(other.turns)


def conversation_names(table: pa.Table) -> list[str]:
    """Return the columns that hold messages."""
    return [
        entry.name
        for entry in table.schema
        if entry.name in CONVERSATION_COLUMNS
        and pa.types.is_list(entry.type)
        and pa.types.is_struct(entry.type.value_type)
    ]
