"""Columns that a conversion carried through, as reward functions get them: values, not JSON text."""

from collections.abc import Sequence
from typing import Any

from fmtkit.core.errors import OptionError
from fmtkit.core.tables import GYM_COLUMNS


def decoded(rows: Any, files: Sequence[str]) -> Any:
    """Turn columns that hold canonical JSON into the values that they are."""
    import pyarrow.parquet as pq
    from datasets import Json

    for name in _json_columns([pq.read_schema(file) for file in files]):
        rows = rows.cast_column(name, Json())
    return rows


def joined(parts: Sequence[Any]) -> Any:
    """Put datasets together; raise OptionError where a column holds different kinds of value.

    Rows for a Gym hold all their columns in one: what clashes is left out beside it.
    """
    from datasets import concatenate_datasets

    if len(parts) == 1:
        return parts[0]
    if all(GYM_COLUMNS[0] in part.column_names for part in parts):
        clashes = set(_clashes(parts))
        parts = [part.remove_columns(sorted(clashes & {*part.column_names})) for part in parts]
    try:
        return concatenate_datasets(list(parts))
    except ValueError as error:
        clashes_left = _clashes(parts)
        if not clashes_left:
            raise
        raise OptionError(
            f"datasets: column {clashes_left[0]!r} holds another kind of value in one dataset than in "
            "another; make them the same, or drop it by remove_columns of a transform"
        ) from error


def _json_columns(schemas: Sequence[Any]) -> list[str]:
    marked = [f.name for schema in schemas for f in schema if _is_json(f)]
    return list(dict.fromkeys(marked))


def _is_json(field: Any) -> bool:
    from fmtkit.converting.keeping import JSON_FIELD

    (key, value), *_ = JSON_FIELD.items()
    return bool(field.metadata) and field.metadata.get(key) == value


def _clashes(parts: Sequence[Any]) -> list[str]:
    """Return the columns whose type is not the same in all parts that have them."""
    names = dict.fromkeys(str(name) for part in parts for name in part.column_names)
    return [name for name in names if len(_types(parts, name)) > 1]


def _types(parts: Sequence[Any], name: str) -> list[Any]:
    """Return the different types of a column; they cannot be hashed."""
    found: list[Any] = []
    for part in parts:
        if name in part.column_names and part.features[name] not in found:
            found.append(part.features[name])
    return found
