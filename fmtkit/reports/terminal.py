"""A survey as text: on a terminal in colour and as wide as the window, in a pipe plain.

Whatever comes from the data goes through `visible` or `one_line` and is shown as text: neither its control
bytes nor text that looks like rich's markup is interpreted.
"""

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fmtkit.core.codes import REASONS
from fmtkit.core.escaping import counted, one_line
from fmtkit.counting.lengths import Lengths
from fmtkit.findings.cutting import Cutting
from fmtkit.findings.mask_summary import MaskSummary
from fmtkit.findings.source_columns import ColumnSummary
from fmtkit.inspection.shown_rows import Place, ShownRow, ShownSide
from fmtkit.inspection.survey_record import BadRow, FindingSummary, Survey
from fmtkit.inspection.type_guesses import Guess
from fmtkit.reports.histograms import bars, sparkline
from fmtkit.reports.token_text import KIND_STYLES, side_text

PLACES = 8
"""Places that a finding names with --all; --json has more."""
FEW_PLACES = 3
MOST_BAD, MOST_FOUND, MOST_LENGTHS, MOST_COLUMNS, MOST_SOURCES = 3, 3, 6, 10, 6
"""Entries of each part that fit on a screen; --all shows the others, and what to do about findings."""

COLUMNS = 40
TYPES = 4
ROW = 160
"""Characters of a source row that are shown."""
COMMAND = 4000
WIDE = 100
"""Characters from which on a window has room for every figure."""
NARROW = 70
"""Characters below which a window has room for figures only."""
MARKS = {
    "fine": ("✔", "bold green"),
    "bad": ("✖", "bold red"),
    "error": ("✖", "bold red"),
    "warning": ("▲", "bold yellow"),
    "note": ("●", "bold cyan"),
}
"""Severity -> its mark and style; the word is printed as well, for those who do not see colours."""


def print_survey(survey: Survey, console: Console, *, whole: bool = False) -> None:
    """Print a survey: a screen of it, or all that it holds."""
    _print_sources(survey, console, whole=whole)
    _print_verdict(survey, console)
    if survey.type is None:
        # These notes say how to name a type, without which no row can be read.
        _print_notes(survey, console)
    _print_findings(survey, console, whole=whole)
    if survey.table is None:
        _print_columns(survey, console, whole=whole)
    _print_images(survey, console, whole=whole)
    _print_lengths(survey, console, whole=whole)
    _print_cutting(survey, console, whole=whole)
    _print_masks(survey, console, whole=whole)
    _print_anchors(survey, console)
    if survey.table is not None:
        _print_columns(survey, console, whole=whole)
    for row in survey.shown:
        print_row(row, console)
    if survey.type is not None:
        _print_notes(survey, console)
    if survey.command:
        _heading(console, "convert it")
        # Not wrapped: it is there to be pasted.
        console.print(Text(one_line(survey.command, COMMAND)), soft_wrap=True)
    for one in survey.readings:
        _heading(console, f"or with {one.meaning}")
        console.print(Text(one_line(one.command, COMMAND)), soft_wrap=True)
    if console.is_terminal and not whole:
        console.print(Text("\n--all shows more and what to do, --html FILE every row", style="dim"))


def _print_notes(survey: Survey, console: Console) -> None:
    if survey.notes:
        console.print()
    for note in survey.notes:
        console.print(Text(f"note: {one_line(note)}", style="yellow"))


def _heading(console: Console, text: str) -> None:
    console.print()
    console.print(Text(text, style="bold"))


def _table(*columns: str, right: Iterable[str] = (), fold: str | None = None) -> Table:
    """Return a table without lines; only the column named `fold` is broken where room is scarce."""
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False, header_style="dim")
    for name in columns:
        justify: Literal["right", "left"] = "right" if name in right else "left"
        table.add_column(name, justify=justify, overflow="fold", no_wrap=name != fold)
    return table


