"""`fmtkit lock` and `fmtkit check`: a dataset's contract in git."""

from typing import Annotated

import typer

from fmtkit.commands.flags import Json, NoProgress, Quiet, Sources, flags, say
from fmtkit.commands.importing import quick_imports
from fmtkit.core.errors import OptionError
from fmtkit.options.inspect_options import InspectOptions

NOT_TAKEN = ("sample", "show_mask", "rows", "loss_budget")
"""Options of `inspect` that only show something."""


@flags(InspectOptions, without=NOT_TAKEN)
def lock(
    source: Sources = None,
    out: Annotated[
        str | None, typer.Option("--out", "-o", help="The lock to write, such as data.lock.")
    ] = None,
    *,
    options: InspectOptions,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite", help="Replace a lock; the budgets in it are kept (docs/lock.md)."
        ),
    ] = False,
    row_digests: Annotated[
        bool,
        typer.Option(
            "--row-digests",
            help="Write the digest of every row beside it, as OUT.rows: 4 bytes each.",
        ),
    ] = False,
    quiet: Quiet = False,
    no_progress: NoProgress = False,
) -> None:
    """Write what a dataset is into a small file for git: sources, settings, counts, and digests of its rows.

    `fmtkit check` compares it later and names what changed. With -c CONFIG: the datasets of a config.
    """
    with quick_imports():
        from fmtkit.locking import listings
        from fmtkit.locking.locking import lock as write_lock
        from fmtkit.running.progress_bar import progress
        from fmtkit.work.engines import session

    if out is None:
        raise OptionError("-o is missing: name the lock to write, such as -o data.lock")
    with session(), progress("locking", shown=not (quiet or no_progress)) as watch:
        found = write_lock(
            source or [], out, options, overwrite=overwrite, row_digests=row_digests, watch=watch
        )
    if not quiet:
        for line in listings.of_lock(found, out):
            say(line)


@flags(InspectOptions, without=(*NOT_TAKEN, "config"))
def check(
    lock: Annotated[str, typer.Argument(help="A lock that `fmtkit lock` wrote.")],
    *,
    data: Annotated[
        list[str] | None,
        typer.Option("--data", help="Read this source instead of those of the lock."),
    ] = None,
    update: Annotated[
        bool,
        typer.Option("--update", help="Write the state of today into the lock; budgets are kept."),
    ] = False,
    options: InspectOptions,
    json: Json = False,
    quiet: Quiet = False,
    no_progress: NoProgress = False,
) -> None:
    """Compare a dataset with its lock: say that all is as it was, or what changed, where and why.

    Options that are given replace those of the lock. Exits 1 where something changed or a budget is exceeded.
    """
    with quick_imports():
        from fmtkit.locking import listings
        from fmtkit.locking.locking import check as check_lock
        from fmtkit.reports.console import print_json
        from fmtkit.running.progress_bar import progress
        from fmtkit.work.engines import session

    with session(), progress("checking", shown=not (quiet or no_progress or json)) as watch:
        found = check_lock(lock, data=data or (), update=update, options=options, watch=watch)
    if json:
        print_json(found.as_dict())
    elif not quiet:
        for line in listings.of_check(found):
            typer.echo(line)
    raise typer.Exit(found.exit_code)
