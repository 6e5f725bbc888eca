"""Flags that several commands share, and how those of KEY=VALUE are read."""

import sys
from typing import Annotated, Any

import typer

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
Set = Annotated[
    list[str] | None, typer.Option("--set", help="KEY=VALUE over the config's; dotted.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
Config = Annotated[
    str | None, typer.Option("--config", "-c", help="YAML whose datasets are converted.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
NoProgress = Annotated[bool, typer.Option("--no-progress", help="Show no progress bar.")]


def pairs(given: list[str] | None, flag: str) -> dict[str, str]:
    """Return the values of a flag that takes KEY=VALUE."""
    from fmtkit.converting.type_options import parse_pairs

    return parse_pairs(given or [], flag)


def named_columns(given: list[str] | None, text: str | None) -> dict[str, Any]:
    """Return where the columns of a type lie, as --map and --columns say together."""
    from fmtkit.converting.type_options import parse_columns

    return parse_columns(text) | pairs(given, "--map")


def say(text: str) -> None:
    """Tell something beside the results: one line on stderr."""
    from fmtkit.escaping import one_line

    sys.stderr.write(one_line(text) + "\n")
