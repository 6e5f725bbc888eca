"""Kept columns that are called like a dialog: a prompt's row may carry `chosen`, which is never rendered."""

import pyarrow as pa

from fmtkit.core.tables import DIALOG_COLUMNS, TEXT_NAMES, Table

_NAMES = frozenset({*DIALOG_COLUMNS, *TEXT_NAMES.values(), "completions"})
_ASIDE = "kept aside: "


def put(schema: pa.Schema, table: type[Table]) -> pa.Schema:
    """Return a schema in which what is no column of its table has another name, if it is a dialog's."""
    own = set(table.column_names())
    own |= {text for name, text in TEXT_NAMES.items() if name in own}
    aside = _NAMES - own
    return pa.schema([f.with_name(_ASIDE + f.name) if f.name in aside else f for f in schema])


def back(schema: pa.Schema) -> pa.Schema:
    """Return a schema with the names that the columns had."""
    return pa.schema([f.with_name(f.name.removeprefix(_ASIDE)) for f in schema])
