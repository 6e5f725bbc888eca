"""The library: what `import fmtkit` offers. Each function is a command of the same name without its printing.

A source is a path, a glob, a folder, a URL, a pyarrow table, a polars frame, a `datasets.Dataset`, or a
list of such.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fmtkit import catalogue, registry
from fmtkit.converting.conversions import convert_to, open_named
from fmtkit.converting.convert_options import ConvertOptions
from fmtkit.converting.pipeline import stream
from fmtkit.converting.preparation import Job, prepare
from fmtkit.converting.run_report import Report
from fmtkit.converting.text_stage import render_table
from fmtkit.converting.validation import Findings, validate_sources
from fmtkit.errors import TemplateError
from fmtkit.rendering.chat import ChatTemplate
from fmtkit.rendering.template_sources import find_model_template
from fmtkit.tables import WIDE_MESSAGE

if TYPE_CHECKING:
    from fmtkit.surveying.survey import Survey

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
    from fmtkit.surveying.survey import inspect as survey

    return survey(source, type=type, **options)


def render(
    batch: pa.Table | pa.RecordBatch | Sequence[Mapping[str, Any]], template: str | ChatTemplate
) -> pa.Table | str:
    """Render canonical rows to the same rows as text; or one conversation, a list of messages, to a str.

    Raises TemplateError if the template refuses a row, naming it.
    """
    found = find_model_template(template) if isinstance(template, str) else template
    if not isinstance(batch, pa.Table | pa.RecordBatch):
        rows = pa.table({"messages": pa.array([list(batch)], pa.list_(WIDE_MESSAGE))})
        return str(_rendered(rows, found).column("text")[0].as_py())
    table = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
    return _rendered(table, found)


def _rendered(table: pa.Table, template: ChatTemplate) -> pa.Table:
    done = render_table(table, template)
    if done.failures:
        first = done.failures[0]
        raise TemplateError(f"row {first.row}: {first.code}: {first.message}")
    return done.table


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

        raise UnknownNameError("option", min(unknown), ConvertOptions.__dataclass_fields__)
    return ConvertOptions(type=type, **given)


def _job(source: Source, type: str, options: Mapping[str, Any]) -> Job:
    settings = _options(type, options)
    for plugin in settings.plugins:
        registry.load_plugin(plugin)
    return prepare(open_named(source), settings.request())
