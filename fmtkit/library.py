"""The library: what `import fmtkit` offers. Each function is a command of the same name without its printing.

A source is a path, a glob, a folder, a URL, a pyarrow table, a polars frame, a `datasets.Dataset`, or a
list of such.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fmtkit import catalogue, chat, registry
from fmtkit.conversions import ConvertOptions, Report, convert_to, open_named
from fmtkit.pipeline import Job, prepare, stream
from fmtkit.template_sources import ChatTemplate, find_model_template
from fmtkit.validation import Findings, validate_sources

if TYPE_CHECKING:
    from fmtkit.survey import Survey

Source = object


def convert(source: Source, type: str, out: str | Path | None = None, **options: Any) -> Report:
    """Convert a source to a file or a folder; options are the flags of `fmtkit convert`.

    Without `out` nothing is written and the report says what would have been.
    Raises the errors of fmtkit.errors.
    """
    settings = _options(type, options)
    if out is None:
        return validate_sources(source, settings).report
    return convert_to(source, out, settings)


def read(source: Source, type: str, **options: Any) -> Iterator[pa.RecordBatch]:
    """Yield the converted rows as record batches of one schema, in input order, in bounded memory.

    Bad rows are left out; `validate` lists them.
    """
    job = _job(source, type, options)
    for piece in stream(job, workers=options.get("workers")):
        yield from piece.table.to_batches()


def table(source: Source, type: str, **options: Any) -> pa.Table:
    """Return all converted rows as one table."""
    job = _job(source, type, options)
    pieces = [piece.table for piece in stream(job, workers=options.get("workers"))]
    return pa.concat_tables(pieces) if pieces else job.schema.empty_table()


def validate(source: Source, type: str | None = None, **options: Any) -> Findings:
    """Read and check a source without writing; returns every finding, not the first."""
    return validate_sources(source, _options(type, options), schema=bool(options.get("schema")))


def inspect(source: Source, type: str | None = None, **options: Any) -> "Survey":
    """Survey a source: what it is, token lengths, masks and findings."""
    from fmtkit.survey import inspect as survey

    return survey(source, type=type, **options)


def render(
    messages: Sequence[Mapping[str, Any]] | pa.Array,
    template: str | ChatTemplate,
    *,
    add_generation_prompt: bool = False,
) -> str | pa.Array:
    """Render one conversation to text, or a column of conversations to a column of texts.

    Raises TemplateError if the template refuses a conversation.
    """
    found = find_model_template(template) if isinstance(template, str) else template
    if isinstance(messages, pa.Array | pa.ChunkedArray):
        return chat.render_all(found, messages, add_generation_prompt=add_generation_prompt)
    return chat.render_one(found, messages, add_generation_prompt=add_generation_prompt)


def train(config: str | Path, **options: Any) -> Any:
    """Train by a config; options are the flags of `fmtkit train`."""
    from fmtkit.training import train as run

    return run(config, **options)


def types(name: str | None = None) -> list[dict[str, Any]]:
    """Return every type, or what one name stands for."""
    return catalogue.types(name)


def _options(type: str | None, options: Mapping[str, Any]) -> ConvertOptions:
    renamed = {"as_": "form", "map": "columns"}
    given = {renamed.get(key, key): value for key, value in options.items() if key != "schema"}
    if isinstance(given.get("keep"), str):
        given["keep"] = tuple(given["keep"].split(","))
    if isinstance(given.get("max_errors"), int):
        given["max_errors"] = str(given["max_errors"])
    unknown = set(given) - set(ConvertOptions.__dataclass_fields__)
    if unknown:
        from fmtkit.errors import UnknownNameError

        raise UnknownNameError("option", sorted(unknown)[0], ConvertOptions.__dataclass_fields__)
    return ConvertOptions(type=type, **given)


def _job(source: Source, type: str, options: Mapping[str, Any]) -> Job:
    settings = _options(type, options)
    for plugin in settings.plugins:
        registry.load_plugin(plugin)
    return prepare(open_named(source), settings.request())
