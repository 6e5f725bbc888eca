"""`fmtkit train` and `fmtkit vllm-serve`: a run, and the server that answers for it."""

from typing import Annotated

import typer

from fmtkit.commands.flags import Json, Set, say


def train(
    config: Annotated[str, typer.Argument(help="YAML of the run; docs/config.md lists its keys.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan; write and start nothing.")
    ] = False,
    prepare: Annotated[
        bool,
        typer.Option("--prepare", help="Write the run folder, print the command, start nothing."),
    ] = False,
    partial: Annotated[
        bool, typer.Option("--partial", help="With --dry-run: guess what a fragment leaves out.")
    ] = False,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="KEY=VALUE over the config's; dotted, lists by index."),
    ] = None,
    num_processes: Annotated[
        int | None, typer.Option(min=1, help="Processes that train together on this machine.")
    ] = None,
    accelerate_config: Annotated[
        str | None, typer.Option(help="single, multi_gpu, fsdp2, zero1, zero2, zero3, or a file.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the run's last checkpoint.")
    ] = False,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Convert the datasets again.")] = False,
    json: Json = False,
) -> None:
    """Train a model as a config says: convert its datasets, launch, save.

    With --dry-run a config that lacks something is planned too, and what it misses is listed.
    """
    from fmtkit import training
    from fmtkit.training.listing import print_outcome

    outcome = training.train(
        config,
        overrides=set_ or (),
        dry_run=dry_run,
        prepare=prepare,
        partial=partial,
        num_processes=num_processes,
        accelerate_config=accelerate_config,
        resume=resume,
        rebuild=rebuild,
        say=lambda note: say(f"note: {note}"),
    )
    print_outcome(outcome, as_json=json, dry_run=dry_run, prepared=prepare)
    raise typer.Exit(outcome.exit_code)


def vllm_serve(
    config: Annotated[str, typer.Argument(help="YAML of the run whose model is served.")],
    flags: Annotated[
        list[str] | None,
        typer.Argument(help="Further flags of `vllm serve`, after --.", show_default=False),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the command; start nothing.")
    ] = False,
    set_: Set = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print the command as JSON; start nothing.")
    ] = False,
) -> None:
    """Serve a config's model with vLLM, as its training needs it.

    Runs in the environment that has vLLM; the trainer waits for it. Docs: docs/vllm.md.
    """
    from fmtkit.training import vllm_serve as serving

    if not (dry_run or json):
        serving.serve(config, set_ or (), flags or (), say=say)
    made = serving.plan(config, set_ or (), flags or ())
    for note in made.notes:
        say(f"note: {note}")
    typer.echo(made.dumps() if json else made.shell)
