"""Reports and findings on a terminal; plain and uncut where the output is not a terminal.

The summary of a conversion is made of plain lines and columns: in a pipe or a log they are written as they
are, and rich, 25 ms of CPU at each start, is not imported.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fmtkit.converting.ledger import TERMS
from fmtkit.converting.progress_bar import in_bytes, may_be_terminal
from fmtkit.core.codes import REASONS, WARNINGS
from fmtkit.core.escaping import counted, one_line, visible
from fmtkit.core.secret_keys import hidden

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

    from fmtkit.converting.run_report import Report
    from fmtkit.converting.validation import Findings


UNBOUNDED = 100_000
"""Width of a pipe: nothing is wrapped or cut where no window sets a limit."""
FIRST_BAD = 3
MANY = 10_000
"""Minimum number of rows for which rows per second are shown."""
BAD = ("quarantined", "skipped")
RIGHT, LEFT = "right", "left"
INDENT = 2


class Line(NamedTuple):
    """A line, or a cell, in a style of rich's."""

    text: str
    style: str = ""
    indent: int = 0


class Columns(NamedTuple):
    """Rows of as many cells as there are sides, on which each column is aligned."""

    sides: tuple[str, ...]
    rows: list[tuple[Line, ...]]
    indent: int = 0


Part = Line | Columns


def errors() -> "Console":
    """Return the console of stderr."""
    return _console(stderr=True)


def output() -> "Console":
    """Return the console of stdout."""
    return _console(stderr=False)


def _console(*, stderr: bool) -> "Console":
    from rich.console import Console

    console = Console(stderr=stderr, highlight=False)
    if not console.is_terminal:
        console.width = UNBOUNDED
    return console


def show(console: "Console", *parts: "RenderableType") -> None:
    """Print without the spaces that rich puts at the ends of lines."""
    with console.capture() as captured:
        for part in parts:
            console.print(part)
    console.file.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def aligned(*justify: str) -> "Table":
    """Return a table without lines; of its columns the last is folded where the window is narrow."""
    from rich.table import Table

    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for i, side in enumerate(justify, 1):
        is_right, is_last = side == "right", i == len(justify)
        table.add_column(
            justify="right" if is_right else "left", no_wrap=not is_last, overflow="fold"
        )
    return table


def _summarize(parts: Sequence[Part]) -> None:
    """Write on stderr, with rich where that may be a terminal."""
    if may_be_terminal():
        show(errors(), *map(_rich, parts))
        return
    for part in parts:
        for line in _plain(part):
            sys.stderr.write(f"{' ' * part.indent}{line}".rstrip() + "\n")


def _rich(part: Part) -> "RenderableType":
    from rich.padding import Padding
    from rich.text import Text

    if isinstance(part, Line):
        made: RenderableType = Text(part.text, style=part.style)
    else:
        made = aligned(*part.sides)
        for row in part.rows:
            made.add_row(*(Text(cell.text, style=cell.style) for cell in row))
    return Padding(made, (0, 0, 0, part.indent), expand=False) if part.indent else made


def _plain(part: Part) -> list[str]:
    if isinstance(part, Line):
        return [part.text]
    widths = [max(len(cell.text) for cell in column) for column in zip(*part.rows, strict=True)]
    return [
        "  ".join(
            cell.text.rjust(width) if side == RIGHT else cell.text.ljust(width)
            for cell, side, width in zip(row, part.sides, widths, strict=True)
        )
        for row in part.rows
    ]


def print_json(value: object) -> None:
    """Print JSON on stdout, indented, with the secrets in it hidden."""
    text = hidden(json.dumps(value, ensure_ascii=False, indent=2))
    # Half a surrogate pair, in the name of a column or a file, cannot be printed but as an escape.
    sys.stdout.write(text.encode(errors="backslashreplace").decode() + "\n")


def print_reports(reports: Sequence["Report"], *, as_json: bool, quiet: bool) -> None:
    """Print the reports of several conversions: as JSON a list, or the report itself if there is only one."""
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
        _summarize(_report_parts(report, data))


def _report_parts(report: "Report", data: Mapping[str, Any]) -> list[Part]:
    parts: list[Part] = [Line(_title(data), "bold"), _counts(data)]
    parts += _codes("bad rows", data["reasons"], REASONS)
    if data["quarantined"] and Path(report.outputs[-1]).is_file():  # else it is on an object store
        parts += _first_bad(Path(report.outputs[-1]))
    # Not how many sources have extra columns or keys, but which they are: in the lines below.
    of_sources = ("extra_columns", "open_keys")
    warnings = {code: n for code, n in data["warnings"].items() if code not in of_sources}
    parts += _codes("warnings", warnings, WARNINGS)
    parts += _unread(data)
    parts += _lost(data)
    if data.get("ignored_columns"):
        names = ", ".join(data["ignored_columns"])
        parts.append(Line(f"not used: {one_line(names)} (--keep carries columns through)"))
    paths = [Line(one_line(path), "cyan") for path in report.outputs]
    firsts = [Line("wrote"), *[Line("")] * len(paths)]
    # The speed of a small run says how long Python takes to start.
    is_long = data["seconds"] >= 1 and data["rows_read"] >= MANY
    rate = f", {data['rows_read'] / data['seconds']:,.0f} rows/s" if is_long else ""
    files = Columns((LEFT, LEFT), list(zip(firsts, paths, strict=False)))
    return [*parts, files, Line(f"in {data['seconds']:.2f} s{rate}", "dim")]


