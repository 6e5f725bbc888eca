"""`fmtkit env`: what is installed here, and environments of trainers for `fmtkit diff`."""

from typing import Annotated

import typer

from fmtkit.commands.flags import Json, say

Folder = Annotated[
    str | None,
    typer.Option(
        "--folder",
        help="The folder of environments; default: FMTKIT_ENVS, or the user's cache.",
        show_default=False,
    ),
]


def show(context: typer.Context, json: Json = False) -> None:
    """Print versions, devices and the state of the native kernel, to paste in a bug report.

    `create`, `list` and `remove` are about the environments of other trainers, for `fmtkit diff`.
    """
    if context.invoked_subcommand is not None:
        return
    from fmtkit.commands import environment, listings

    listings.print_environment(environment.describe(), as_json=json)


def create(
    name: Annotated[
        str,
        typer.Argument(help="trl, axolotl or llama-factory; NAME==VERSION for another version."),
    ],
    folder: Folder = None,
    json: Json = False,
) -> None:
    """Make the environment of a trainer: pinned packages from the registry, in a venv of its own.

    One that is not complete is never used. Prints what was downloaded, what it takes on disk, and the time.
    """
    from fmtkit.commands import environment_listings
    from fmtkit.diffing import environments

    made = environments.create(name, folder, say=say)
    environment_listings.print_environments([made], as_json=json)


def list_environments(folder: Folder = None, json: Json = False) -> None:
    """List the environments that are there, and the trainers that one can be made for."""
    from fmtkit.commands import environment_listings
    from fmtkit.diffing import environments

    found = environments.list_environments(folder)
    environment_listings.print_environments(
        found, as_json=json, trainers=environments.table(), folder=environments.folder_of(folder)
    )


def remove(
    name: Annotated[str, typer.Argument(help="A trainer; NAME==VERSION for that version alone.")],
    folder: Folder = None,
) -> None:
    """Remove the environments of a trainer."""
    from fmtkit.diffing import environments

    for one in environments.remove(name, folder):
        say(f"removed {one.folder}")
