"""The commands that print types, schemas and templates."""

from typing import Annotated

import typer

from fmtkit.commands.flags import Json, Plugin, schema_names, template_names, type_names


def types(
    name: Annotated[
        str | None,
        typer.Argument(help="A type; without one, all types.", autocompletion=type_names),
    ] = None,
    plugin: Plugin = None,
    json: Json = False,
) -> None:
    """List the types: columns, table, options."""
    from fmtkit import catalogue
    from fmtkit.commands import listings

    listings.print_types(catalogue.types(name, plugins=plugin or ()), name, as_json=json)


def schema(
    name: Annotated[
        str,
        typer.Argument(
            help="A type, a table, report, quarantine, manifest, survey, check, diff, config; "
            "convert, inspect, train, compare, merge or try for their options.",
            autocompletion=schema_names,
        ),
    ],
    source: Annotated[
        bool,
        typer.Option(
            "--source", help="For a type: the schema of its source rows, not of its output."
        ),
    ] = False,
    plugin: Plugin = None,
) -> None:
    """Print a JSON Schema."""
    from fmtkit import catalogue
    from fmtkit.reports import console as terminal

    if source:
        terminal.print_json(catalogue.source_schema(name, plugins=plugin or ()))
    else:
        terminal.print_json(catalogue.schema(name, plugins=plugin or ()))


def templates(
    name: Annotated[
        str | None,
        typer.Argument(
            help="A template; without one, all templates.", autocompletion=template_names
        ),
    ] = None,
    json: Json = False,
) -> None:
    """List the templates, or print one."""
    from fmtkit import catalogue
    from fmtkit.commands import listings

    listings.print_templates(catalogue.templates(name), name, as_json=json)
