"""`fmtkit inspect`: what sources hold, before a run."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

import typer

from fmtkit.commands import asking
from fmtkit.commands.flags import Ask, FailOn, Json, NoProgress, Quiet, Sources, flags, say
from fmtkit.commands.importing import quick_imports
from fmtkit.core.errors import OptionError
from fmtkit.options.inspect_options import InspectOptions


@flags(InspectOptions)
def inspect(
    source: Sources = None,
    *,
    options: InspectOptions,
    html: Annotated[str | None, typer.Option(help="Write a page: FILE.html.")] = None,
    plot: Annotated[
        str | None, typer.Option(help="Write the histograms: FILE.png or FILE.svg.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a page or picture that fmtkit wrote.")
    ] = False,
    serve: Annotated[
        bool,
        typer.Option(
            "--serve", help="Show the rows on a local page that reads them when they are asked for."
        ),
    ] = False,
    port: Annotated[
        int | None, typer.Option(help="Port of --serve; without it a free one.", min=0, max=65535)
    ] = None,
    open_: Annotated[
        bool,
        typer.Option(
            "--open/--no-open", help="Open the page of --serve in the browser.", show_default=False
        ),
    ] = True,
    ask: Ask = None,
    fail_on: FailOn = None,
    all_: Annotated[
        bool,
        typer.Option(
            "--all", help="Print the complete survey instead of a summary that fits a screen."
        ),
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
    no_progress: NoProgress = False,
) -> None:
    """Show what sources hold, before a run.

    Prints types that fit, token lengths, what a maximum length cuts, which tokens are trained, and findings.
    """
    with quick_imports():
        from fmtkit.reports.survey_outputs import show, show_all
        from fmtkit.running.progress_bar import progress
        from fmtkit.work.engines import session

    outputs: dict[str, Any] = {
        "html": html,
        "plot": plot,
        "overwrite": overwrite,
        "as_json": json,
        "quiet": quiet,
        "whole": all_,
    }
    codes = tuple(fail_on or ())
    answer = None
    if ask and options.type is None and options.config is None and not (quiet or json):
        answer = asking.ask(source or [], options) if asking.may_ask(ask, source or ()) else None
    if answer is not None:
        told = {n: v for n, v in answer.options.items() if n in options.declared()}
        options = replace(options, **told)
    if serve:
        beside = {"--html": html, "--plot": plot, "--json": json, "--fail-on": codes, "--all": all_}
        _serve(source or [], options, port, beside, open_=open_)
        return
    if port is not None:
        raise OptionError("--port is that of --serve, which is not given")
    bar = not (quiet or no_progress or json)
    # A cluster that the inspection starts is kept until the rows of its page are read.
    with session():
        if options.config is None:
            found = show(source or [], options, fail_on=codes, bar=bar, **outputs)
        else:
            from fmtkit.training.data.inspect_config import inspect_config

            with progress("inspecting", shown=bar) as watch:
                inspected = inspect_config(options.config, source or [], options, watch)
            found = show_all(inspected, fail_on=codes, **outputs)
    if not (quiet or json):
        for file in filter(None, (html, plot)):
            say(f"wrote  {file}")
    if answer is not None:
        asking.tell(answer)
    raise typer.Exit(1 if found else 0)


def _serve(
    source: list[str],
    options: InspectOptions,
    port: int | None,
    beside: Mapping[str, object],
    *,
    open_: bool,
) -> None:
    """Serve the rows until Ctrl-C; `beside` are flags of a survey, which is not made."""
    with quick_imports():
        from fmtkit.browsing.serving import serve

    given = [flag for flag, value in beside.items() if value]
    if given:
        raise OptionError(f"--serve shows rows and makes no survey: leave {given[0]} out")
    if options.config is not None:
        raise OptionError(
            "--serve shows the rows of sources, without -c: give the dataset's file, --type and --tokenizer"
        )
    serve(source, options, port, opens=open_, say=say)
