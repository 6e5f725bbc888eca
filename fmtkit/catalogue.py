"""The catalogue: every type, schema and template, as data for the command line and the docs."""

from collections.abc import Sequence
from typing import Any

from fmtkit.columns.kinds import ConversationKind, Kind, ListKind, RecordKind, RowKind
from fmtkit.core.options import Options
from fmtkit.core.tables import TABLES
from fmtkit.formats import registry, resources, source_schemas, typenames
from fmtkit.formats.registry import Converter
from fmtkit.formats.table_schemas import row_schema
from fmtkit.options.convert_options import ConvertOptions
from fmtkit.options.diff_options import CompareOptions, DiffOptions
from fmtkit.options.inspect_options import InspectOptions
from fmtkit.options.train_options import MergeOptions, TrainOptions, TryOptions
from fmtkit.rendering import template_sources

OPTIONS: dict[str, type[Options]] = {
    "convert": ConvertOptions,
    "inspect": InspectOptions,
    "train": TrainOptions,
    "compare": CompareOptions,
    "diff": DiffOptions,
    "merge": MergeOptions,
    "try": TryOptions,
}
"""Commands whose options are an object with a schema."""


def types(name: str | None = None, *, plugins: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return every converter, or those that a type's name stands for, as JSON-able entries."""
    for plugin in plugins:
        registry.load_plugin(plugin)
    if name is None:
        return [
            _entry(converter, f"source {converter.name}") for converter in registry.converters()
        ]
    read = typenames.read(name)
    return [_entry(converter, read.reading) for converter in registry.converters_named(read.source)]


def _entry(converter: Converter, reading: str) -> dict[str, Any]:
    return {
        "name": converter.name,
        "aliases": list(converter.aliases),
        "reading": reading,
        "columns": columns_in_words(converter),
        "table": converter.table,
        "summary": converter.summary,
        "options": dict(converter.options),
        "url": converter.source_url,
        "differs": converter.differs,
    }


def columns_in_words(converter: Converter) -> str:
    """Return the columns of a converter with their kinds, as in `question T, system T?`."""
    words = []
    grouped = {name for group in converter.any_of for name in group}
    for group in converter.any_of:
        letters = {_kind_in_words(converter.takes[name]) for name in group}
        paths = " or ".join(converter.path(name) for name in group)
        words.append(f"{paths} {' or '.join(sorted(letters))}")
    for name, kind in converter.takes.items():
        if name not in grouped:
            mark = "" if name in converter.required else "?"
            where = "" if isinstance(kind, RowKind) else f"{converter.path(name)} "
            words.append(f"{where}{_kind_in_words(kind)}{mark}")
    return ", ".join(words)


def _kind_in_words(kind: Kind) -> str:
    """Return a kind as the docs write it: `T`, `R{answer T, rank number}`, `M{from, value}`."""
    if isinstance(kind, ListKind):
        inner = _kind_in_words(kind.item)
        return (
            inner if isinstance(kind.item, RecordKind) else {"T": "L"}.get(inner, f"L of {inner}")
        )
    if isinstance(kind, RecordKind):
        marks = {name: "?" if name in kind.optional else "" for name in kind.fields}
        fields = (
            f"{name} {_kind_in_words(inner)}{marks[name]}" for name, inner in kind.fields.items()
        )
        return "R{" + ", ".join(fields) + "}"
    if isinstance(kind, ConversationKind) and (kind.role, kind.content) != ("role", "content"):
        return f"{kind.letter}{{{kind.role}, {kind.content}}}"
    return kind.letter


def source_schema(name: str, *, plugins: Sequence[str] = ()) -> dict[str, Any]:
    """Return the JSON Schema of the rows that a type takes: those of any of its converters.

    Raises UnknownNameError.
    """
    for plugin in plugins:
        registry.load_plugin(plugin)
    read = typenames.read(name)
    schemas = [
        source_schemas.source_schema(found)
        for found in registry.converters_named(read.source, read.method)
    ]
    if len(schemas) == 1:
        return schemas[0]
    # Each has definitions of its own, to which its references lead.
    ids = [{"$id": f"urn:fmtkit:{found['title']}:{i}"} for i, found in enumerate(schemas)]
    made = [own | found for own, found in zip(ids, schemas, strict=True)]
    return {"$schema": schemas[0]["$schema"], "anyOf": made}


def schema_names() -> list[str]:
    """Return what `schema` takes: types, tables, files that fmtkit reads or writes, commands."""
    tables = (table.lower() for table in TABLES)
    return sorted({*OPTIONS, *tables, *resources.schema_names(), *registry.names()})


def schema(name: str, *, plugins: Sequence[str] = ()) -> dict[str, Any]:
    """Return the JSON Schema of a table, of a type's converted rows, of a file of fmtkit, or of the options
    of a command.

    Raises UnknownNameError.
    """
    for plugin in plugins:
        registry.load_plugin(plugin)
    if name in OPTIONS:
        return OPTIONS[name].schema()
    tables = {table.lower(): TABLES[table] for table in TABLES}
    if name.lower() in tables:
        return row_schema(tables[name.lower()])
    if name in resources.schema_names():
        return resources.schema(name)
    read = typenames.read(name)
    made = {c.table: c.makes for c in registry.converters_named(read.source, read.method)}
    schemas = [row_schema(table) for table in made.values()]
    return schemas[0] if len(schemas) == 1 else {"$schema": schemas[0]["$schema"], "anyOf": schemas}


def templates(name: str | None = None) -> list[dict[str, Any]]:
    """Return the templates that can be named, or one with its source."""
    if name is not None:
        return [_template(name) | {"source": template_sources.find_model_template(name).source}]
    return [_template(known) for known in template_sources.names()]


def _template(name: str) -> dict[str, Any]:
    found = template_sources.find_model_template(name)
    return {"name": name, "origin": found.name, "sha256": found.sha256}
