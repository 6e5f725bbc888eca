"""The command line: the commands of `fmtkit.commands` under one name, and how a run of one ends.

Results go to stdout, everything else to stderr. Errors are one line; exit codes are those of the error
classes (fmtkit.errors). Nothing heavy is imported before a command runs.
"""

import os
import sys
from typing import Any

import typer

from fmtkit.commands import conversion, inspection, reference, rewards, training
from fmtkit.commands.flags import say
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

app.command()(conversion.convert)
app.command()(conversion.validate)
app.command()(inspection.inspect)
app.command()(training.train)
app.command("vllm-serve")(training.vllm_serve)
app.command()(reference.types)
app.command()(reference.schema)
app.command()(reference.templates)
app.command()(reference.env)

rewards_app = typer.Typer(
    help="List the library's rewards, or try reward functions.",
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(rewards_app, name="rewards")
rewards_app.callback()(rewards.list_rewards)
rewards_app.command("test")(rewards.try_rewards)


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
        first, *more = error.lines
        for line in (f"fmtkit: {first}", *more):
            say(line)
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        say("fmtkit: interrupted")
        sys.exit(130)
    except BrokenPipeError:
        # Whoever read our output has seen enough: `fmtkit types | head`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
