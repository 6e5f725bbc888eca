"""`fmtkit inspect`: what sources hold, before a run."""

from typing import Annotated

import typer

from fmtkit.commands.flags import (
    ChatTemplate,
    Columns,
    Json,
    Limit,
    Map,
    Method,
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


def inspect(
    source: Sources = None,
    type: Type = None,
    tokenizer: Tokenizer = None,
    chat_template: ChatTemplate = None,
    method: Method = None,
    map_: Map = None,
    columns: Columns = None,
    option: Option = None,
    max_length: Annotated[
        list[int] | None, typer.Option(min=1, help="Report what this length cuts.")
    ] = None,
    loss_budget: Annotated[
        str, typer.Option(help="Rows that a length may lose: P% or a share.")
    ] = "1%",
    sample: Annotated[int | None, typer.Option(min=1, help="Lengths of about N rows only.")] = None,
    show_mask: Annotated[
        int, typer.Option(min=0, help="Show the first N rows with their masks.")
    ] = 0,
    row: Annotated[list[int] | None, typer.Option(min=0, help="Show row K (0-based).")] = None,
    assistant_only: Annotated[
        bool, typer.Option("--assistant-only", help="Masks of TRL's assistant_only_loss.")
    ] = False,
    train_on_inputs: Annotated[
        bool, typer.Option("--train-on-inputs", help="Masks of runs that learn the prompts too.")
    ] = False,
    ebft: Annotated[
        list[str] | None,
        typer.Option(help="KEY=VALUE of a config's ebft: stride, context_length, ..."),
    ] = None,
    html: Annotated[str | None, typer.Option(help="Write a page: FILE.html.")] = None,
    plot: Annotated[
        str | None, typer.Option(help="Write the histograms: FILE.png or FILE.svg.")
    ] = None,
    fail_on: Annotated[
        list[str] | None, typer.Option(help="Exit 1 if this code was found.")
    ] = None,
    limit: Limit = None,
    workers: Workers = None,
    plugin: Plugin = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show what sources hold, before a run.

    What they are, how long their rows, what a length cuts, what is trained, and what looks wrong.
    """
    with quick_imports():
        from fmtkit.reports.faces import show
        from fmtkit.surveying.inspect_options import InspectOptions, parse_share

    settings = InspectOptions(
        type=type,
        tokenizer=tokenizer,
        chat_template=chat_template,
        method=method,
        columns=named_columns(map_, columns),
        options=pairs(option, "--option"),
        max_length=tuple(max_length or ()),
        loss_budget=parse_share(loss_budget),
        sample=sample,
        show_mask=show_mask,
        rows=tuple(row or ()),
        assistant_only=assistant_only,
        train_on_inputs=train_on_inputs,
        ebft=pairs(ebft, "--ebft"),
        limit=limit,
        workers=workers,
        plugins=tuple(plugin or ()),
    )
    found = show(
        source or [],
        settings,
        html=html,
        plot=plot,
        fail_on=tuple(fail_on or ()),
        as_json=json,
        quiet=quiet,
    )
    raise typer.Exit(1 if found else 0)
