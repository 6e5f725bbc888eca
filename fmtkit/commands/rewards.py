"""`fmtkit rewards`: the library's rewards, and reward functions tried on a run's rows."""

from typing import Annotated

import typer

from fmtkit.commands.flags import Json, Set


def list_rewards(context: typer.Context, json: Json = False) -> None:
    """List the library's rewards with their options; `fmtkit rewards test` tries functions.

    They need no model and no service; trl.reward_funcs takes them by these names.
    """
    if context.invoked_subcommand is not None:
        return
    from fmtkit.commands import reward_listings

    reward_listings.print_library(as_json=json)


def try_rewards(
    config: Annotated[str, typer.Argument(help="YAML of the run whose reward functions are run.")],
    n: Annotated[int, typer.Option("--n", min=1, help="First rows of each dataset.")] = 8,
    completions: Annotated[
        str | None,
        typer.Option(help='JSON lines with completions: {"completion": TEXT, "row": N}.'),
    ] = None,
    set_: Set = None,
    json: Json = False,
) -> None:
    """Run a config's reward functions on its rows, without a model or a GPU.

    The completions are the reference of a row (where it has one), an empty text, and its own question.
    Exits 1 if a function ends with an error, or there is no reward at all.
    """
    from fmtkit.commands import reward_listings
    from fmtkit.training.online.rewards import trial

    outcome = trial.run(config, rows=n, completions=completions, overrides=set_ or ())
    reward_listings.print_trial(outcome, as_json=json)
    raise typer.Exit(outcome.exit_code)
