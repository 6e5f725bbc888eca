"""`fmtkit convert` and `fmtkit validate`: sources are converted, or only checked."""

from dataclasses import replace
from typing import Annotated

import typer

from fmtkit.commands import asking
from fmtkit.commands.flags import Ask, FailOn, Json, NoProgress, Plugin, Quiet, Sources, flags, say
from fmtkit.commands.importing import quick_imports
from fmtkit.core.errors import OptionError
from fmtkit.core.escaping import counted
from fmtkit.options.convert_options import ConvertOptions, RowOptions


@flags(ConvertOptions)
def convert(
    source: Sources = None,
    out: Annotated[
        str,
        typer.Option(
            "--out",
            "-o",
            help="FILE.parquet, .jsonl, .arrow, or a folder (with a dot in its name: NAME/), also at a URL.",
        ),
    ] = "",
    *,
    options: ConvertOptions,
    ask: Ask = None,
    fail_on: FailOn = None,
    json: Json = False,
    quiet: Quiet = False,
    no_progress: NoProgress = False,
) -> None:
    """Convert sources to a canonical table.

    Each row is converted or accounted for: bad rows go to the quarantine with their line and reason.
    """
    with quick_imports():
        from fmtkit.detection.command_paths import output_for
        from fmtkit.reports import console as terminal
        from fmtkit.reports.fail_on import check_codes, print_found
        from fmtkit.running.conversions import convert_to
        from fmtkit.running.progress_bar import progress

    if out.startswith("memory://"):
        raise OptionError(
            f"OUT {out}: what is in memory ends with the command; give a file or folder"
        )
    codes = tuple(fail_on or ())
    answer = None
    if options.type is None and options.config is None and not (quiet or json):
        given = replace(options, out=out)
        answer = asking.ask(source or [], given) if asking.may_ask(ask, source or ()) else None
    if answer is not None:
        options, out = replace(options, **answer.options), out or output_for(source or [])
    with progress("converting", shown=not (quiet or no_progress or json)) as watch:
        if options.config is None:
            check_codes(codes, plugins=options.plugins)
            reports = [convert_to(source or [], out, options, watch=watch)]
        else:
            from fmtkit.training.data.convert_config import convert_config

            reports = convert_config(
                options.config,
                source or [],
                out,
                options,
                watch=watch,
                fail_on=codes,
                say=None if quiet else lambda note: say(f"note: {note}"),
            )
    for report in () if quiet else reports:
        for name, text in report.data.get("beside", {}).items():
            typer.echo(f"{name}:\n{text.rstrip()}", err=True)
    terminal.print_reports(reports, as_json=json, quiet=quiet)
    if answer is not None:
        asking.tell(answer)
    found = dict.fromkeys(code for report in reports for code in report.found(codes))
    print_found(found)
    raise typer.Exit(1 if found else 0)


@flags(RowOptions, without=("on_error",))
def validate(
    source: Sources = None,
    *,
    options: RowOptions,
    schema: Annotated[
        bool, typer.Option("--schema", help="Check canonical rows by JSON Schema too.")
    ] = False,
    fail_on: FailOn = None,
    json: Json = False,
    quiet: Quiet = False,
    no_progress: NoProgress = False,
) -> None:
    """Check sources; write nothing.

    Prints `file:line: code: message` for every bad row, not only the first.
    """
    with quick_imports():
        from fmtkit.reports import console as terminal
        from fmtkit.reports.fail_on import check_codes, print_found
        from fmtkit.running.progress_bar import progress
        from fmtkit.running.validation import validate_sources

    codes = tuple(fail_on or ())
    check_codes(codes, plugins=options.plugins)
    with progress("checking", shown=not (quiet or no_progress or json)) as watch:
        findings = validate_sources(source or [], options, schema=schema, watch=watch)
    terminal.print_findings(findings, as_json=json, quiet=quiet)
    if not findings.ledger.rows_read:
        say("fmtkit: the sources hold no rows; nothing was checked")
    found = findings.found(codes)
    print_found(found)
    raise typer.Exit(findings.exit_code or (1 if found else 0))


def replay(
    quarantine: Annotated[
        str, typer.Argument(help="OUT.quarantine.jsonl, or OUT/quarantine.jsonl.")
    ],
    fix: Annotated[
        str | None,
        typer.Option(help="FILE.function: takes a row, returns the repaired one or None."),
    ] = None,
    plugin: Plugin = None,
    json: Json = False,
    quiet: Quiet = False,
    no_progress: NoProgress = False,
) -> None:
    """Convert quarantined rows once they are repaired, and rewrite the output.

    They are repaired by a function, or by hand: `raw` in the quarantine.
    """
    with quick_imports():
        from fmtkit.reports import console as terminal
        from fmtkit.running import replay as replaying
        from fmtkit.running.progress_bar import progress

    with progress("converting", shown=not (quiet or no_progress or json)) as watch:
        report = replaying.replay(quarantine, fix=fix, plugins=plugin or (), watch=watch)
    terminal.print_reports([report], as_json=json, quiet=quiet)
    if report.quarantined:
        rows = counted(report.quarantined, "row")
        say(f"{rows} {'is' if report.quarantined == 1 else 'are'} still bad; see {quarantine}")
        raise typer.Exit(1)
