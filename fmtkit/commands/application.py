"""The commands of `fmtkit.commands` under one name, and how a run of one ends.

Results go to stdout, everything else to stderr. Errors are one line; exit codes are those of the error
classes (fmtkit.core.errors). Nothing heavy is imported before a command runs.
"""

import io
import json
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from itertools import takewhile
from typing import Annotated, Any

import typer

from fmtkit.commands.flags import QuickCommand, QuickGroup, print_version, say
from fmtkit.core.errors import FmtkitError, UnreadFilesWarning, UnusedKernelWarning, WriteError

# typer contains its own copy of click; this is the base class of its errors about flags.
UsageError: Any = typer.BadParameter.__mro__[1]

COMMANDS = {
    "convert": "conversion.convert",
    "validate": "conversion.validate",
    "replay": "conversion.replay",
    "inspect": "inspection.inspect",
    "lock": "locking.lock",
    "check": "locking.check",
    "train": "training.train",
    "report": "training.report",
    "diff": "diffing.diff",
    "compare": "diffing.compare",
    "merge": "training.merge",
    "try": "training.try_run",
    "vllm-serve": "training.vllm_serve",
    "types": "reference.types",
    "schema": "reference.schema",
    "templates": "reference.templates",
}
"""Command -> its module in `fmtkit.commands` and its function there: only the module of the command that runs
is imported.
"""
REWARDS, ENVIRONMENTS = "rewards", "env"
GROUPS = (REWARDS, ENVIRONMENTS)
"""Commands that have commands of their own."""
DATA, TRAINING, REFERENCE = "Data", "Training", "Reference"
PANELS = {
    **dict.fromkeys(("types", "schema", "templates", "env"), REFERENCE),
    **dict.fromkeys(
        ("train", "report", "diff", "compare", "merge", "try", "vllm-serve", REWARDS), TRAINING
    ),
}
"""Command -> its heading in `fmtkit --help`; the others are about data."""
EXAMPLES = {
    "convert": """\
fmtkit convert support_pairs.jsonl --type chatml.intel -o pairs.parquet
fmtkit convert ranked_answers.jsonl -t nectar -O pairs=all -o pairs/ --val-size 0.1
fmtkit convert support_pairs.jsonl -t intel --to openai-preference -o preferences.jsonl""",
    "validate": """\
fmtkit validate colours.jsonl --type intel""",
    "inspect": """\
fmtkit inspect support_pairs.jsonl
fmtkit inspect colours.jsonl -t chatml.intel --tokenizer tokenizer --html colours.html""",
    "lock": """\
fmtkit lock support_pairs.jsonl --type intel -o pairs.lock
fmtkit lock colours.jsonl -t chatml.intel --tokenizer tokenizer --max-length 256 -o colours.lock""",
    "check": """\
fmtkit check pairs.lock
fmtkit check pairs.lock --update""",
    "train": """\
fmtkit train docs/examples/dpo.yaml --dry-run --partial""",
    "report": """\
fmtkit report runs/dpo-demo
fmtkit report runs/dpo-demo runs/ipo-demo -o compared.html""",
    "diff": """\
fmtkit diff dpo.yaml --against trl
fmtkit diff dpo.yaml --against axolotl --allow eos
fmtkit diff dpo.yaml other.yaml --rows 1000""",
    "compare": """\
fmtkit compare axolotl.yaml --against last_run_prepared/HASH""",
    "merge": """\
fmtkit merge runs/dpo-demo
fmtkit merge --adapter adapter --model base -o merged --dtype bfloat16""",
    "try": """\
fmtkit try runs/dpo-demo --prompt 'What colour is snow?'
fmtkit try runs/dpo-demo --data colours.jsonl --limit 10""",
    "vllm-serve": """\
fmtkit vllm-serve grpo.yaml --dry-run
fmtkit vllm-serve grpo.yaml -- --max-model-len 4096""",
    "rewards": """\
fmtkit rewards
fmtkit rewards test grpo.yaml""",
    "replay": """\
fmtkit replay pairs.quarantine.jsonl --fix repair.mend""",
    "types": """\
fmtkit types intel""",
    "schema": """\
fmtkit schema intel --source""",
    "templates": """\
fmtkit templates chatml""",
    "env": """\
fmtkit env""",
}
"""Command -> calls that `--help` shows; tests run them next to the samples of docs/examples."""
AFTERWARDS = frozenset(
    {"check", "report", "diff", "compare", "merge", "try", "vllm-serve", "rewards", "replay"}
)
"""Commands whose examples need what a run, another program or a user has made: tests parse them."""
FIRST = """\
fmtkit inspect FILE    what a file is, what is wrong with it, and the command that converts it
fmtkit COMMAND --help  flags and examples of a command"""
_HELP_NAMES = {"help_option_names": ["-h", "--help"]}


def application(only: str | None = None) -> typer.Typer:
    """Return the commands under one name, or one of them: typer takes 4 ms of CPU to build each."""
    made = typer.Typer(
        name="fmtkit",
        cls=QuickGroup,
        help="Turn any post-training dataset into a trainer's input: convert, validate, inspect, train.",
        no_args_is_help=True,
        add_completion=only is None,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings=_HELP_NAMES,
        epilog=FIRST,
    )
    made.callback()(_whole)
    for name, command in COMMANDS.items():
        if only in (None, name):
            panel, examples = PANELS.get(name, DATA), EXAMPLES.get(name)
            add = made.command(name, cls=QuickCommand, rich_help_panel=panel, epilog=examples)
            add(_imported(command))
    for name, group in ((REWARDS, _rewards), (ENVIRONMENTS, _environments)):
        if only in (None, name):
            made.add_typer(group(), name=name, rich_help_panel=PANELS[name])
    return made


