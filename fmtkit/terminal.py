"""Reports and findings on a terminal; plain and uncut where nobody looks."""

import json
import sys
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fmtkit.codes import REASONS, WARNINGS
from fmtkit.converting.ledger import TERMS
from fmtkit.converting.progress_bar import in_bytes
from fmtkit.escaping import counted, one_line, visible

if TYPE_CHECKING:
    from fmtkit.converting.run_report import Report
    from fmtkit.converting.validation import Findings


UNBOUNDED = 100_000
"""Width of a pipe: nothing is wrapped or cut where no window sets a limit."""
FIRST_BAD = 3
MANY = 10_000
"""Rows from which on rows per second mean something."""
BAD = ("quarantined", "skipped")


def errors() -> Console:
    """Return the console of stderr."""
    return _console(stderr=True)


def output() -> Console:
    """Return the console of stdout."""
    return _console(stderr=False)


def _console(*, stderr: bool) -> Console:
    console = Console(stderr=stderr, highlight=False)
    if not console.is_terminal:
        console.width = UNBOUNDED
    return console


def show(console: Console, *parts: RenderableType) -> None:
    """Print without the spaces that rich puts at the ends of lines."""
    with console.capture() as captured:
        for part in parts:
            console.print(part)
    console.file.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def aligned(*justify: str) -> Table:
    """Return a table without lines; of its columns the last is folded where the window is narrow."""
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for i, side in enumerate(justify, 1):
        is_right, is_last = side == "right", i == len(justify)
        table.add_column(
            justify="right" if is_right else "left", no_wrap=not is_last, overflow="fold"
        )
    return table


def print_json(value: object) -> None:
    """Print JSON on stdout, indented."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    # Half a surrogate pair, in the name of a column or a file, cannot be printed but as an escape.
    sys.stdout.write(text.encode(errors="backslashreplace").decode() + "\n")


def print_reports(reports: Sequence["Report"], *, as_json: bool, quiet: bool) -> None:
    """Print the reports of several conversions: as JSON a list, of one the report itself."""
    if as_json and len(reports) > 1:
        print_json([report.as_dict() for report in reports])
        return
    for report in reports:
        print_report(report, as_json=as_json, quiet=quiet)


def print_report(report: "Report", *, as_json: bool, quiet: bool) -> None:
    """Print a conversion's report: as JSON on stdout, or as a table on stderr."""
    data = report.as_dict()
    if as_json:
        print_json(data)
    elif not quiet:
        show(errors(), *_report_parts(report, data))


def _report_parts(report: "Report", data: Mapping[str, Any]) -> list[RenderableType]:
    parts: list[RenderableType] = [Text(_title(data), style="bold"), _counts(data)]
    parts += _codes("bad rows", data["reasons"], REASONS)
    if data["quarantined"] and Path(report.outputs[-1]).is_file():  # else it is on an object store
        parts += _first_bad(Path(report.outputs[-1]))
    # Not how many sources have extra columns, but which columns they are: in the line below.
    warnings = {code: n for code, n in data["warnings"].items() if code != "extra_columns"}
    parts += _codes("warnings", warnings, WARNINGS)
    parts += _unread(data)
    parts += _lost(data)
    if data.get("ignored_columns"):
        names = ", ".join(data["ignored_columns"])
        parts.append(Text(f"not used: {one_line(names)} (--keep carries columns through)"))
    files = aligned("left", "left")
    for path in report.outputs:
        is_first = path == report.outputs[0]
        files.add_row("wrote" if is_first else "", Text(visible(path), style="cyan"))
    # The speed of a small run says how long Python takes to start.
    is_long = data["seconds"] >= 1 and data["rows_read"] >= MANY
    rate = f", {data['rows_read'] / data['seconds']:,.0f} rows/s" if is_long else ""
    return [*parts, files, Text(f"in {data['seconds']:.2f} s{rate}", style="dim")]