def _print_sources(survey: Survey, console: Console, *, whole: bool) -> None:
    most = len(survey.sources) if whole else MOST_SOURCES
    for source in survey.sources[:most]:
        split = f" ({source.split})" if source.split else ""
        rows = counted(source.rows, "row")
        console.print(
            Text.assemble((one_line(source.path), "bold"), f": {source.kind}, {rows}{split}")
        )
        if survey.guessed or whole:
            _print_guesses(source.types, console, whole=whole)
    if len(survey.sources) > most:
        console.print(f"and {counted(len(survey.sources) - most, 'more source')}")
    if survey.type and (survey.template or survey.tokenizer or not survey.guessed or whole):
        parts = [f"read as {survey.type} -> {survey.table}"]
        parts += [f"template {survey.template}"] if survey.template else []
        parts += [f"tokenizer {survey.tokenizer}"] if survey.tokenizer else []
        console.print(Text(one_line(", ".join(parts))))


def _print_guesses(guesses: Sequence[Guess], console: Console, *, whole: bool) -> None:
    if not guesses:
        console.print(Text("  no type fits", style="yellow"))
        return
    best, *others = guesses[:TYPES]
    sure = f"{best.certainty}: {best.reason}"
    console.print(Text(one_line(f"  best guess: {best.type} -> {best.table} ({sure})")))
    if whole:
        for one in others:
            line = f"  also fits: {one.type} -> {one.table} ({one.reason})"
            console.print(Text(one_line(line)))
    elif others:
        names = ", ".join(f"{one.type} -> {one.table}" for one in others)
        console.print(Text(one_line(f"  also fits: {names}"), style="dim"))


def _print_verdict(survey: Survey, console: Console) -> None:
    verdict = survey.verdict
    mark, style = MARKS[verdict.severity]
    console.print()
    console.print(Text(f"{mark} {verdict.text}", style=style))


def _print_findings(survey: Survey, console: Console, *, whole: bool) -> None:
    """List the codes of bad rows, then the findings, the worst first."""
    reasons = survey.ledger.get("reasons", {})
    most_bad = len(reasons) if whole else MOST_BAD
    most = len(survey.findings) if whole else MOST_FOUND
    table = _table("severity", "found", fold="found")
    table.show_header = False
    for code, count in list(reasons.items())[:most_bad]:
        bad = [row for row in survey.bad_rows if row.code == code]
        table.add_row(_mark("bad"), _bad_rows(code, count, bad, whole=whole))
    if len(reasons) > most_bad:
        table.add_row("", Text(f"and {', '.join(list(reasons)[most_bad:])}", style="dim"))
    for found in survey.findings[:most]:
        table.add_row(_mark(found.severity), _finding(found, whole=whole))
    if len(survey.findings) > most:
        rest = ", ".join(found.code for found in survey.findings[most:])
        table.add_row("", Text(f"and {rest}", style="dim"))
    if table.row_count:
        console.print(table)


def _mark(severity: str) -> Text:
    mark, style = MARKS[severity]
    return Text(f"{mark} {severity}", style=style)


def _bad_rows(code: str, count: int, rows: Sequence[BadRow], *, whole: bool) -> Text:
    text = Text.assemble((code, "bold"), f", {counted(count, 'row')}: {REASONS.get(code, '')}")
    for bad in rows[: None if whole else 1]:
        text.append(f"\n{place(bad.place)}: {one_line(bad.message, ROW)}", "dim")
    return text


def _finding(found: FindingSummary, *, whole: bool) -> Text:
    head = f", {counted(found.count, 'row')} ({found.share:.1%}): {found.message}"
    text = Text.assemble((found.code, "bold"), head)
    lines = (
        [found.advice, *_details_and_places(found, PLACES)]
        if whole
        else _details_and_places(found, FEW_PLACES)[:1]
    )
    for line in lines:
        text.append(f"\n{line}", "dim")
    return text