def _imported(command: str) -> Callable[..., None]:
    module, _, function = command.partition(".")
    found: Callable[..., None] = getattr(import_module(f"fmtkit.commands.{module}"), function)
    return found


def _whole(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", is_eager=True, callback=print_version),
    ] = False,
) -> None:
    """The group of all commands, which makes a single command need its name."""


def _rewards() -> typer.Typer:
    made = _group(REWARDS, "List the library's rewards, or try reward functions.")
    made.callback()(_imported("rewards.list_rewards"))
    made.command("test", cls=QuickCommand, epilog="fmtkit rewards test grpo.yaml --n 4")(
        _imported("rewards.try_rewards")
    )
    return made


def _environments() -> typer.Typer:
    made = _group(
        ENVIRONMENTS,
        "Print what is installed here, or make environments of other trainers for diff.",
    )
    made.callback()(_imported("environments.show"))
    for name, function in (
        ("create", "create"),
        ("list", "list_environments"),
        ("remove", "remove"),
    ):
        example = f"fmtkit env {name}{'' if name == 'list' else ' axolotl'}"
        made.command(name, cls=QuickCommand, epilog=example)(_imported(f"environments.{function}"))
    return made


def _group(name: str, about: str) -> typer.Typer:
    return typer.Typer(
        cls=QuickGroup,
        help=about,
        epilog=EXAMPLES[name],
        invoke_without_command=True,
        context_settings=_HELP_NAMES,
    )


_show_other = warnings.showwarning


def _show_warning(
    message: Warning | str, category: type[Warning], *where: Any, **more: Any
) -> None:
    """Show a warning of fmtkit as one line, without the line of code that it comes from."""
    if category is UnusedKernelWarning:
        say(f"fmtkit: {message}")
    elif issubclass(category, UnreadFilesWarning):
        say(f"note: {message}")
    else:
        _show_other(message, category, *where, **more)


class _Output(io.FileIO):
    """Standard output or error: what cannot be written ends a command in one line, a closed pipe does not.

    After a closed pipe (`fmtkit types | head`) the rest is discarded: a conversion goes on and writes its
    file. Of standard error it is always discarded, since nothing could tell of it.
    """

    discards = False
    """Whether every error discards the rest."""

    def write(self, data: Any) -> int:
        """Write; discard the rest of the output after an error."""
        if not memoryview(data).nbytes:
            # A probe of click's, which passes over the error that a full device has even for nothing.
            return 0
        try:
            return super().write(data)
        except OSError as error:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            if self.discards or isinstance(error, BrokenPipeError):
                return memoryview(data).nbytes
            raise WriteError(f"the standard output cannot be written: {error.strerror}") from error


def _guarded(stream: Any) -> Any:
    """Wrap stdout or stderr, so that it raises the errors of `_Output`.

    Without it a full disk is a traceback; after a closed pipe typer exits with 1, and Python prints an
    error if it is noticed at exit.
    """
    # Buffered, or not with PYTHONUNBUFFERED; in tests the stream is in memory.
    is_file = isinstance(getattr(stream, "buffer", None), io.BufferedWriter | io.FileIO)
    if not is_file or stream.isatty():
        return stream
    stream.flush()
    output = _Output(stream.fileno(), "wb", closefd=False)
    output.discards = stream is sys.stderr
    return io.TextIOWrapper(
        output if isinstance(stream.buffer, io.FileIO) else io.BufferedWriter(output),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def _say_as_json(kind: str, messages: Sequence[str], code: int) -> None:
    """Print an error on stdout too with --json: the command has printed nothing else there."""
    own = list(takewhile(lambda word: word != "--", sys.argv[1:]))
    if "--json" not in own or sys.stdout is None:
        return
    error = {"type": kind, "messages": list(messages), "exit_code": code}
    sys.stdout.write(f"{json.dumps({'error': error}, ensure_ascii=False)}\n")
    sys.stdout.flush()


def run() -> None:
    """Run the command line; every expected error is one line on stderr and an exit code."""
    warnings.showwarning = _show_warning
    sys.stdout, sys.stderr = map(_guarded, (sys.stdout, sys.stderr))
    for stream in (sys.stdout, sys.stderr):
        # A terminal that is not UTF-8 gets escapes, no traceback.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    # polars gets a thread for each core: more only contend with fmtkit's own (two cores: 8 % slower).
    os.environ.setdefault("POLARS_MAX_THREADS", str(os.cpu_count() or 1))
    try:
        asked = next(iter(sys.argv[1:]), None)
        command = application(asked if asked in {*COMMANDS, *GROUPS} else None)
        code = command(prog_name="fmtkit", standalone_mode=False) or 0
        if sys.stdout is not None:
            sys.stdout.flush()
        sys.exit(code)
    except UsageError as error:
        error.show()
        _say_as_json("UsageError", [error.format_message()], error.exit_code)
        sys.exit(error.exit_code)
    except FmtkitError as error:
        first, *more = error.shown
        for line in (f"fmtkit: {first}", *more):
            say(line)
        _say_as_json(type(error).__name__, error.lines, error.exit_code)
        sys.exit(error.exit_code)
    except typer.Abort as stop:
        raise KeyboardInterrupt from stop