def _unread(data: Mapping[str, Any]) -> list[Part]:
    """Name the columns, and the keys of messages, that carry something and were not read, and what to do."""
    found = sorted(data["unread_columns"].items(), key=lambda entry: -entry[1])
    could = data.get("open_columns", {})
    rows = [
        (
            Line(f"{count:,}"),
            Line(one_line(name), "yellow"),
            Line(f"could be {could[name]}" if name in could else ""),
        )
        for name, count in found
    ]
    title = "not read, rows by column (take a type that reads it, --map, --keep or --ignore it):"
    columns: list[Part] = [Line(title), Columns((RIGHT, LEFT, LEFT), [*rows], INDENT)]
    keys = [
        (Line(one_line(name), "yellow"), Line(f"could be {what}"))
        for name, what in data.get("open_keys", {}).items()
    ]
    title = "not read, keys of messages (move what is needed into columns that a type reads, or --ignore it):"
    named: list[Part] = [Line(title), Columns((LEFT, LEFT), [*keys], INDENT)]
    return [*(columns if rows else []), *(named if keys else [])]


def _lost(data: Mapping[str, Any]) -> list[Part]:
    """Name what the layout of --to does not hold: of rows written without it, and of rejected ones."""
    rows = [
        (Line(f"{count:,}"), Line(one_line(name), "yellow"), Line(what))
        for key, what in (("losses", "written without"), ("no_place", "rejected"))
        for name, count in sorted(data.get(key, {}).items(), key=lambda entry: -entry[1])
    ]
    if not rows:
        return []
    title = f"no place in {data['to']}, rows by field (--allow-loss):"
    return [Line(title), Columns((RIGHT, LEFT, LEFT), [*rows], INDENT)]


def _title(data: Mapping[str, Any]) -> str:
    template = f", rendered with {data['template']}" if data["template"] else ""
    to = f" -> {data['to']}" if data.get("to") else ""
    return visible(f"{data['type']} -> {data['table']}{to}{template}")


def _counts(data: Mapping[str, Any]) -> Columns:
    blank = data["blank_lines"]
    beside = f"and {blank:,} blank line{'s' * (blank != 1)}" if blank else ""
    rows = [("rows read", f"{data['rows_read']:,}", beside, "")]
    for term in TERMS:
        if data[term] or term == "converted":
            share = f"{data[term] / max(data['rows_read'], 1):.1%}"
            style = "yellow" if term in BAD else ""
            rows.append((term.replace("_", " "), f"{data[term]:,}", share, style))
    size = in_bytes(data["bytes_written"])
    if data["unpaired"]:
        rows.append(("unpaired", f"{data['unpaired']:,}", "pairs, two rows of each", ""))
    rows.append(("rows written", f"{data['rows_written']:,}", size, "green"))
    cells = [tuple(Line(text, style) for text in texts) for *texts, style in rows]
    return Columns((LEFT, RIGHT, LEFT), cells)


def _codes(title: str, counts: Mapping[str, int], known: Mapping[str, str]) -> list[Part]:
    """List codes with what they mean, the most frequent first."""
    if not counts:
        return []
    found = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    rows = [(Line(f"{n:,}"), Line(code, "yellow"), Line(known.get(code, ""))) for code, n in found]
    return [Line(f"{title}:"), Columns((RIGHT, LEFT, LEFT), [*rows], INDENT)]


def _first_bad(quarantine: Path) -> list[Part]:
    """Show where the first bad rows are."""
    shown = []
    with quarantine.open(encoding="utf-8", errors="replace") as lines:
        for line in islice(lines, FIRST_BAD):
            bad = json.loads(line)
            found = _finding(bad["file"], bad["line"], bad["row"], bad["message"])
            shown.append(Line(found, indent=INDENT))
    return [Line("the first of them:"), *shown]


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
    data = findings.as_dict()
    if quiet or not data["rows_read"]:
        return
    sys.stdout.flush()
    unread = _unread(data)
    end = "sound" if data["reasons"] else "sound: nothing wrong"
    left = f", {data['filtered']:,} filtered" if data.get("filtered") else ""
    end = end if data["sound"] or not left else "sound"
    rows = f"{counted(data['rows_read'], 'row')}{left}, {data['sound']:,} {end}"
    _summarize(
        [
            *_codes("findings", data["reasons"], REASONS),
            *_codes("warnings", data["warnings"], WARNINGS),
            *unread,
            Line(rows, "bold"),
        ]
    )
