"""The command line: each command parses, calls one function of the library and prints.

Results go to stdout, everything else to stderr. Errors are one line; exit codes are those of the error
classes (fmtkit.errors). Nothing heavy is imported before a command runs.
"""

import os
import sys
from typing import Annotated, Any

import typer

from fmtkit.errors import FmtkitError

# typer brings a click of its own; this is the base of every complaint about flags.
UsageError: Any = typer.BadParameter.__mro__[1]

app = typer.Typer(
    name="fmtkit",
    help="Turn any post-training dataset into a trainer's input: convert, validate, inspect, train.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Sources = Annotated[
    list[str] | None,
    typer.Argument(
        help="Files, globs, folders, - for JSON lines on stdin, hf://datasets/ORG/NAME.",
        show_default=False,
    ),
]
Type = Annotated[
    str | None, typer.Option("--type", "-t", help="TEMPLATE.SOURCE, for example chatml.intel.")
]
Method = Annotated[
    str | None, typer.Option(help="Training method; decides where type and columns do not.")
]
Map = Annotated[
    list[str] | None, typer.Option("--map", help="COLUMN=PATH: the source's own name of a column.")
]
Columns = Annotated[str | None, typer.Option(help='The same as JSON: {"question": "meta.q"}.')]
Option = Annotated[
    list[str] | None, typer.Option("--option", "-O", help="KEY=VALUE: an option of the type.")
]
Tokenizer = Annotated[str | None, typer.Option(help="Folder or hub id of a tokenizer.")]
ChatTemplate = Annotated[str | None, typer.Option(help="Name, FILE.jinja or tokenizer_default.")]
Plugin = Annotated[list[str] | None, typer.Option(help="Python file with converters or functions.")]
Limit = Annotated[int | None, typer.Option(min=1, help="Read the first N rows only.")]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Threads; the output is the same for any number.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
Config = Annotated[
    str | None, typer.Option("--config", "-c", help="YAML whose datasets are converted.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
NoProgress = Annotated[bool, typer.Option("--no-progress", help="Show no progress bar.")]


@app.command()
def convert(
    source: Sources = None,
    out: Annotated[
        str, typer.Option("--out", "-o", help="FILE.parquet, .jsonl, .arrow, or a folder.")
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
        bool, typer.Option("--overwrite", help="Replace an output of ours.")
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
        columns=_columns(map_, columns),
        options=_pairs(option, "--option"),
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


@app.command()
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
    from fmtkit import terminal
    from fmtkit.converting.convert_options import ConvertOptions
    from fmtkit.converting.validation import validate_sources

    settings = ConvertOptions(
        type=type,
        method=method,
        chat_template=chat_template,
        tokenizer=tokenizer,
        columns=_columns(map_, columns),
        options=_pairs(option, "--option"),
        max_errors=max_errors,
        limit=limit,
        workers=workers,
        plugins=tuple(plugin or ()),
    )
    findings = validate_sources(source or [], settings, schema=schema)
    terminal.print_findings(findings, as_json=json, quiet=quiet)
    raise typer.Exit(findings.exit_code)


@app.command()
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
    from fmtkit.reports.faces import show
    from fmtkit.surveying.inspect_options import InspectOptions, parse_share

    settings = InspectOptions(
        type=type,
        tokenizer=tokenizer,
        chat_template=chat_template,
        method=method,
        columns=_columns(map_, columns),
        options=_pairs(option, "--option"),
        max_length=tuple(max_length or ()),
        loss_budget=parse_share(loss_budget),
        sample=sample,
        show_mask=show_mask,
        rows=tuple(row or ()),
        assistant_only=assistant_only,
        train_on_inputs=train_on_inputs,
        ebft=_pairs(ebft, "--ebft"),
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


@app.command()
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
        say=lambda note: _say(f"note: {note}"),
    )
    print_outcome(outcome, as_json=json, dry_run=dry_run, prepared=prepare)
    raise typer.Exit(outcome.exit_code)


@app.command("vllm-serve")
def vllm_serve(
    config: Annotated[str, typer.Argument(help="YAML of the run whose model is served.")],
    flags: Annotated[
        list[str] | None,
        typer.Argument(help="Further flags of `vllm serve`, after --.", show_default=False),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the command; start nothing.")
    ] = False,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="KEY=VALUE over the config's; dotted.")
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print the command as JSON; start nothing.")
    ] = False,
) -> None:
    """Serve a config's model with vLLM, as its training needs it.

    Runs in the environment that has vLLM; the trainer waits for it. Docs: docs/vllm.md.
    """
    from fmtkit.training import vllm_serve as serving

    if not (dry_run or json):
        serving.serve(config, set_ or (), flags or (), say=_say)
    made = serving.plan(config, set_ or (), flags or ())
    for note in made.notes:
        _say(f"note: {note}")
    typer.echo(made.dumps() if json else made.shell)


rewards = typer.Typer(
    help="List the library's rewards, or try reward functions.",
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(rewards, name="rewards")


@rewards.callback()
def list_rewards(context: typer.Context, json: Json = False) -> None:
    """List the library's rewards with their options; `fmtkit rewards test` tries functions.

    They need no model and no service; trl.reward_funcs takes them by these names.
    """
    if context.invoked_subcommand is not None:
        return
    from fmtkit import reward_listings

    reward_listings.print_library(as_json=json)


@rewards.command("test")
def try_rewards(
    config: Annotated[str, typer.Argument(help="YAML of the run whose reward functions are run.")],
    n: Annotated[int, typer.Option("--n", min=1, help="First rows of each dataset.")] = 8,
    completions: Annotated[
        str | None,
        typer.Option(help='JSON lines with completions: {"completion": TEXT, "row": N}.'),
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="KEY=VALUE over the config's; dotted.")
    ] = None,
    json: Json = False,
) -> None:
    """Run a config's reward functions on its rows, without a model or a GPU.

    Each row is answered by its reference (where it has one), by nothing and by its own question.
    Exits 1 if a function ends with an error, or there is no reward at all.
    """
    from fmtkit import reward_listings
    from fmtkit.training.rl.rewards import trial

    outcome = trial.run(config, rows=n, completions=completions, overrides=set_ or ())
    reward_listings.print_trial(outcome, as_json=json)
    raise typer.Exit(outcome.exit_code)


@app.command()
def types(
    name: Annotated[str | None, typer.Argument(help="A type; all of them without.")] = None,
    plugin: Plugin = None,
    json: Json = False,
) -> None:
    """List the types: columns, table, options."""
    from fmtkit import catalogue, listings

    listings.print_types(catalogue.types(name, plugins=plugin or ()), name, as_json=json)


@app.command()
def schema(
    name: Annotated[
        str, typer.Argument(help="A type, a table, report, quarantine, manifest, survey, config.")
    ],
) -> None:
    """Print a JSON Schema."""
    from fmtkit import catalogue, terminal

    terminal.print_json(catalogue.schema(name))


@app.command()
def templates(
    name: Annotated[str | None, typer.Argument(help="A template; all of them without.")] = None,
    json: Json = False,
) -> None:
    """List the templates, or print one."""
    from fmtkit import catalogue, listings

    listings.print_templates(catalogue.templates(name), name, as_json=json)


@app.command()
def env(json: Json = False) -> None:
    """Print versions and devices, to paste in a bug report."""
    from fmtkit import environment, listings

    listings.print_environment(environment.describe(), as_json=json)


def _pairs(pairs: list[str] | None, flag: str) -> dict[str, str]:
    from fmtkit.converting.type_options import parse_pairs

    return parse_pairs(pairs or [], flag)


def _columns(pairs: list[str] | None, text: str | None) -> dict[str, Any]:
    from fmtkit.converting.type_options import parse_columns

    return parse_columns(text) | _pairs(pairs, "--map")


def main() -> None:
    """Run the command line; every expected error is one line on stderr and an exit code."""
    # One pool of polars beside our own threads: more only contend (two cores: 8 % slower).
    os.environ.setdefault("POLARS_MAX_THREADS", str(os.cpu_count() or 1))
    try:
        sys.exit(app(standalone_mode=False) or 0)
    except UsageError as error:
        error.show()
        sys.exit(error.exit_code)
    except FmtkitError as error:
        _say(f"fmtkit: {error}")
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        _say("fmtkit: interrupted")
        sys.exit(130)
    except BrokenPipeError:
        # Whoever read our output has seen enough: `fmtkit types | head`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


def _say(text: str) -> None:
    from fmtkit.escaping import one_line

    sys.stderr.write(one_line(text) + "\n")
