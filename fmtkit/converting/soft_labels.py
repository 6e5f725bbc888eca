"""Step labels: hard (right or wrong) or soft (how likely)? One soft label makes the whole column soft."""

from typing import Any

import pyarrow as pa

from fmtkit.converting.column_kinds import read_json
from fmtkit.sources.blocks import Readable
from fmtkit.sources.records import Records, Rows


def has_soft_labels(source: Readable, column: str) -> bool:
    """Tell whether any label of a source is neither true, false, 0 nor 1."""
    source.keep()
    return any(_is_soft(block.records(), column) for block in source.blocks())


def _is_soft(records: Rows, column: str) -> bool:
    if isinstance(records, Records) and "." not in column:
        schema = pa.schema([(column, pa.list_(pa.bool_()))])
        table = (
            read_json(pa.py_buffer(records.data), schema, "ignore") if _is_safe(records) else None
        )
        if table is not None:
            return False
    return any(_holds_soft(records.value(record)[0], column) for record in range(len(records)))


def _is_safe(records: Records) -> bool:
    from fmtkit.sources import guards

    return (
        len(records) > 0
        and guards.look_like_objects(records.array, records.found)
        and guards.is_shallow(records.array, records.found)
    )


def _holds_soft(row: Any, column: str) -> bool:
    for key in column.split("."):
        row = row.get(key) if isinstance(row, dict) else None
    labels = row if isinstance(row, list) else []
    return any(isinstance(label, float) and label not in (0, 1) for label in labels)
