"""Canonical tables as `datasets` for TRL's trainers, with tool calls and tools as objects.

On disk they are JSON text, since Arrow's structs would fill each object with the keys of every other.
`datasets` reads the Arrow type arrow.json as values again, and TRL's chat templates render those.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from fmtkit.core.errors import OptionError, SourceError
from fmtkit.core.message_keys import MARKS, MESSAGE_KEYS
from fmtkit.core.options import refuse_empty
from fmtkit.core.tables import CONVERSATION_COLUMNS

if TYPE_CHECKING:
    from datasets import Dataset

JSON_KEYS = frozenset({"tool_calls"})
"""Keys of messages that hold JSON text."""
JSON_COLUMNS = frozenset({"tools"})
KEPT_AS_JSON = b"fmtkit:json"


def to_trl(rows: Any) -> "Dataset":
    """Return canonical rows as a `datasets.Dataset` that TRL's trainers take as it is.

    Tool calls, tools and kept columns of JSON text become the lists and dicts that chat templates
    render; keys of messages that no row has are left out.

    Args:
        rows: a table that `fmtkit.table` made, a `datasets.Dataset` of a converted file, or the path of
            a Parquet file or folder that `fmtkit convert` wrote (its split `train`).

    Returns:
        The dataset: the rows in their order, in memory only as far as `rows` was.

    Raises:
        OptionError: if messages are marked as not to be trained, for which TRL has no column.
        SourceError: if a path holds no Parquet file.

    Example:
        >>> dataset = fmtkit.to_trl(fmtkit.table("chats.jsonl", "sharegpt"))
        >>> trainer = SFTTrainer(model, train_dataset=dataset)
    """
    from datasets import Dataset

    table = _table(rows)
    columns = [_column(table.column(i), table.schema.field(i)) for i in range(table.num_columns)]
    return Dataset(pa.table(dict(zip(table.column_names, columns, strict=True))))


def _table(rows: Any) -> pa.Table:
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    from datasets import Dataset

    if isinstance(rows, Dataset):
        return rows.with_format("arrow")[:] if rows._indices is not None else rows.data.table
    if not isinstance(rows, str | Path):
        raise OptionError(
            f"to_trl: rows is a {type(rows).__name__}; give a table, a dataset or the path of a Parquet file"
        )
    refuse_empty(rows, "to_trl: rows")
    import pyarrow.parquet as pq

    parts = [pq.read_table(file, memory_map=True) for file in _files(Path(rows))]
    return pa.concat_tables(parts)


def _files(path: Path) -> list[Path]:
    files = sorted((path / "data").glob("train-*.parquet")) if path.is_dir() else [path]
    if not files or not all(file.is_file() for file in files):
        raise SourceError(f"{path}: no Parquet file, and no folder that fmtkit convert wrote")
    return files


def _column(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    if field.name in JSON_COLUMNS or KEPT_AS_JSON in (field.metadata or {}):
        return _as_json(column)
    if field.name in CONVERSATION_COLUMNS and pa.types.is_list(field.type):
        if not pa.types.is_struct(field.type.value_type):
            return column
        return column.cast(pa.list_(_message(column, field.name)))
    return column


def _as_json(column: pa.ChunkedArray) -> pa.ChunkedArray:
    is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    return column.cast(pa.json_(column.type)) if is_text else column


def _message(column: pa.ChunkedArray, name: str) -> pa.DataType:
    """Return the type of a column's messages with the keys that any of them has."""
    messages = pa.chunked_array(
        [chunk.flatten() for chunk in column.chunks], type=column.type.value_type
    )
    fields = []
    for field in messages.type:
        values = pc.struct_field(messages, field.name)
        if field.name == "train":
            _refuse_untrained(values, name)
        elif field.name in MARKS:
            _refuse_marks(values, name, field.name)
        elif field.name in ("role", "content") or values.null_count < len(values):
            is_json = field.name in JSON_KEYS and pa.types.is_string(field.type)
            fields.append(field.with_type(pa.json_(field.type)) if is_json else field)
    return pa.struct(fields)


def _refuse_marks(marks: pa.ChunkedArray, name: str, mark: str) -> None:
    if marks.null_count < len(marks):
        what = next(key.about for key in MESSAGE_KEYS if key.name == mark)
        raise OptionError(
            f"{name}: messages say {what} ({mark}), and TRL has no place for that; fmtkit train masks them"
        )


def _refuse_untrained(flags: pa.ChunkedArray, name: str) -> None:
    if pc.any(pc.invert(flags)).as_py():
        raise OptionError(
            f"{name}: messages are marked as not to be trained (train: false), and TRL has no place "
            "for that; fmtkit train masks them, and fmtkit convert --as tokens writes the labels"
        )
