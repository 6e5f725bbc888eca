"""Reports and findings on a terminal; plain and uncut where the output is not a terminal.

The summary of a conversion is made of plain lines and columns: in a pipe or a log they are written as they
are, and rich, 25 ms of CPU at each start, is not imported.
"""

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fmtkit.core.secret_keys import hidden
from fmtkit.core.text_parts import Line, Part, plain_text
from fmtkit.running.progress_bar import may_be_terminal
from fmtkit.running.report_text import finding_line, findings_parts, report_parts

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

    from fmtkit.running.run_report import Report
    from fmtkit.running.validation import Findings


UNBOUNDED = 100_000
"""Width of a pipe: nothing is wrapped or cut where no window sets a limit."""


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
    sys.stderr.write(plain_text(parts))


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
        _summarize(report_parts(data, report.outputs))


def print_findings(findings: "Findings", *, as_json: bool, quiet: bool) -> None:
    """Print every finding as file:line: code: message on stdout, and a summary on stderr."""
    if as_json:
        print_json(findings.as_dict())
        return
    for item in findings.items:
        sys.stdout.write(finding_line(item) + "\n")
    if quiet or not findings.ledger.rows_read:
        return
    sys.stdout.flush()
    _summarize(findings_parts(findings.as_dict()))
