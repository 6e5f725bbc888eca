"""Finds what looks like a secret in the texts of a canonical table: in which column, and of which kind."""

import re
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from fmtkit.core.escaping import counted
from fmtkit.core.secret_keys import MARKS, secrets_in
from fmtkit.core.tables import written_name

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
SecretCounts = dict[tuple[str, str], int]
"""Column with its path, and kind of secret -> rows."""
_MARKED = "|".join(map(re.escape, MARKS))


def find(table: pa.Table) -> tuple[Bools, SecretCounts]:
    """Return which rows have a secret, and what was found where."""
    rows = np.zeros(table.num_rows, dtype=np.bool_)
    counts: SecretCounts = {}
    for name in table.column_names:
        own = np.arange(table.num_rows, dtype=np.int64)
        for path, texts, places in _texts(written_name(name), table[name].combine_chunks(), own):
            for kind, found in _kinds(texts, places).items():
                rows[found] = True
                counts[path, kind] = counts.get((path, kind), 0) + len(found)
    return rows, counts


def details_of(found: SecretCounts) -> dict[str, float | str]:
    """Return for each column, most rows first, how many rows have which kind of secret."""
    kinds: dict[str, list[str]] = {}
    for (path, kind), count in sorted(found.items(), key=lambda one: (-one[1], one[0])):
        kinds.setdefault(path, []).append(f"{kind} in {counted(count, 'row')}")
    return {path: ", ".join(words) for path, words in kinds.items()}


def _texts(path: str, column: pa.Array, rows: Ints) -> Iterator[tuple[str, pa.Array, Ints]]:
    """Yield the strings of a column, of its lists and of their fields, with the row of each."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        yield path, column, rows
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        parents = pc.list_parent_indices(column).to_numpy(zero_copy_only=False)
        yield from _texts(f"{path}[]", pc.list_flatten(column), rows[parents])
    elif pa.types.is_struct(kind):
        for field in (one for one in kind if one.name != "role"):
            yield from _texts(f"{path}.{field.name}", column.field(field.name), rows)


def _kinds(texts: pa.Array, rows: Ints) -> dict[str, Sequence[int]]:
    """Return the rows of each kind of secret; most texts have no mark of any."""
    candidates = np.flatnonzero(_marked(texts))
    found: dict[str, dict[int, None]] = {}
    for place, text in zip(candidates, texts.take(pa.array(candidates)).to_pylist(), strict=True):
        for secret in secrets_in(text):
            found.setdefault(secret.kind, {})[int(rows[place])] = None
    return {kind: [*own] for kind, own in found.items()}


def _marked(texts: pa.Array) -> Bools:
    """Return which texts have a mark; a pattern of words is searched six times as fast as `contains_any`."""
    series = pl.from_arrow(texts)
    assert isinstance(series, pl.Series)
    found: Bools = series.str.contains(_MARKED).fill_null(value=False).to_numpy()
    return found
