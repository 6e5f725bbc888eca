"""Command line flags, derived from the options of commands, and the few flags that only change output."""

import sys
import warnings
from collections.abc import Callable, Sequence
from functools import wraps
from inspect import Parameter, signature
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from fmtkit.core.errors import OptionError, UnreadFilesWarning
from fmtkit.core.options import PAIRS, Option, Options, default_of, flag_of, refuse_empty

Sources = Annotated[
    list[str] | None,
    typer.Argument(
        help="Files, globs, folders, - for JSON lines on stdin, hf://datasets/ORG/NAME.",
        show_default=False,
    ),
]
Plugin = Annotated[list[str] | None, typer.Option(help="Python file with converters or functions.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="KEY=VALUE that overrides the config; dotted keys."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
Ask = Annotated[
    bool | None,
    typer.Option(
        "--ask/--no-ask",
        help="Without a type: ask on the terminal how the rows are read.",
        show_default=False,
    ),
]
FailOn = Annotated[list[str] | None, typer.Option(help="Exit 1 if this code was found.")]
NoProgress = Annotated[
    bool, typer.Option("--no-progress", help="Show no progress: no bar, and no lines in a log.")
]
INTERRUPTED = 130
"""The exit code of a command that was stopped by Ctrl-C."""
_JSON = "_as_json"
_CONTEXT = "context"
_PLACES = {"source", "out"}
"""Parameters of commands that say what is read and where it is written."""
_CHOICES_WIDTH = 24
"""Choices that take more characters are listed only in the help text, not next to the flag."""
_OTHER_PANEL = "Output and help"
"""The panel of the flags that no options class declares."""
_METAVARS = {"list[str]": "TEXT", "list[int]": "N", "str": "TEXT", "int": "N"}


class QuickCommand(TyperCommand):
    """A command that uses strings as they were typed, without validation by pydantic.

    typer imports pydantic to validate every argument, which costs 0.09 s of CPU at each start. Only
    values that are neither strings nor plain integers are still validated that way.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        _skip_validation(self.get_params(ctx))
        rest = super().parse_args(ctx, args)
        _refuse_empty(self.get_params(ctx), ctx)
        return rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command; after Ctrl-C, where typer prints nothing, print what the command left behind."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            say("; ".join(["fmtkit: interrupted", *getattr(stop, "__notes__", ())]))
            raise typer.Exit(INTERRUPTED) from stop

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """List arguments, then flags by panel: those of options classes first, then the output flags."""
        _write_panels(self.get_params(ctx), ctx, formatter)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """Write the examples, one command per line."""
        _write_examples(self.epilog, formatter)


INSTEAD = {"chat": "`fmtkit try RUN` answers each line that you type or pipe to it"}
"""Command that others have -> what there is instead."""


class QuickGroup(TyperGroup):
    """A group of commands whose own flags are parsed like those of a `QuickCommand`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        _skip_validation(self.get_params(ctx))
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find a command; one that is here by another name, or a method, is answered with fmtkit's."""
        if args and self.get_command(ctx, args[0]) is None:
            from fmtkit.commands import trl_words
            from fmtkit.core import runner

            if args[0] in INSTEAD:
                ctx.fail(f"No such command '{args[0]}': {INSTEAD[args[0]]}")
            # `trl dpo ...` with fmtkit's name before it, or in place of its own.
            words = args[1:] if args[0] == "trl" else args
            if words and words[0] in runner.shipped_names():
                ctx.fail(f"No such command '{args[0]}'; {trl_words.answer(words)}")
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """List the commands by panel, then the flags."""
        panels: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                panel = getattr(command, "rich_help_panel", None) or "Commands"
                panels.setdefault(panel, []).append((name, command.get_short_help_str(200)))
        for panel, records in panels.items():
            with formatter.section(panel):
                formatter.write_dl(records)
        _write_panels(self.get_params(ctx), ctx, formatter)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """Write the examples, one command per line."""
        _write_examples(self.epilog, formatter)


def _write_panels(parameters: Sequence[Any], ctx: Any, formatter: Any) -> None:
    panels: dict[str, list[tuple[str, str]]] = {}
    for parameter in parameters:
        record = parameter.get_help_record(ctx)
        if record is None:
            continue
        is_argument = parameter.param_type_name == "argument"
        named = getattr(parameter, "rich_help_panel", None)
        panel = "Arguments" if is_argument else named or _OTHER_PANEL
        panels.setdefault(panel, []).append((_with_metavars(record[0]), record[1]))
    if _OTHER_PANEL in panels:
        panels[_OTHER_PANEL] = panels.pop(_OTHER_PANEL)
    for panel, records in panels.items():
        with formatter.section(panel):
            formatter.write_dl(records)


def _with_metavars(usage: str) -> str:
    """Replace typer's names of types, such as <list[str]>, by metavars."""
    for kind, metavar in _METAVARS.items():
        usage = usage.replace(f"<{kind}>", metavar)
    return usage


def _write_examples(text: str | None, formatter: Any) -> None:
    if text:
        with formatter.section("Examples" if text.startswith("fmtkit ") else ""):
            for line in text.splitlines():
                formatter.write(f"{'':>{formatter.current_indent}}{line}\n")


def _refuse_empty(parameters: Sequence[Any], ctx: Any) -> None:
    """Raise OptionError for an argument or flag with an empty value, such as "$UNSET"."""
    for parameter in parameters:
        value = ctx.params.get(parameter.name)
        if _is_typed(ctx, parameter.name):
            is_argument = parameter.param_type_name == "argument"
            name = parameter.name.upper() if is_argument else max(parameter.opts, key=len)
            for one in value if isinstance(value, list | tuple) else [value]:
                refuse_empty(one, name)


def _skip_validation(parameters: Sequence[Any]) -> None:
    for parameter in parameters:
        checked = getattr(parameter, "get_runtime_param", None)  # an older typer needs no pydantic
        if checked and not isinstance(checked, _Unvalidated):
            parameter.get_runtime_param = _Unvalidated(checked)


class _Unvalidated:
    """Replaces typer's validation: returns missing values, strings and integers, and passes on the rest."""

    def __init__(self, checked: Callable[[], Any]) -> None:
        self.checked = checked

    def __call__(self) -> "_Unvalidated":
        return self

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        if value is None or value in ([], ()):
            return () if param.multiple or param.nargs == -1 else value
        kind = param.type_descriptor.annotation
        if kind in (str, int, float, bool) and type(value) is kind:  # a default, or a string
            return value
        is_count = kind is int and not param.type_descriptor.is_ranged
        if is_count and isinstance(value, str) and value.isascii() and value.isdigit():
            return int(value)
        if kind == list[str] and all(isinstance(item, str) for item in value):
            return list(value)
        return self.checked().coerce(value, param=param, ctx=ctx)


def flags(
    options: type[Options], *, without: Sequence[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Replace the parameter `options` of a command's function by one flag per option.

    The function is called with an `options` object made from the flags that were given; OptionError
    names the flag of an invalid value. The command has no flags for the options in `without`.
    """
    declared = {name: found for name, found in options.declared().items() if name not in without}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = signature(command).parameters
        parameters = [Parameter(_CONTEXT, Parameter.KEYWORD_ONLY, annotation=typer.Context)]
        for parameter in own.values():
            if parameter.name != "options":
                parameters.append(parameter.replace(kind=Parameter.KEYWORD_ONLY))
                continue
            for name, found in declared.items():
                parameters += _parameters(options, name, found)

        @wraps(command)
        def called(**typed: Any) -> None:
            rest = {name: typed[name] for name in own if name != "options"}
            given = {
                name: value
                for name, found in declared.items()
                if (value := _typed(typed, name, found)) is not None
            }
            names = frozenset(n for n in given if _is_typed(typed[_CONTEXT], n))
            if typed.get("quiet"):
                warnings.simplefilter("ignore", UnreadFilesWarning)
            beside = _words_beside(typed[_CONTEXT], set(rest) - _PLACES)
            command(**rest, options=options(**given, typed=names, beside=beside))

        called.__signature__ = signature(command).replace(parameters=parameters)  # type: ignore[attr-defined]
        called.__annotations__ = {p.name: p.annotation for p in parameters} | {"return": None}
        return called

    return decorate


def _parameters(options: type[Options], name: str, found: Option) -> list[Parameter]:
    """Return the parameters of one option, as typer expects them."""
    kind = found.reader.flag
    names = found.flags or (flag_of(name, found),)
    default = found.shown if found.shown is not None else default_of(options, name)
    if default in ((), {}):
        default = None
    panel = options.panel_of(name)
    choices = "|".join(found.choices)
    metavar = (choices if len(choices) <= _CHOICES_WIDTH else "CHOICE") or found.reader.metavar
    info = typer.Option(
        *names,
        help=found.help,
        rich_help_panel=panel,
        metavar=None if kind is bool else metavar,
        autocompletion=_completer(name, found),
    )
    made = [_parameter(name, kind, default, info)]
    if found.json_flag:
        help_text = 'The same as --map, as JSON: {"question": "meta.q"}.'
        as_json = typer.Option(
            found.json_flag, help=help_text, rich_help_panel=panel, metavar="JSON"
        )
        made.append(_parameter(name + _JSON, str | None, None, as_json))
    return made


def _completer(name: str, found: Option) -> Callable[[str], list[str]] | None:
    """Return the shell completion of an option's value; None completes file names."""
    if found.choices:
        return lambda incomplete: [one for one in found.choices if one.startswith(incomplete)]
    completers = {
        "type": type_names,
        "method": method_names,
        "chat_template": template_names,
        "to": target_names,
        "allow_loss": loss_names,
    }
    return completers.get(name)


def target_names(incomplete: str) -> list[str]:
    """Return the targets that begin with what was typed."""
    from fmtkit.formats import target_registry

    return [one for one in target_registry.names() if one.startswith(incomplete)]


def loss_names(incomplete: str) -> list[str]:
    """Return the losses that --allow-loss accepts, completing the last one of a comma-separated list."""
    from fmtkit.formats import target_registry

    before, comma, last = incomplete.rpartition(",")
    return [before + comma + one for one in target_registry.LOSSES if one.startswith(last)]


def type_names(incomplete: str) -> list[str]:
    """Return the types that begin with what was typed; after a template and a dot, its sources."""
    from fmtkit.formats import registry

    head, dot, _ = incomplete.rpartition(".")
    sources = [f"{head}.{one}" for one in registry.names()] if dot else []
    return [one for one in [*registry.names(), *sources] if one.startswith(incomplete)]


def schema_names(incomplete: str) -> list[str]:
    """Return the names with a JSON Schema that begin with what was typed."""
    from fmtkit import catalogue

    return [one for one in catalogue.schema_names() if one.startswith(incomplete)]


def method_names(incomplete: str) -> list[str]:
    """Return the training methods that begin with what was typed."""
    from fmtkit.core import runner

    return [one for one in runner.names() if one.startswith(incomplete)]


def template_names(incomplete: str) -> list[str]:
    """Return the templates that begin with what was typed."""
    from fmtkit.rendering import template_sources

    return [one for one in template_sources.names() if one.startswith(incomplete)]


def _parameter(name: str, kind: Any, default: Any, info: Any) -> Parameter:
    annotation = Annotated[kind, info]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _is_typed(context: typer.Context, name: str) -> bool:
    """Return whether an option was given on the command line, even with its default value."""
    sources = [context.get_parameter_source(n) for n in (name, name + _JSON)]
    return any(source is not None and source.name != "DEFAULT" for source in sources)


def _words_beside(context: typer.Context, names: set[str]) -> tuple[str, ...]:
    """Return the words that were typed for parameters of the command that are no options."""
    words: list[str] = []
    for parameter in context.command.params:
        if parameter.name not in names or not _is_typed(context, str(parameter.name)):
            continue
        value, flag = context.params[parameter.name], max(parameter.opts, key=len)
        if isinstance(value, bool):
            words += [flag] if value else []
            continue
        for one in value if isinstance(value, list | tuple) else [value]:
            words += [flag, str(one)]
    return tuple(words)


def _typed(typed: dict[str, Any], name: str, found: Option) -> Any:
    """Return the value given for an option; for a mapping, its two flags merged."""
    value = typed[name]
    text = typed.get(name + _JSON)
    if text is None:
        return value
    import json

    try:
        mapping = json.loads(text)
    except ValueError as error:
        raise OptionError(f"{found.json_flag} {text}: not JSON: {error}") from error
    if not isinstance(mapping, dict):
        raise OptionError(f"{found.json_flag} {text}: give a JSON object")
    return {**mapping, **PAIRS.read(value or [], flag_of(name, found))}


def print_version(asked: bool) -> None:
    """Print the version and exit, if --version was given."""
    if asked:
        from importlib.metadata import version

        typer.echo(f"fmtkit {version('fmtkit')}")
        raise typer.Exit


def say(text: str) -> None:
    """Print one line on stderr, without credentials."""
    from fmtkit.core.credentials import public
    from fmtkit.core.escaping import one_line

    sys.stderr.write(one_line(public(text)) + "\n")
