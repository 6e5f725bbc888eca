"""The terminal's face: reports as rich tables on stderr, JSON and lists on stdout, a progress bar."""

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from fmtkit.codes import REASONS, WARNINGS
from fmtkit.escaping import one_line, visible

if TYPE_CHECKING:
    from fmtkit.conversions import Report
    from fmtkit.ledger import Ledger
    from fmtkit.validation import Findings

FINDINGS_SHOWN = 1000


class Watch(Protocol):
    """Whoever follows a run: called after each block, on the thread that asked for the run."""

    def __call__(self, done: int, size: int | None, ledger: "Ledger") -> None: ...


def errors() -> Console:
    """Return the console of stderr."""
    return Console(stderr=True, highlight=False)


def output() -> Console:
    """Return the console of stdout; wide where nobody looks at it, so that no cell is cut."""
    plain = not sys.stdout.isatty()
    return Console(highlight=False, width=200 if plain else None, soft_wrap=plain)


def print_json(value: object) -> None:
    """Print JSON on stdout, indented."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=2) + "\n")


@contextmanager
def progress(*, shown: bool) -> Iterator[Watch | None]:
    """Show bytes, rows per second and bad rows while a run lasts; nothing where stderr is no terminal."""
    console = errors()
    if not shown or not console.is_terminal:
        yield None
        return
    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[what]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("converting", total=None, what="")
        yield _Bar(bar, task)


class _Bar:
    def __init__(self, bar: Progress, task: TaskID) -> None:
        self.bar, self.task, self.begun = bar, task, time.monotonic()

    def __call__(self, done: int, size: int | None, ledger: "Ledger") -> None:
        rate = ledger.rows_read / max(time.monotonic() - self.begun, 1e-6)
        read = f"{_bytes(done)}" + (f" of {_bytes(size)}" if size else "")
        bad = f", {ledger.bad:,} bad" if ledger.bad else ""
        self.bar.update(
            self.task, completed=done, total=size, what=f"{read}, {ledger.rows_read:,} rows, {rate:,.0f} rows/s{bad}"
        )


def print_report(report: "Report", *, as_json: bool, quiet: bool) -> None:
    """Print a conversion's report: as JSON on stdout, or as a table on stderr."""
    data = report.as_dict()
    if as_json:
        print_json(data)
        return
    if quiet:
        return
    console = errors()
    console.print(Text(_title(data), style="italic"))
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_column()
    table.add_row("rows read", f"{data['rows_read']:,}", _blank(data))
    for term in ("converted", "quarantined", "skipped", "filtered", "overlong_dropped", "no_pair"):
        if data[term] or term == "converted":
            table.add_row(term.replace("_", " "), f"{data[term]:,}", "")
    table.add_row("rows written", f"{data['rows_written']:,}", _bytes(data["bytes_written"]))
    console.print(table)
    _print_codes(console, "reasons", data["reasons"], REASONS)
    _print_codes(console, "warnings", data["warnings"], WARNINGS)
    for path in report.outputs:
        console.print(Text(f"-> {visible(path)}"))
    console.print(f"{data['seconds']:.2f} s, {data['rows_read'] / max(data['seconds'], 1e-9):,.0f} rows/s", style="dim")


def _title(data: Mapping[str, Any]) -> str:
    template = f", template {data['template']}" if data["template"] else ""
    return visible(f"{data['type']} -> {data['table']}{template}")


def _blank(data: Mapping[str, Any]) -> str:
    return f"and {data['blank_lines']:,} blank lines" if data["blank_lines"] else ""


def _print_codes(console: Console, title: str, counts: Mapping[str, int], known: Mapping[str, str]) -> None:
    if not counts:
        return
    console.print(title, style="italic")
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for code, count in sorted(counts.items(), key=lambda entry: -entry[1]):
        table.add_row(f"{count:,}", code, known.get(code, ""))
    console.print(table)


def _bytes(count: float | None) -> str:
    if count is None:
        return "?"
    for unit in ("B", "KB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.2f} GB"


def print_findings(findings: "Findings", *, as_json: bool, quiet: bool) -> None:
    """Print every finding as file:line: code: message on stdout, and a summary on stderr."""
    if as_json:
        print_json(findings.as_dict())
        return
    for finding in findings.items:
        place = finding.line if finding.line is not None else f"row {finding.row}"
        sys.stdout.write(f"{one_line(finding.file)}:{place}: {finding.code}: {one_line(finding.message)}\n")
    if quiet:
        return
    console = errors()
    data = findings.as_dict()
    _print_codes(console, "findings", data["reasons"], REASONS)
    _print_codes(console, "warnings", data["warnings"], WARNINGS)
    rows = f"{data['rows_read']:,} rows, {data['sound']:,} sound"
    console.print(rows if data["reasons"] else f"{rows}: nothing wrong", style="bold")


def print_types(entries: Sequence[Mapping[str, Any]], name: str | None, *, as_json: bool) -> None:
    """Print types: a table, or all about one."""
    if as_json:
        print_json(entries)
        return
    console = output()
    if name is not None and entries:
        console.print(Text(f"{name}: {entries[0]['reading']}"))
    table = Table("type", "columns", "table", "what it is", box=None, padding=(0, 2, 0, 0))
    for entry in entries:
        table.add_row(*(Text(str(entry[key])) for key in ("name", "columns", "table", "summary")))
    console.print(table)
    if name is None:
        console.print("A type may begin with a template: chatml.intel, llama3.ultra, ./mine.jinja.argilla_chat", style="dim")
        return
    for entry in entries:
        for key, value in entry["options"].items():
            console.print(Text(f"--option {key}={value}"))
        if entry["differs"]:
            console.print(Text(f"differs from axolotl: {entry['differs']}"))


def print_templates(entries: Sequence[Mapping[str, Any]], name: str | None, *, as_json: bool) -> None:
    """Print templates: a list, or the source of one."""
    if as_json:
        print_json(entries)
        return
    if name is not None:
        sys.stdout.write(visible(str(entries[0]["source"])))
        return
    table = Table("template", "from", "sha256", box=None, padding=(0, 2, 0, 0))
    for entry in entries:
        table.add_row(Text(entry["name"]), Text(entry["origin"]), entry["sha256"][:12])
    output().print(table)


def print_environment(facts: Mapping[str, Any], *, as_json: bool) -> None:
    """Print versions and devices."""
    if as_json:
        print_json(facts)
        return
    for key, value in facts.items():
        sys.stdout.write(f"{key}: {value}\n")