def _details_and_places(found: FindingSummary, most: int) -> list[str]:
    lines = []
    if found.details:
        shown = (
            f"{k} {v:,.4g}" if isinstance(v, float) else f"{k} {v}"
            for k, v in found.details.items()
        )
        lines.append(one_line(", ".join(shown)))
    if found.places:
        more = found.count - min(len(found.places), most)
        lines.append(places(found.places[:most]) + (f" and {more:,} more" if more > 0 else ""))
    return lines


def places(found: Iterable[Place]) -> str:
    """Write places; line numbers alone after the first of several lines of one source."""
    words, source = [], None
    for where in found:
        same = where.source == source and where.line is not None
        words.append(str(where.line) if same else place(where))
        source = where.source
    return ", ".join(words)


def place(where: Place) -> str:
    """Write a place as file:line, or with its row where there is no line."""
    path = one_line(where.source)
    return f"{path}:{where.line}" if where.line is not None else f"{path} row {where.source_row}"


def _print_columns(survey: Survey, console: Console, *, whole: bool) -> None:
    every = survey.columns_rows >= survey.rows_read
    _heading(console, "columns" if every else f"columns, in {survey.columns_rows:,} of the rows")
    if whole:
        _print_column_table(survey, console)
    else:
        most = survey.columns[:MOST_COLUMNS]
        more = len(survey.columns) - len(most)
        ending = f", and {more:,} more" if more > 0 else ""
        names = ", ".join(_column(column) for column in most) or "none"
        console.print(Text(names + ending))
    width = min(console.width, ROW)
    for row in survey.first_rows:
        console.print(Text(one_line(row, width), style="dim"), soft_wrap=True)
    if survey.roles:
        roles = ", ".join(f"{one_line(role)} {count:,}" for role, count in survey.roles.items())
        turns = survey.turns
        spread = (
            f"; turns a row: p50 {turns.p50}, p95 {turns.p95}, max {turns.max}" if turns else ""
        )
        console.print(Text(f"messages: {roles}{spread}"))
    if survey.scripts and whole:
        scripts = ", ".join(
            f"{name} {share:.1%}" for name, share in survey.scripts.items() if share >= 0.0005
        )
        console.print(Text(f"scripts: {scripts}"))


def _column(column: ColumnSummary) -> str:
    kinds = " or ".join(list(column.kinds)[:2]) or "nothing"
    null = f", {column.null_share:.1%} null" if column.null_share else ""
    return f"{one_line(column.name, 40)} ({kinds}{null})"


def _print_column_table(survey: Survey, console: Console) -> None:
    table = _table("column", "holds", "null", right=["null"], fold="holds")
    for column in survey.columns[:COLUMNS]:
        holds = ", ".join(f"{kind} {count:,}" for kind, count in list(column.kinds.items())[:4])
        null = f"{column.null_share:.1%}" if column.null_share else ""
        table.add_row(Text(one_line(column.name, 40)), Text(holds or "nothing"), null)
    console.print(table)
    if len(survey.columns) > COLUMNS:
        console.print(
            Text(f"and {len(survey.columns) - COLUMNS:,} more (--json has all)", style="dim")
        )


FIGURES = ("mean", "p50", "p90", "p95", "p99", "max", "total")
FEW_FIGURES = ("p50", "p95", "p99", "max")


def _print_images(survey: Survey, console: Console, *, whole: bool) -> None:
    images = survey.images
    if images is None:
        return
    formats = ", ".join(f"{name} {count:,}" for name, count in images.formats.items())
    held = f"{counted(images.images, 'image')} in {counted(images.rows, 'row')}"
    _heading(console, held + (f": {formats}" if formats else ""))
    _print_figures([one for one in (images.per_row, images.visual_tokens) if one], console, whole)


