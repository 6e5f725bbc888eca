"""`fmtkit diff` and `fmtkit compare`: whether two trainers train on the same tokens."""

from typing import Annotated

import typer

from fmtkit.commands.flags import Json, flags, say
from fmtkit.core.escaping import counted
from fmtkit.options.diff_options import CompareOptions, DiffOptions


@flags(DiffOptions)
def diff(
    config: Annotated[str, typer.Argument(help="Training config; one of axolotl works too.")],
    other: Annotated[
        str | None, typer.Argument(help="A second config to compare with.", show_default=False)
    ] = None,
    *,
    options: DiffOptions,
    json: Json = False,
) -> None:
    """Show whether another trainer, config or version trains on the same tokens, and if not, what differs.

    The other trainer's own preparation runs in its own environment (`fmtkit env create NAME`), without
    weights. Exits 1 where a row differs or is on one side only, unless its rule is allowed.
    """
    from fmtkit.commands import diff_listings
    from fmtkit.diffing.diffing import diff as diff_rows

    found = diff_rows(config, other, options)
    if options.is_record_alone and other is None and not json:
        rows = counted(found.rows["left"], "row")
        say(f"wrote  {options.record}: {rows} as {found.left.name} trains on them")
        raise typer.Exit
    diff_listings.print_diff(found, as_json=json)
    raise typer.Exit(found.exit_code)


@flags(CompareOptions)
def compare(
    config: Annotated[str, typer.Argument(help="Training config; one of axolotl works too.")],
    *,
    against: Annotated[
        str,
        typer.Option("--against", help="A dataset that axolotl prepared: last_run_prepared/HASH."),
    ],
    options: CompareOptions,
    json: Json = False,
) -> None:
    """Show where a dataset that axolotl prepared differs from what fmtkit trains on: `diff` with a folder.

    Rows are aligned by content, whatever their order. Exits 1 where a row differs or is on one side only.
    """
    from fmtkit.commands import diff_listings
    from fmtkit.diffing.diffing import compare as compare_rows

    found = compare_rows(config, against, rows=options.rows, overrides=options.overrides)
    diff_listings.print_diff(found, as_json=json)
    raise typer.Exit(found.exit_code)
