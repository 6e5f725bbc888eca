"""The report of a conversion or a validation as text, for terminals, logs and `print`."""

import json
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from fmtkit.core.codes import REASONS, WARNINGS
from fmtkit.core.escaping import counted, one_line, visible
from fmtkit.core.text_parts import INDENT, LEFT, RIGHT, Columns, Line, Part
from fmtkit.running.ledger import TERMS
from fmtkit.running.progress_bar import in_bytes

FIRST_BAD = 3
MANY = 10_000
"""Minimum number of rows for which rows per second are shown."""
BAD = ("quarantined", "skipped")


def report_parts(data: Mapping[str, Any], outputs: Sequence[str]) -> list[Part]:
    """Return a conversion's report: counts, bad rows, warnings, unread columns, and written files."""
    parts: list[Part] = [Line(_title(data), "bold"), _counts(data)]
    parts += _codes("bad rows", data["reasons"], REASONS)
    if data["quarantined"] and Path(outputs[-1]).is_file():  # else it is on an object store
        parts += _first_bad(Path(outputs[-1]))
    # Not how many sources have extra columns or keys, but which they are: in the lines below.
    of_sources = ("extra_columns", "open_keys")
    warnings = {code: n for code, n in data["warnings"].items() if code not in of_sources}
    parts += _codes("warnings", warnings, WARNINGS)
    parts += _unread(data)
    parts += _lost(data)
    if data.get("ignored_columns"):
        names = ", ".join(data["ignored_columns"])
        parts.append(Line(f"not used: {one_line(names)} (--keep carries columns through)"))
    paths = [Line(one_line(path), "cyan") for path in outputs]
    firsts = [Line("wrote"), *[Line("")] * len(paths)]
    # The speed of a small run says how long Python takes to start.
    is_long = data["seconds"] >= 1 and data["rows_read"] >= MANY
    rate = f", {data['rows_read'] / data['seconds']:,.0f} rows/s" if is_long else ""
    files = Columns((LEFT, LEFT), list(zip(firsts, paths, strict=False)))
    return [*parts, files, Line(f"in {data['seconds']:.2f} s{rate}", "dim")]


def _unread(data: Mapping[str, Any]) -> list[Part]:
    """Name the unread columns and message keys that hold something, and what to do about them."""
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
    """Name what the layout of --to cannot hold, in rows written without it and in rejected rows."""
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


def findings_parts(data: Mapping[str, Any]) -> list[Part]:
    """Return the summary of a validation: its codes, what was not read, and how many rows are sound."""
    end = "sound" if data["reasons"] else "sound: nothing wrong"
    left = f", {data['filtered']:,} filtered" if data.get("filtered") else ""
    end = end if data["sound"] or not left else "sound"
    rows = f"{counted(data['rows_read'], 'row')}{left}, {data['sound']:,} {end}"
    return [
        *_codes("findings", data["reasons"], REASONS),
        *_codes("warnings", data["warnings"], WARNINGS),
        *_unread(data),
        Line(rows, "bold"),
    ]


class BadRow(Protocol):
    """A row with something wrong."""

    @property
    def file(self) -> str: ...
    @property
    def line(self) -> int | None: ...
    @property
    def row(self) -> int: ...
    @property
    def code(self) -> str: ...
    @property
    def message(self) -> str: ...


def finding_line(item: BadRow) -> str:
    """Return a bad row as file:line: code: message."""
    return _finding(item.file, item.line, item.row, f"{item.code}: {item.message}")


def _finding(file: str, line: int | None, row: int, message: str) -> str:
    return f"{one_line(file)}:{f'row {row}' if line is None else line}: {one_line(message)}"
