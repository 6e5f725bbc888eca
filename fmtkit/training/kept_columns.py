"""Columns that a conversion carried through, as reward functions get them: values, not JSON text."""

from collections.abc import Sequence
from typing import Any

from fmtkit.converting.keeping import JSON_FIELD
from fmtkit.errors import OptionError


def decoded(rows: Any, files: Sequence[str]) -> Any:
    """Turn columns that hold canonical JSON into the values that they are."""
    import pyarrow.parquet as pq
    from datasets import Json

    for name in _json_columns([pq.read_schema(file) for file in files]):
        rows = rows.cast_column(name, Json())
    return rows


def joined(parts: Sequence[Any]) -> Any:
    """Put datasets together; raise OptionError where a column holds different kinds of value."""
    from datasets import concatenate_datasets

    if len(parts) == 1:
        return parts[0]
    try:
        return concatenate_datasets(list(parts))
    except ValueError as error:
        clash = _clash(parts)
        if clash is None:
            raise
        raise OptionError(
            f"datasets: column {clash!r} holds another kind of value in one dataset than in "
            "another; make them the same, or drop it by remove_columns of a transform"
        ) from error


def _json_columns(schemas: Sequence[Any]) -> list[str]:
    marked = [f.name for schema in schemas for f in schema if _is_json(f)]
    return list(dict.fromkeys(marked))


def _is_json(field: Any) -> bool:
    (key, value), *_ = JSON_FIELD.items()
    return bool(field.metadata) and field.metadata.get(key) == value


def _clash(parts: Sequence[Any]) -> str | None:
    """Return the first column whose type is not the same in all parts that have it."""
    names = dict.fromkeys(name for part in parts for name in part.column_names)
    for name in names:
        types = [part.features[name] for part in parts if name in part.column_names]
        if any(one != types[0] for one in types):
            return str(name)
    return None
