"""`fmtkit train`, `report`, `merge`, `try`, `vllm-serve`: training, and what belongs to it."""

from pathlib import Path
from typing import Annotated

import typer

from fmtkit.commands.flags import Json, Set, flags, say
from fmtkit.core.errors import OptionError
from fmtkit.options.train_options import MergeOptions, TrainOptions, TryOptions


@flags(TrainOptions)
def train(
    config: Annotated[
        str | None,
        typer.Argument(help="YAML of the run; docs/config.md lists its keys.", show_default=False),
    ] = None,
    *,
    options: TrainOptions,
    config_option: Annotated[
        str | None,
        typer.Option(
            "--config",
            "-c",
            help="Same as CONFIG; the flag of convert and inspect.",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Train a model as a config says: convert its datasets, launch, save.

    With --dry-run a config that lacks something is planned too, and what it misses is listed; a folder's
    configs are planned with one line each, and the exit code is 2 where one does not plan.
    """
    from fmtkit import training
    from fmtkit.commands import run_listings
    from fmtkit.running.progress_bar import progress

    if (config is None) == (config_option is None):
        raise OptionError("give one CONFIG.yaml: fmtkit train CONFIG, or fmtkit train -c CONFIG")
    named = config if config is not None else str(config_option)
    if options.dry_run and Path(named).is_dir():
        raise typer.Exit(run_listings.print_folder(Path(named), options.given(), as_json=json))
    outcome = training.train(
        named,
        say=lambda note: say(f"note: {note}"),
        watching=lambda what: progress(what, shown=True),
        **options.given(),
    )
    run_listings.print_outcome(
        outcome, as_json=json, dry_run=options.dry_run, prepared=options.prepare
    )
    if outcome.report is not None and not json:
        run_listings.print_end(outcome, outcome.report)
    raise typer.Exit(outcome.exit_code)


def report(
    runs: Annotated[
        list[str], typer.Argument(help="Folder of a run, finished or not; or of two runs.")
    ],
    *,
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            "-o",
            help="Page to write; default: report.html, or compared.html in the second run.",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Say whether a run learned, and write its page; of two runs one page, beside each other.

    A run that was stopped, or is still going, has a page of what it logged.
    """
    from fmtkit.reports.console import print_json
    from fmtkit.training.run import run_page

    page, verdicts = run_page.write_report([Path(run) for run in runs], Path(out) if out else None)
    if json:
        print_json(
            {
                "page": str(page),
                "runs": [{"run": r, **v.as_dict()} for r, v in zip(runs, verdicts, strict=True)],
            }
        )
        return
    for run, verdict in zip(runs, verdicts, strict=True):
        say(f"{run}: {verdict.text}")
        for advice in verdict.advice:
            say(f"  {advice}")
    typer.echo(page)


@flags(MergeOptions)
def merge(
    run: Annotated[
        str | None, typer.Argument(help="Folder of a finished run.", show_default=False)
    ] = None,
    *,
    options: MergeOptions,
    json: Json = False,
) -> None:
    """Merge the adapter of a run into its base model, and print the folder of the result.

    With --adapter DIR any adapter of peft. The base model is loaded in full precision.
    """
    from fmtkit.reports.console import print_json
    from fmtkit.training.trained.merging import merge as merge_run

    merged = merge_run(run, **options.given())
    for note in merged.notes:
        say(f"note: {note}")
    if json:
        print_json(merged.as_dict())
    else:
        typer.echo(merged.folder)


@flags(TryOptions)
def try_run(
    run: Annotated[str, typer.Argument(help="Folder of a run, finished or not.")],
    *,
    options: TryOptions,
    json: Json = False,
) -> None:
    """Compare a trained model with its base: answers to prompts, scores of pairs, replies and steps.

    Without --prompt and --data each line on stdin is a prompt.
    """
    import sys
    from dataclasses import replace

    from fmtkit.commands import run_listings
    from fmtkit.training.trained import trying

    if not options.prompt and options.data is None:
        if sys.stdin.isatty():
            raise OptionError("give --prompt TEXT, --data FILE, or lines on stdin")
        lines = sys.stdin.read().splitlines()
        options = replace(options, prompt=tuple(line for line in lines if line.strip()))
        if not options.prompt:
            raise OptionError(
                "no line on stdin; give --prompt TEXT, --data FILE, or lines on stdin"
            )
    trial = trying.try_run(run, options)
    for note in trial.notes:
        say(f"note: {note}")
    run_listings.print_trial(trial, as_json=json)


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
    from fmtkit.training.vllm import serve as serving

    if not (dry_run or json):
        serving.serve(config, set_ or (), flags or (), say=say)
    made = serving.plan(config, set_ or (), flags or ())
    for note in made.notes:
        say(f"note: {note}")
    typer.echo(made.dumps() if json else made.shell)
