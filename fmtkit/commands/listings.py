"""Lists on stdout: types, templates, versions."""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from fmtkit.core.escaping import visible
from fmtkit.reports.console import aligned, errors, output, print_json, show


def print_types(entries: Sequence[Mapping[str, Any]], name: str | None, *, as_json: bool) -> None:
    """Print types: a list, or all about one."""
    if as_json:
        print_json(entries)
        return
    table = aligned("left", "left", "left")
    for entry in entries:
        columns = ", ".join(part for part in (entry["columns"], *_options(entry)) if part)
        table.add_row(Text(entry["name"], style="cyan"), entry["table"], Text(columns))
    console = output()
    if name is None:
        show(console, table)
        show(errors(), Text(_LEGEND, style="dim"))
        return
    first = entries[0]
    show(console, Text(f"{name}: {first['reading']}", style="bold"), Text(first["summary"]), table)
    for entry in entries:
        if entry["url"]:
            show(console, Text(f"{entry['table']}: {entry['url']}"))
        if entry["differs"]:
            show(console, Text(f"differs from axolotl: {entry['differs']}"))


_LEGEND = """\
T text, M messages, F true or false, L list of text, R list of records, ? may be absent, -O an option
A type may begin with a template: chatml.intel, llama3.ultra, ./mine.jinja.intel"""


def _options(entry: Mapping[str, Any]) -> list[str]:
    return [f"-O {key}={_written(value)}" for key, value in entry["options"].items()]


def _written(value: object) -> str:
    plain = isinstance(value, str) and value.isprintable() and bool(value)
    return str(value) if plain else json.dumps(value)


def print_templates(
    entries: Sequence[Mapping[str, Any]], name: str | None, *, as_json: bool
) -> None:
    """Print templates: a list, or the source of one."""
    if as_json:
        print_json(entries)
        return
    if name is not None:
        sys.stdout.write(visible(str(entries[0]["source"])))
        return
    table = aligned("left", "left", "left")
    for entry in entries:
        label = Text(entry["name"], style="cyan")
        table.add_row(label, entry["sha256"][:12], Text(entry["origin"]))
    show(output(), table)


def print_environment(facts: Mapping[str, Any], *, as_json: bool) -> None:
    """Print versions and devices."""
    if as_json:
        print_json(facts)
        return
    for key, value in facts.items():
        sys.stdout.write(f"{key}: {value}\n")
