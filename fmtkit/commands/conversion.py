"""`fmtkit convert` and `fmtkit validate`: sources are converted, or only checked."""

from typing import Annotated

import typer

from fmtkit.commands.flags import (
    ChatTemplate,
    Columns,
    Config,
    Json,
    Limit,
    Map,
    Method,
    NoProgress,
    Option,
    Plugin,
    Quiet,
    Sources,
    Tokenizer,
    Type,
    Workers,
    named_columns,
    pairs,
)
from fmtkit.commands.importing import quick_imports


def convert(
    source: Sources = None,
    out: Annotated[
        str,
        typer.Option(
            "--out",
            "-o",
            help="FILE.parquet, .jsonl, .arrow, or a folder (with a dot in its name: NAME/).",
        ),
    ] = "",
    type: Type = None,
    config: Config = None,
    form: Annotated[str | None, typer.Option("--as", help="text, messages or tokens.")] = None,
    method: Method = None,
    chat_template: ChatTemplate = None,
    tokenizer: Tokenizer = None,
    map_: Map = None,
    columns: Columns = None,
    option: Option = None,
    keep: Annotated[
        str | None, typer.Option(help="Source columns to carry through: A,B or all.")
    ] = None,
    on_error: Annotated[
        str, typer.Option(help="quarantine, fail or skip bad rows.")
    ] = "quarantine",
    max_errors: Annotated[str | None, typer.Option(help="Stop after N bad rows, or P%.")] = None,
    max_length: Annotated[int | None, typer.Option(min=1, help="Tokens a row may have.")] = None,
    on_overlong: Annotated[
        str, typer.Option(help="keep, drop, truncate-start, truncate-end or fail.")
    ] = "keep",
    val_size: Annotated[str | None, typer.Option(help="Fraction or rows for validation.")] = None,
    seed: Annotated[int, typer.Option(help="Of the split and of random pairs.")] = 0,
    limit: Limit = None,
    workers: Workers = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an output that fmtkit wrote.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with an interrupted run.")
    ] = False,
    plugin: Plugin = None,
    format: Annotated[str | None, typer.Option(help="parquet, jsonl or arrow.")] = None,
    compression: Annotated[str | None, typer.Option(help="snappy, zstd, lz4 or none.")] = None,
    hash: Annotated[
        str,
        typer.Option(help="Hash the sources for the report: auto (up to 64 MiB), always or never."),
    ] = "auto",
    json: Json = False,
    quiet: Quiet = False,
    no_progress: NoProgress = False,
) -> None:
    """Convert sources to a canonical table.

    Each row is converted or accounted for: bad rows go to the quarantine with their line and reason.
    """
    with quick_imports():
        from fmtkit import terminal
        from fmtkit.converting.conversions import convert_to
        from fmtkit.converting.convert_options import ConvertOptions
        from fmtkit.converting.progress_bar import progress

    settings = ConvertOptions(
        type=type,
        config=config,
        form=form,
        method=method,
        chat_template=chat_template,
        tokenizer=tokenizer,
        columns=named_columns(map_, columns),
        options=pairs(option, "--option"),
        keep=tuple(name for name in (keep or "").split(",") if name),
        on_error=on_error,
        max_errors=max_errors,
        max_length=max_length,
        on_overlong=on_overlong,
        val_size=val_size,
        seed=seed,
        limit=limit,
        workers=workers,
        overwrite=overwrite,
        resume=resume,
        plugins=tuple(plugin or ()),
        format=format,
        compression=compression,
        hash=hash,
    )
    with progress(shown=not (quiet or no_progress or json)) as watch:
        if config is None:
            reports = [convert_to(source or [], out, settings, watch=watch)]
        else:
            from fmtkit.training.convert_config import convert_config

            reports = convert_config(config, source or [], out, settings, watch=watch)
    terminal.print_reports(reports, as_json=json, quiet=quiet)


def validate(
    source: Sources = None,
    type: Type = None,
    method: Method = None,
    chat_template: ChatTemplate = None,
    tokenizer: Tokenizer = None,
    map_: Map = None,
    columns: Columns = None,
    option: Option = None,
    limit: Limit = None,
    workers: Workers = None,
    max_errors: Annotated[str | None, typer.Option(help="Findings allowed: N, or P%.")] = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="Check canonical rows by JSON Schema too.")
    ] = False,
    plugin: Plugin = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Check sources; write nothing.

    Prints `file:line: code: message` for every bad row, not only the first.
    """
    with quick_imports():
        from fmtkit import terminal
        from fmtkit.converting.convert_options import ConvertOptions
        from fmtkit.converting.validation import validate_sources

    settings = ConvertOptions(
        type=type,
        method=method,
        chat_template=chat_template,
        tokenizer=tokenizer,
        columns=named_columns(map_, columns),
        options=pairs(option, "--option"),
        max_errors=max_errors,
        limit=limit,
        workers=workers,
        plugins=tuple(plugin or ()),
    )
    findings = validate_sources(source or [], settings, schema=schema)
    terminal.print_findings(findings, as_json=json, quiet=quiet)
    raise typer.Exit(findings.exit_code)