def _print_lengths(survey: Survey, console: Console, *, whole: bool) -> None:
    if not survey.lengths:
        return
    _heading(console, f"lengths in {survey.unit}, {counted(survey.lengths_rows, 'row')}")
    shown = survey.lengths if whole else survey.lengths[:MOST_LENGTHS]
    _print_figures(shown, console, whole)
    if len(shown) < len(survey.lengths):
        console.print(Text(f"and {len(survey.lengths) - len(shown):,} more", style="dim"))
    for figures in main_lengths(survey.lengths) if whole else ():
        _print_bars(figures, survey.unit, console)
    visual = survey.images.visual_tokens if survey.images is not None else None
    if whole and visual is not None:
        _print_bars(visual, "tokens", console)


def _print_bars(figures: Lengths, unit: str, console: Console) -> None:
    scale = ", log scale" if figures.logarithmic else ""
    console.print(Text(f"\n{figures.name} ({unit}{scale})"))
    for line in bars(figures, min(console.width, 100) - 2, plain=not console.is_terminal):
        console.print(Text(f"  {line}".rstrip()))


def _print_figures(shown: Sequence[Lengths], console: Console, whole: bool) -> None:
    wide = console.width >= WIDE
    drawn = console.is_terminal and console.width >= NARROW
    numbers = FIGURES if whole and wide else FEW_FIGURES
    table = _table("", *numbers, *([" "] if drawn else []), right=numbers)
    for figures in shown:
        spark = [sparkline(figures, 40 if wide else 20)] if drawn else []
        table.add_row(one_line(figures.name, 24), *(_figure(figures, n) for n in numbers), *spark)
    console.print(table)


def _figure(figures: Lengths, name: str) -> str:
    if name == "mean":
        return f"{figures.mean:,.1f}"
    return f"{figures.tokens if name == 'total' else getattr(figures, name):,}"


def main_lengths(lengths: Iterable[Lengths]) -> list[Lengths]:
    """Return the lengths of whole sequences (prompt+chosen), or else those of the first column."""
    everything = list(lengths)
    return [figures for figures in everything if "+" in figures.name] or everything[:1]


def _print_cutting(survey: Survey, console: Console, *, whole: bool) -> None:
    cutting = survey.cutting
    if cutting is None:
        return
    if whole:
        _print_cuts(cutting, console)
    else:
        drops = [cut for cut in cutting.cuts if cut.way == "drop"]
        shares = (f"{cut.max_length:,}: {cut.rows_lost / cutting.rows:.1%}" for cut in drops)
        console.print(Text(f"rows longer than {', '.join(shares)}"))
    console.print(
        Text(
            f"smallest length that drops at most {cutting.loss_budget:.2%} of the rows: "
            f"{cutting.smallest_max_length:,}"
        )
    )


def _print_cuts(cutting: Cutting, console: Console) -> None:
    _heading(console, "what a maximum length costs (rows lost or cut, tokens lost)")
    names = ("length", "rows", "tokens", "equal", "empty", "no end")
    table = _table("length", "way", *names[1:], right=names)
    for cut in cutting.cuts:
        rows = cut.rows_lost + cut.rows_cut
        table.add_row(
            f"{cut.max_length:,}" if cut.way == "drop" else "",
            cut.way,
            f"{rows:,} {rows / cutting.rows:.1%}",
            f"{cut.tokens_lost:,} {cut.tokens_lost / max(cutting.tokens, 1):.1%}",
            *(
                f"{n:,}" if n else ""
                for n in (cut.rows_equal, cut.rows_empty, cut.rows_without_end)
            ),
        )
    console.print(table)