def _unread(data: Mapping[str, Any]) -> list[RenderableType]:
    """Name the columns that carry turns and were not read, and what to do."""
    if not data["unread_columns"]:
        return []
    table = aligned("right", "left")
    for name, rows in sorted(data["unread_columns"].items(), key=lambda entry: -entry[1]):
        table.add_row(f"{rows:,}", Text(one_line(name), style="yellow"))
    told = "turns not read, rows by column (take a type that reads it, --map or --keep it):"
    return [Text(told), _indented(table)]


def _lost(data: Mapping[str, Any]) -> list[RenderableType]:
    """Name what the layout of --to does not hold: of rows written without it, and of rejected ones."""
    table = aligned("right", "left", "left")
    for key, what in (("losses", "written without"), ("no_place", "rejected")):
        for name, rows in sorted(data.get(key, {}).items(), key=lambda entry: -entry[1]):
            table.add_row(f"{rows:,}", Text(one_line(name), style="yellow"), what)
    if not table.row_count:
        return []
    return [Text(f"no place in {data['to']}, rows by field (--allow-loss):"), _indented(table)]


def _title(data: Mapping[str, Any]) -> str:
    template = f", rendered with {data['template']}" if data["template"] else ""
    to = f" -> {data['to']}" if data.get("to") else ""
    return visible(f"{data['type']} -> {data['table']}{to}{template}")


def _counts(data: Mapping[str, Any]) -> Table:
    table = aligned("left", "right", "left")
    blank = data["blank_lines"]
    beside = f"and {blank:,} blank line{'s' * (blank != 1)}" if blank else ""
    table.add_row("rows read", f"{data['rows_read']:,}", beside)
    for term in TERMS:
        if data[term] or term == "converted":
            share = f"{data[term] / max(data['rows_read'], 1):.1%}"
            style = "yellow" if term in BAD else ""
            table.add_row(term.replace("_", " "), f"{data[term]:,}", share, style=style)
    size = in_bytes(data["bytes_written"])
    if data["unpaired"]:
        table.add_row("unpaired", f"{data['unpaired']:,}", "pairs, two rows of each")
    table.add_row("rows written", f"{data['rows_written']:,}", size, style="green")
    return table


def _codes(title: str, counts: Mapping[str, int], known: Mapping[str, str]) -> list[RenderableType]:
    """List codes with what they mean, the most frequent first."""
    if not counts:
        return []
    table = aligned("right", "left", "left")
    for code, count in sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])):
        table.add_row(f"{count:,}", Text(code, style="yellow"), known.get(code, ""))
    return [Text(f"{title}:"), _indented(table)]


def _first_bad(quarantine: Path) -> list[RenderableType]:
    """Show where the first bad rows stand."""
    shown = []
    with quarantine.open(encoding="utf-8", errors="replace") as lines:
        for line in islice(lines, FIRST_BAD):
            bad = json.loads(line)
            shown.append(Text(_finding(bad["file"], bad["line"], bad["row"], bad["message"])))
    return [Text("the first of them:"), *map(_indented, shown)]


def _indented(part: RenderableType) -> Padding:
    return Padding(part, (0, 0, 0, 2), expand=False)


def _finding(file: str, line: int | None, row: int, message: str) -> str:
    return f"{one_line(file)}:{f'row {row}' if line is None else line}: {one_line(message)}"


def print_findings(findings: "Findings", *, as_json: bool, quiet: bool) -> None:
    """Print every finding as file:line: code: message on stdout, and a summary on stderr."""
    if as_json:
        print_json(findings.as_dict())
        return
    for item in findings.items:
        message = f"{item.code}: {item.message}"
        sys.stdout.write(_finding(item.file, item.line, item.row, message) + "\n")
    if quiet:
        return
    sys.stdout.flush()
    data = findings.as_dict()
    unread = _unread(data)
    end = "sound" if data["reasons"] else "sound: nothing wrong"
    rows = f"{counted(data['rows_read'], 'row')}, {data['sound']:,} {end}"
    show(
        errors(),
        *_codes("findings", data["reasons"], REASONS),
        *_codes("warnings", data["warnings"], WARNINGS),
        *unread,
        Text(rows, style="bold"),
    )
