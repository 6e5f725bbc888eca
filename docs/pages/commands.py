"""docs/commands.md: every command and flag, from the command line's own help."""

from dataclasses import dataclass
from inspect import Parameter, getdoc, signature
from typing import Any, get_type_hints

from typer import Context
from typer.models import ArgumentInfo, CommandInfo

from fmtkit.commands.application import application
from pages.markdown import NOTICE, code, table

HEAD = f"""\
{NOTICE}
# Commands

`fmtkit COMMAND --help` says the same. Results go to stdout, everything else to stderr; the
[exit codes](errors.md#exit-codes) distinguish findings from failures. Guides: [converting](converting.md),
[inspecting](inspect.md), [locking](lock.md), [training](training.md).
"""


def text() -> str:
    """Return the page."""
    return HEAD + "".join(_section(command) for command in commands())


@dataclass(frozen=True)
class Flag:
    """A flag or an argument, as it is typed."""

    names: tuple[str, ...]
    value: str
    help: str
    default: str
    is_argument: bool = False
    is_required: bool = False


@dataclass(frozen=True)
class Command:
    """A command and what it takes."""

    name: str
    help: str
    flags: tuple[Flag, ...]


def commands() -> list[Command]:
    """Return the commands in their order, those of groups last."""
    app = application()
    found = [_command(registered) for registered in app.registered_commands]
    for group in app.registered_groups:
        assert group.typer_instance is not None
        assert group.typer_instance.registered_callback is not None
        found.append(_command(group.typer_instance.registered_callback, group.name))
        found += [_command(one, group.name) for one in group.typer_instance.registered_commands]
    return found


def _command(registered: Any, group: str | None = None) -> Command:
    """Read a command from the signature that typer reads; without a name it is its group."""
    function = registered.callback
    hints = get_type_hints(function, include_extras=True)
    names = [p for p in signature(function).parameters.values() if p.annotation is not Context]
    flags = tuple(_flag(p.name, hints[p.name], p.default) for p in names)
    is_group = group is not None and not isinstance(registered, CommandInfo)
    own = "" if is_group else registered.name or function.__name__.replace("_", "-")
    return Command(f"{group or ''} {own}".strip(), getdoc(function) or "", flags)


def _flag(name: str, hint: Any, default: Any) -> Flag:
    kind, info = hint.__origin__, hint.__metadata__[0]
    several = "list" in str(kind)
    said = (info.help or "") + (" May be given several times." if several else "")
    if isinstance(info, ArgumentInfo):
        written = name.upper() + ("..." if several else "")
        return Flag((written,), "", info.help or "", "", True, default is Parameter.empty)
    # Inside Annotated the first name given lies where a default would be.
    given = [n for n in (info.default, *(info.param_decls or ())) if isinstance(n, str)]
    names = tuple(sorted(given or ["--" + name.replace("_", "-")], key=len))
    value = "" if kind is bool else (" N" if "int" in str(kind) else " TEXT")
    shown = "" if default in (None, "", False) else code(str(default))
    if default is Parameter.empty:
        shown = "required"
    return Flag(names, value, said, shown)


def _section(command: Command) -> str:
    arguments = [flag for flag in command.flags if flag.is_argument]
    written = [f.names[0] if f.is_required else f"[{f.names[0]}]" for f in arguments]
    call = " ".join(["fmtkit", command.name, *written, "[FLAGS]"])
    rows = ([_written(flag), flag.help, flag.default] for flag in command.flags)
    listed = table(["flag", "meaning", "default"], rows)
    return f"\n## {command.name}\n\n```text\n{call}\n```\n\n{command.help}\n\n{listed}"


def _written(flag: Flag) -> str:
    return ", ".join(code(name) for name in flag.names) + flag.value