def _print_masks(survey: Survey, console: Console, *, whole: bool) -> None:
    masks = survey.masks
    if masks is None:
        return
    share = masks.trained / max(masks.tokens, 1)
    trained = f"{masks.trained:,} of {masks.tokens:,} tokens ({share:.1%})"
    if not whole:
        rows = counted(masks.rows, "row")
        console.print(Text(f"trained: {trained} in {rows}; {'; '.join(masks.why)}"))
        kinds = ", ".join(
            f"{k.kind} {k.trained / masks.trained:.1%}" for k in masks.kinds if k.trained
        )
        if kinds:
            console.print(Text(f"of these: {kinds}"))
    else:
        _heading(console, f"trained tokens, in {masks.rows:,} of the rows")
        for why in masks.why:
            console.print(Text(why))
        console.print(
            Text(
                f"{trained}; a sequence: "
                f"p5 {masks.share_p5:.1%}, p50 {masks.share_p50:.1%}, p95 {masks.share_p95:.1%}"
            )
        )
        _print_roles(masks, console)
    if masks.untrained_rows:
        rows = ", ".join(map(str, masks.untrained_rows))
        console.print(Text(f"rows without a trained token: {rows}", style="red"))
    for note, count in masks.notes.items():
        console.print(Text(f"{counted(count, 'sequence')}: {one_line(note)}", style="yellow"))


def _print_roles(masks: MaskSummary, console: Console) -> None:
    table = _table("role", "tokens", "trained", right=["tokens", "trained"])
    for role in masks.roles:
        table.add_row(role.role, f"{role.tokens:,}", f"{role.trained / max(role.tokens, 1):.1%}")
    console.print(table)
    table = _table(
        "kind", "tokens", "trained", "of trained", right=["tokens", "trained", "of trained"]
    )
    for kind in masks.kinds:
        trained = f"{kind.trained / max(kind.tokens, 1):.1%}"
        share = f"{kind.trained / max(masks.trained, 1):.1%}"
        table.add_row(Text(kind.kind, KIND_STYLES[kind.kind]), f"{kind.tokens:,}", trained, share)
    console.print(table)


def _print_anchors(survey: Survey, console: Console) -> None:
    anchors = survey.anchors
    if anchors is None:
        return
    keys = ", ".join(
        f"{entry.name} {getattr(anchors.rule, entry.name)}" for entry in fields(anchors.rule)
    )
    _heading(console, f"windows that strided EBFT regenerates ({keys})")
    figures = anchors.per_row
    console.print(
        Text(
            f"{anchors.anchors:,} anchors in {anchors.rows:,} rows; a row: p50 {figures.p50:,}, "
            f"p95 {figures.p95:,}, max {figures.max:,}; rows without any: {anchors.rows_without:,}"
        )
    )
    share = anchors.generated / max(anchors.tokens, 1)
    console.print(
        Text(f"{anchors.generated:,} of {anchors.tokens:,} tokens ({share:.1%}) lie in a window")
    )


def print_row(row: ShownRow, console: Console) -> None:
    """Print one row: trained tokens in the colour of their kind, others grey, every second one underlined."""
    _heading(console, f"row {row.place.row:,}, {place(row.place)}")
    for name, value in row.details.items():
        console.print(Text(f"{one_line(name)}: {one_line(str(value), 200)}", style="dim"))
    if row.images and not any(side.images for side in row.sides):
        console.print(Text(f"images: {', '.join(row.images)}", style="dim"))
    if row.problem:
        console.print(Text(one_line(row.problem), style="yellow"))
    for side in row.sides:
        if side.ids:
            share = side.trained_tokens / len(side.ids)
            size = f"{len(side.ids):,} tokens, {share:.1%} trained{windows_of(side)}"
            label = f"{side.side or 'sequence'}: {size}; {side.why}"
            console.print(Text(label, style="italic"))
        elif side.side:
            console.print(Text(side.side, style="italic"))
        console.print(side_text(side, plain=not console.is_terminal))
        for note in side.notes:
            console.print(Text(one_line(note), style="yellow"))


def windows_of(side: ShownSide) -> str:
    """Write how many windows a sequence has and how much they cover; an empty text if it has none."""
    if not side.windows:
        return ""
    start, end = side.windows[0]
    share = side.generated_tokens / len(side.ids)
    return f", {len(side.windows):,} windows of {end - start:,} tokens over {share:.1%}"
